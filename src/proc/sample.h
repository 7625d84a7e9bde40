/* What is known of a process, a GPU and the machine at one moment: the vocabulary that the
 * sampler, the recording and the views share. Field numbers are part of the file format: add,
 * never renumber. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* X(symbol, number, name, unit)   unit: "B" bytes, "permyriad" */
#define SAMPLE_PROCESS_FIELDS(X)                                                                   \
    X(RSS, 0, "rss", "B")       /* statm: resident now */                                          \
    X(ANON, 1, "anon", "B")     /* status: RssAnon */                                              \
    X(FILE, 2, "file", "B")     /* status: RssFile: page cache mapped in, not a leak */            \
    X(SHMEM, 3, "shmem", "B")   /* status: RssShmem */                                             \
    X(SWAP, 4, "swap", "B")     /* status: VmSwap */                                               \
    X(PEAK, 5, "peak", "B")     /* status: VmHWM, the peak between ticks */                        \
    X(UNIQUE, 6, "unique", "B") /* pagemap: pages mapped by this process alone */                  \
    X(PSS, 7, "pss", "B")       /* smaps_rollup: only on request, it stalls the job */             \
    X(GPU, 8, "gpu", "B")       /* over all GPUs */                                                \
    X(HUGE, 9, "huge", "B")     /* pagemap: anonymous, in transparent huge pages */                \
    X(HEAP, 10, "heap", "B")    /* pagemap: resident in malloc's heaps: [heap], arenas of glibc */ \
    X(STACK, 11, "stack", "B")  /* pagemap: resident in stacks of threads */

#define SAMPLE_MACHINE_FIELDS(X)                                                                   \
    X(TOTAL, 0, "total", "B")                                                                      \
    X(AVAILABLE, 1, "available", "B")                                                              \
    X(SWAP_TOTAL, 2, "swap_total", "B")                                                            \
    X(SWAP_FREE, 3, "swap_free", "B")                                                              \
    X(ANON_PAGES, 4, "anon_pages", "B")                                                            \
    X(SHMEM, 5, "shmem", "B")                                                                      \
    X(PSI_SOME, 6, "psi_some_avg10", "permyriad")                                                  \
    X(PSI_FULL, 7, "psi_full_avg10", "permyriad")                                                  \
    X(LIMIT, 8, "limit", "B")            /* the effective limit for the job */                     \
    X(LIMIT_USED, 9, "limit_used", "B")  /* charged against it, less what is reclaimable */        \
    X(LIMIT_PEAK, 10, "limit_peak", "B") /* the cgroup's own peak, where it keeps one */           \
    X(TREE_LOW, 11, "tree_low", "B")     /* memory of the job counted once, at least */            \
    X(TREE_HIGH, 12, "tree_high", "B")   /* and at most */                                         \
    X(CHARGE, 13, "charge", "B")         /* of the job's own cgroup, less what is reclaimable */

#define SAMPLE_GPU_FIELDS(X)                                                                       \
    X(TOTAL, 0, "total", "B")                                                                      \
    X(USED, 1, "used", "B")                                                                        \
    X(JOB, 2, "job", "B") /* by the processes of this job */

#define X(sym, num, name, unit) SAMPLE_##sym = (num),
enum sample_process_field { SAMPLE_PROCESS_FIELDS(X) SAMPLE_PROCESS_COUNT };
#undef X
#define X(sym, num, name, unit) MACHINE_##sym = (num),
enum sample_machine_field { SAMPLE_MACHINE_FIELDS(X) MACHINE_COUNT };
#undef X
#define X(sym, num, name, unit) GPU_##sym = (num),
enum sample_gpu_field { SAMPLE_GPU_FIELDS(X) GPU_COUNT };
#undef X

enum { SAMPLE_FIELDS_MAX = 16 }; /* room in a struct sample; every *_COUNT fits */

/* The readings of one entity. Missing is not zero: look at the bits. */
struct sample {
    uint32_t read;  /* bit per field: read at this very tick */
    uint32_t known; /* read at some tick; v[] holds the last reading */
    uint32_t stale; /* due at this tick but not to be had within the stall budget */
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

/* One series of a recording belongs to one of these. */
enum sample_entity_kind {
    ENTITY_MACHINE = 0,
    ENTITY_PROCESS = 1,
    ENTITY_GPU = 2,
    ENTITY_SERIES = 3, /* a figure the job sends itself; one field, number 0 */
    ENTITY_KINDS
};

enum process_role {
    ROLE_OTHER = 0,
    ROLE_MAIN,             /* the one that trains; several under torchrun (one a rank) */
    ROLE_LAUNCHER,         /* uv run, accelerate, torchrun, a shell: waits for another */
    ROLE_COMPILE_WORKER,   /* torch inductor's pool */
    ROLE_DATA_WORKER,      /* a data loader's */
    ROLE_RESOURCE_TRACKER, /* multiprocessing's resource tracker and fork server */
    ROLE_COUNT
};
const char *process_role_name(enum process_role role); /* "main", "launcher", "compile worker"… */

/* (pid, start time) names one process for ever; the pid alone does not. */
struct process_id {
    int32_t pid;
    uint64_t start_ticks; /* since boot, /proc/PID/stat field 22 */
};

enum { PROCESS_COMM_MAX = 64, PROCESS_CMDLINE_MAX = 512 };

/* Raw bytes of another program: escape before showing. */
struct process_info {
    struct process_id id;
    int32_t ppid;
    uint32_t uid;
    enum process_role role;
    uint16_t comm_len;
    uint16_t cmdline_len; /* NUL between arguments; cut at the maximum */
    char comm[PROCESS_COMM_MAX];
    char cmdline[PROCESS_CMDLINE_MAX];
};

enum process_event_kind {
    PROCESS_BORN = 0,
    PROCESS_DIED,
    PROCESS_EXECED,     /* another program in the same process: comm and cmdline are new */
    PROCESS_REPARENTED, /* its parent died: ppid is new */
    PROCESS_ROLE,       /* its role became clearer */
    PROCESS_EVENTS
};
const char *process_event_name(enum process_event_kind kind);
