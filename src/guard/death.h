/* Why a job ended, in one line: from its status, the kernel's OOM counters, the end of its output
 * and what we did ourselves. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

/* The last of the job's standard error and output, to look for a traceback: a ring. */
enum { DEATH_TAIL = 16 << 10, DEATH_LINE = 300, DEATH_TEXT = 480 };
struct death_tail {
    char text[DEATH_TAIL];
    uint64_t written;
};
void death_tail_add(struct death_tail *t, const char *data, size_t len);

/* What the output's end tells; LINE is that of struct death_reading. */
enum death_sign {
    DEATH_NO_SIGN,
    DEATH_PYTHON,   /* an uncaught exception: LINE is its last line */
    DEATH_CUDA_OOM, /* the same, of CUDA (or another GPU) being out of memory */
    DEATH_MEMORY,   /* MemoryError, std::bad_alloc, "Cannot allocate memory" */
    DEATH_SHM,      /* /dev/shm is full: bus error in a worker, "No space left" on torch_… */
    DEATH_WORKER,   /* "DataLoader worker (pid N) is killed by signal: …" */
};

/* How often the kernel's OOM killer has acted, from before and after. */
struct death_ooms {
    bool host_known, group_known, above_known;
    uint64_t host;  /* /proc/vmstat: oom_kill */
    uint64_t group; /* of the job's own cgroup */
    uint64_t above; /* of the cgroup that has the limit, if another */
};
/* G may be NULL. ABOVE_DIR: path below root's cgroup_fd of the group that binds, "" none;
 * ABOVE_IS_V2. */
void death_ooms_read(const struct proc_root *root, const struct guard_cgroup *g,
                     const char *above_dir, bool above_is_v2, struct death_ooms *ret);

enum death_by {
    DEATH_BY_ITSELF,
    DEATH_BY_GUARD,
    DEATH_BY_OPERATOR,
    DEATH_BY_LOST_CLIENT,
    DEATH_BY_CANCEL, /* by request */
};

struct death_facts {
    int status; /* as wait gives it */
    enum death_by by;
    int sent_signal;                         /* by us, for the operator or ourselves; 0 none */
    const char *guard_why;                   /* of DEATH_BY_GUARD */
    const char *cancel_why;                  /* of DEATH_BY_CANCEL: "cancelled: …" */
    const struct death_ooms *before, *after; /* either may be NULL: not known */
    const struct death_tail *tail;           /* may be NULL */
    bool shm_full;
    const char *limit_where; /* of the cgroup above, raw; NULL: not known */
    uint64_t limit_bytes;    /* of the cgroup; 0: not known */
};

enum death_kind {
    DEATH_DONE,   /* exit status 0 */
    DEATH_STATUS, /* another, and nothing more is known */
    DEATH_EXCEPTION,
    DEATH_GPU_MEMORY,
    DEATH_NO_MEMORY, /* an allocation failed */
    DEATH_SHM_FULL,
    DEATH_SIGNAL, /* sender not known */
    DEATH_OPERATOR,
    DEATH_CLIENT, /* ebb run was killed */
    DEATH_GUARD,
    DEATH_OOM_GROUP,
    DEATH_OOM_HOST,
    DEATH_CANCELLED,
    DEATH_KINDS
};
const char *death_kind_name(enum death_kind kind); /* "finished", "exit status", "exception", … */
/* One line, without a full stop: "killed by the kernel: its cgroup was out of memory (limit 2.00
 * GiB)", "RuntimeError: shape mismatch", "crashed: SIGSEGV", "stopped by the guard: …". What we
 * did comes first, even where the job then ended with status 0; after that a status of 0 is the
 * end of the matter, whatever the output says. */
enum death_kind death_cause(const struct death_facts *f, char text[DEATH_TEXT]);
