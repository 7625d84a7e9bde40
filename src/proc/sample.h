/* Readings of a process, a GPU or the machine at one moment, shared by the sampler, the recording
 * and the views. Field numbers are part of the file format: add fields, never renumber. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* X(symbol, number, name, unit), where the unit is "B" (bytes) or "permyriad" */
#define SAMPLE_PROCESS_FIELDS(X)                                                                   \
    /* statm: resident memory */                                                                   \
    X(RSS, 0, "rss", "B")                                                                          \
    X(ANON, 1, "anon", "B") /* status: RssAnon */                                                  \
    /* status: RssFile, the mapped page cache, which is never a leak */                            \
    X(FILE, 2, "file", "B")                                                                        \
    X(SHMEM, 3, "shmem", "B") /* status: RssShmem */                                               \
    X(SWAP, 4, "swap", "B")   /* status: VmSwap */                                                 \
    /* status: VmHWM, which includes peaks between ticks */                                        \
    X(PEAK, 5, "peak", "B")                                                                        \
    /* pagemap: pages mapped by this process alone */                                              \
    X(UNIQUE, 6, "unique", "B")                                                                    \
    /* smaps_rollup: only on request, because reading it stalls the job */                         \
    X(PSS, 7, "pss", "B")                                                                          \
    /* GPU memory of the process, summed over all GPUs */                                          \
    X(GPU, 8, "gpu", "B")                                                                          \
    /* pagemap: anonymous memory in transparent huge pages */                                      \
    X(HUGE, 9, "huge", "B")                                                                        \
    /* pagemap: resident memory of malloc's heaps ([heap] and glibc's arenas) */                   \
    X(HEAP, 10, "heap", "B")                                                                       \
    /* pagemap: resident memory of thread stacks */                                                \
    X(STACK, 11, "stack", "B")

#define SAMPLE_MACHINE_FIELDS(X)                                                                   \
    X(TOTAL, 0, "total", "B")                                                                      \
    X(AVAILABLE, 1, "available", "B")                                                              \
    X(SWAP_TOTAL, 2, "swap_total", "B")                                                            \
    X(SWAP_FREE, 3, "swap_free", "B")                                                              \
    X(ANON_PAGES, 4, "anon_pages", "B")                                                            \
    X(SHMEM, 5, "shmem", "B")                                                                      \
    X(PSI_SOME, 6, "psi_some_avg10", "permyriad")                                                  \
    X(PSI_FULL, 7, "psi_full_avg10", "permyriad")                                                  \
    X(LIMIT, 8, "limit", "B") /* the effective limit for the job */                                \
    /* memory charged against the limit, minus reclaimable memory */                               \
    X(LIMIT_USED, 9, "limit_used", "B")                                                            \
    /* peak recorded by the limiting cgroup, if it records one */                                  \
    X(LIMIT_PEAK, 10, "limit_peak", "B")                                                           \
    /* lower and upper bound of the job's memory, with shared pages counted once */                \
    X(TREE_LOW, 11, "tree_low", "B")                                                               \
    X(TREE_HIGH, 12, "tree_high", "B")                                                             \
    /* memory charged to the job's own cgroup, minus reclaimable memory */                         \
    X(CHARGE, 13, "charge", "B")

#define SAMPLE_GPU_FIELDS(X)                                                                       \
    X(TOTAL, 0, "total", "B")                                                                      \
    X(USED, 1, "used", "B")                                                                        \
    /* memory of this job's processes, as the driver counts it */                                  \
    X(JOB, 2, "job", "B")                                                                          \
    /* memory that PyTorch has allocated: the minimum of the last half second */                   \
    X(ALLOCATED, 3, "allocated", "B")                                                              \
    X(RESERVED, 4, "reserved", "B") /* memory reserved by PyTorch's allocator */                   \
    /* memory of the job outside PyTorch's allocator: contexts, NCCL, cuBLAS */                    \
    X(OUTSIDE, 5, "outside", "B")                                                                  \
    X(PEAK, 6, "peak", "B") /* peak of the memory that PyTorch has allocated */

#define X(sym, num, name, unit) SAMPLE_##sym = (num),
enum sample_process_field { SAMPLE_PROCESS_FIELDS(X) SAMPLE_PROCESS_COUNT };
#undef X
#define X(sym, num, name, unit) MACHINE_##sym = (num),
enum sample_machine_field { SAMPLE_MACHINE_FIELDS(X) MACHINE_COUNT };
#undef X
#define X(sym, num, name, unit) GPU_##sym = (num),
enum sample_gpu_field { SAMPLE_GPU_FIELDS(X) GPU_COUNT };
#undef X

enum { SAMPLE_FIELDS_MAX = 16 }; /* size of v[], at least as large as every *_COUNT */

/* The readings of one process, GPU or machine. A missing reading is not 0, so check the bits. */
struct sample {
    uint32_t read;  /* bit mask of the fields that were read at this tick */
    uint32_t known; /* bit mask of the fields that were ever read; v[] contains the last reading */
    /* bit mask of the fields that were due at this tick but could not be read within the stall
     * budget */
    uint32_t stale;
    uint64_t v[SAMPLE_FIELDS_MAX];
};

static inline void sample_put(struct sample *s, unsigned field, uint64_t value)
{
    s->v[field] = value;
    s->read |= 1u << field;
    s->known |= 1u << field;
    s->stale &= ~(1u << field);
}
static inline bool sample_has(const struct sample *s, unsigned field)
{
    return s->known >> field & 1u;
}

/* The type of entity that a series in a recording describes. */
enum sample_entity_kind {
    ENTITY_MACHINE = 0,
    ENTITY_PROCESS = 1,
    ENTITY_GPU = 2,
    ENTITY_SERIES = 3, /* a metric that the job reports; it has a single field, number 0 */
    ENTITY_KINDS
};

enum process_role {
    ROLE_OTHER = 0,
    ROLE_MAIN, /* the training process; under torchrun there are several, one per rank */
    /* a program that starts another program and waits for it: uv run, accelerate, torchrun, a
     * shell */
    ROLE_LAUNCHER,
    ROLE_COMPILE_WORKER, /* a process in torch inductor's pool of compile workers */
    ROLE_DATA_WORKER,
    ROLE_RESOURCE_TRACKER, /* multiprocessing's resource tracker and fork server */
    ROLE_RAY_WORKER,       /* a Ray actor or task that is not a training process */
    ROLE_COUNT
};
const char *process_role_name(enum process_role role); /* "main", "launcher", "compile worker"… */

/* Pid and start time together identify a process, because pids are reused. */
struct process_id {
    int32_t pid;
    uint64_t start_ticks; /* start time since boot: field 22 of /proc/PID/stat */
};

enum { PROCESS_COMM_MAX = 64, PROCESS_CMDLINE_MAX = 512 };

/* Facts about a process. The texts are raw bytes from other programs; escape them before
 * display. */
struct process_info {
    struct process_id id;
    int32_t ppid;
    uint32_t uid;
    enum process_role role;
    uint16_t comm_len;
    /* length of cmdline, which contains arguments separated by NUL and is truncated at the
     * maximum */
    uint16_t cmdline_len;
    char comm[PROCESS_COMM_MAX];
    char cmdline[PROCESS_CMDLINE_MAX];
};

enum process_event_kind {
    PROCESS_BORN = 0,
    PROCESS_DIED,
    PROCESS_EXECED,     /* the process executed another program, so comm and cmdline have changed */
    PROCESS_REPARENTED, /* the parent died, so ppid has changed */
    PROCESS_ROLE,
    PROCESS_EVENTS
};
const char *process_event_name(enum process_event_kind kind);
