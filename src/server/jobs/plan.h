/* Decides which job starts next. Does no I/O and reads no clock. Jobs are considered by priority,
 * then by age. A job that cannot start yet reserves the resources that it waits for, and a later
 * job may start only if it leaves these resources free. So small jobs overtake a large job if they
 * do not delay it, and only jobs of a higher priority can delay a job indefinitely. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_GPUS_MAX = 64 };

struct plan_room {
    unsigned slots;
    uint64_t memory_bytes; /* memory for all jobs together; 0 means no limit */
    unsigned gpus;         /* at most PLAN_GPUS_MAX */
    /* Resources that running jobs use: */
    unsigned slots_used;
    uint64_t memory_used;
    uint64_t gpus_used; /* as bits */
};

struct plan_job {
    uint64_t memory_bytes; /* memory that the job needs; 0 if unknown, which reserves nothing */
    unsigned gpus;
    bool waits; /* the job waits until other jobs have succeeded, and reserves nothing */
};

enum plan_why {
    PLAN_STARTS,
    PLAN_WAITS_AFTER,
    PLAN_WAITS_SLOT,
    PLAN_WAITS_MEMORY,
    PLAN_WAITS_GPU,
    PLAN_WAITS_TURN, /* enough is free, but an earlier job has reserved it */
    PLAN_NEVER       /* the job needs more than the server has */
};
struct plan_verdict {
    enum plan_why why;
    uint64_t gpus; /* the GPUs assigned to the job if it starts, one bit each */
};

/* Plans JOBS, which are in the order of the queue: by priority, then by id. RET has an entry for
 * each job. At most one job starts per call: the first job that can start. */
void plan_next(const struct plan_room *room, const struct plan_job *jobs, size_t count,
               struct plan_verdict *ret);
/* Converts a set of GPUs to "0,2", the format of CUDA_VISIBLE_DEVICES, and back. The empty set is
 * "" or NULL. */
enum { PLAN_GPU_TEXT = PLAN_GPUS_MAX * 3 };
void plan_gpu_text(uint64_t gpus, char ret[PLAN_GPU_TEXT]);
uint64_t plan_gpu_bits(const char *text);

/* Writes a reason such as "waits for memory: needs 24.0 GiB (free: 11.0 GiB of 58.0 GiB)". */
void plan_sentence(const struct plan_room *room, const struct plan_job *job,
                   const struct plan_verdict *verdict, char *ret, size_t size);
