/* Finds out why a job ended and describes the cause in one line. The evidence is the job's exit
 * status, the kernel's OOM counters, the end of the job's output, and ebb's own actions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

/* A ring buffer with the last part of the job's output, which may contain a traceback. */
enum { DEATH_TAIL = 16 << 10, DEATH_LINE = 300, DEATH_TEXT = 480 };
struct death_tail {
    char text[DEATH_TAIL];
    uint64_t written;
};
void death_tail_add(struct death_tail *t, const char *data, size_t len);

/* The type of failure that the end of the output shows. */
enum death_sign {
    DEATH_NO_SIGN,
    DEATH_PYTHON,   /* an uncaught exception */
    DEATH_CUDA_OOM, /* a GPU is out of memory */
    DEATH_MEMORY,   /* MemoryError, std::bad_alloc, "Cannot allocate memory" */
    /* /dev/shm is full: the output shows a bus error in a worker, or "No space left" for a file
     * torch_… */
    DEATH_SHM,
    DEATH_WORKER, /* the output contains "DataLoader worker (pid N) is killed by signal: …" */
};

struct death_reading {
    enum death_sign sign;
    char line[DEATH_LINE]; /* last line of the exception, printable */
    bool child_killed;     /* `line` reports that a process of the job received SIGKILL */
    bool interrupted;      /* "KeyboardInterrupt" was printed */
    int signalled;         /* the number N in torchrun's "got signal: N", or 0 */
};

/* Finds the cause in the output. Tracebacks may be cut off, chained, prefixed by ranks ("[rank0]:
 * …") and mixed with other lines. A traceback far from the end of the output is ignored. */
void death_reading_take(const struct death_tail *t, struct death_reading *ret);

/* Counters of the kernel's OOM killer. */
struct death_ooms {
    bool host_known, group_known, above_known;
    uint64_t host; /* /proc/vmstat: oom_kill */
    uint64_t
        group; /* OOM kills of processes in the job's own cgroup, whichever limit was reached */
    uint64_t above; /* OOM kills in the ancestor cgroup that has the effective limit */
};
/* Reads the OOM counters. G may be NULL. ABOVE_DIR is the cgroup with the effective limit, relative
 * to root's cgroup_fd, or "". */
void death_ooms_read(const struct proc_root *root, const struct guard_cgroup *g,
                     const char *above_dir, bool above_is_v2, struct death_ooms *ret);

/* Why a segment of a job ended. The cause determines the entry "end" of run.json, the exit status,
 * and whether the job is restarted. While the job runs, the cause is CAUSE_UNKNOWN or, once ebb is
 * stopping the job, the reason for stopping it. death_cause finds all other causes after the job
 * has ended. */
enum cause {
    CAUSE_UNKNOWN,
    /* Causes for which ebb stopped the job, in order of precedence: */
    CAUSE_CLIENT,   /* ebb run was killed */
    CAUSE_PLAN,     /* the guard stopped the job because a restart was due */
    CAUSE_REQUEUED, /* the job was returned to Slurm's queue at its time limit */
    CAUSE_GUARD,
    CAUSE_CANCELLED,
    /* Causes in the job, the kernel or another process: */
    CAUSE_DONE,   /* exit status 0 */
    CAUSE_STATUS, /* the job exited with a status other than 0, for an unknown reason */
    CAUSE_EXCEPTION,
    CAUSE_GPU_MEMORY,
    CAUSE_NO_MEMORY, /* an allocation of the job failed */
    CAUSE_SHM_FULL,
    CAUSE_SIGNAL, /* a signal from an unknown sender */
    CAUSE_OPERATOR,
    CAUSE_OOM_GROUP,
    CAUSE_OOM_HOST,
    /* the supervisor was killed, so the job was lost */
    CAUSE_SUPERVISOR,
    CAUSE_SENTINEL, /* both the supervisor and the sentinel were killed, so the job was lost */
    CAUSES
};
const char *cause_kind_name(enum cause cause); /* "finished", "exit status", "exception", … */
/* Returns the text for end.by in run.json, such as "the guard" or "the death of ebb run", or NULL
 * if CAUSE has no such text. For CAUSE_CANCELLED, the text comes from the request to cancel. */
const char *cause_by_text(enum cause cause);

struct death_facts {
    int status;       /* wait status */
    enum cause cause; /* why ebb stopped the job, or CAUSE_UNKNOWN */
    const char *why;  /* reason of CAUSE_GUARD or CAUSE_PLAN, or "cancelled: …", or NULL */
    int sent_signal;  /* signal from the user that ebb forwarded to the job, or 0 */
    const struct death_ooms *before, *after; /* NULL: unknown */
    const struct death_tail *tail;           /* may be NULL */
    bool shm_full;
    const char *limit_where; /* cgroup with the effective limit, not escaped, or NULL */
    /* true if the job's own cgroup ran out of memory; false if LIMIT_WHERE did */
    bool limit_is_own;
    uint64_t limit_bytes; /* limit of the cgroup that ran out of memory; 0 if unknown */
};

/* Returns the cause, and describes it in one line without a full stop: "killed by the kernel: the
 * job's cgroup ran out of memory (limit 2.00 GiB)", "RuntimeError: shape mismatch", "crashed:
 * SIGSEGV", "stopped by the guard: …". If ebb stopped the job, that is the cause, even if the job
 * then exited with status 0. Any other job with exit status 0 is reported as finished, whatever its
 * output contains. */
enum cause death_cause(const struct death_facts *f, char text[DEATH_TEXT]);
