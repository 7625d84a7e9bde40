/* Why a job ended, in one line: from its status, the kernel's OOM counters, the end of its output
 * and what we did ourselves. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

/* The last of the job's standard error and output, for a traceback: a ring. */
enum { DEATH_TAIL = 16 << 10, DEATH_LINE = 300, DEATH_TEXT = 480 };
struct death_tail {
    char text[DEATH_TAIL];
    uint64_t written;
};
void death_tail_add(struct death_tail *t, const char *data, size_t len);

/* The cause that the output's end shows; LINE is that of struct death_reading. */
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

/* Why a segment of a job ended, from which run.json, the exit status and a restart follow. While
 * the job runs it is CAUSE_UNKNOWN, or what ebb does to end it; death_cause finds the rest. */
enum cause {
    CAUSE_UNKNOWN,
    /* by ebb, in order of precedence */
    CAUSE_CLIENT, /* ebb run was killed, and took the job along */
    CAUSE_PLAN,   /* the guard, because a restart was due */
    CAUSE_GUARD,
    CAUSE_CANCELLED, /* by request */
    /* by the job, the kernel or others */
    CAUSE_DONE,   /* exit status 0 */
    CAUSE_STATUS, /* another, and nothing more is known */
    CAUSE_EXCEPTION,
    CAUSE_GPU_MEMORY,
    CAUSE_NO_MEMORY, /* an allocation failed */
    CAUSE_SHM_FULL,
    CAUSE_SIGNAL, /* sender unknown */
    CAUSE_OPERATOR,
    CAUSE_OOM_GROUP,
    CAUSE_OOM_HOST,
    /* found by others, after the supervisor was killed */
    CAUSE_SUPERVISOR,
    CAUSE_SENTINEL, /* and the sentinel, too */
    CAUSES
};
const char *cause_kind_name(enum cause cause); /* "finished", "exit status", "exception", … */
/* end.by of run.json: "the guard", "the death of ebb run", …; NULL: none, or it has a reason of its
 * own (CAUSE_CANCELLED). */
const char *cause_by_text(enum cause cause);

struct death_facts {
    int status;       /* as wait gives it */
    enum cause cause; /* what ebb did; else CAUSE_UNKNOWN */
    const char *why; /* of CAUSE_GUARD, _PLAN: the reason; of _CANCELLED: "cancelled: …"; or NULL */
    int sent_signal;                         /* passed on for the operator; 0 none */
    const struct death_ooms *before, *after; /* either may be NULL: not known */
    const struct death_tail *tail;           /* may be NULL */
    bool shm_full;
    const char *limit_where; /* of the cgroup above, raw; NULL: not known */
    uint64_t limit_bytes;    /* of the cgroup; 0: not known */
};

/* One line, without a full stop: "killed by the kernel: its cgroup was out of memory (limit 2.00
 * GiB)", "RuntimeError: shape mismatch", "crashed: SIGSEGV", "stopped by the guard: …". What ebb
 * did comes first, even where the job then ended with status 0; after that a status of 0 is the
 * end of the matter, whatever the output says. */
enum cause death_cause(const struct death_facts *f, char text[DEATH_TEXT]);
