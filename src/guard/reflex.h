/* The reflex is a thread that watches the headroom and kills the job at the kill line. To kill, it
 * needs no allocation, no fork, no open() and no lock that another thread may hold. Its code, stack
 * and data are locked in memory (not by mlockall). The reflex samples more often as headroom
 * shrinks, because a job may allocate up to REFLEX_FILL_BYTES per second. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "proc/limit.h"

/* numbers of system calls, which old versions of glibc do not define */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

struct err;
struct reflex;

#define REFLEX_FILL_BYTES (6ull << 30)
enum {
    REFLEX_GAUGES = 2, /* the user's limit, and the limit of the machine or of an ancestor cgroup */
    REFLEX_SHORTEST_MS = 2, /* minimum time between two samples */
    /* maximum time between two samples when headroom is just above the alarm threshold */
    REFLEX_ALARM_MS = 10,
    REFLEX_LONGEST_MS = 500,
    /* number of processes that can be killed one by one; a sweep finds the others */
    REFLEX_PROCESSES = 4096,
};

enum reflex_source {
    REFLEX_NONE = 0,
    REFLEX_CGROUP_V1, /* usage minus reclaimable memory, as defined in proc/limit.h */
    REFLEX_CGROUP_V2,
    REFLEX_HOST, /* MemTotal - MemAvailable */
    REFLEX_TREE, /* RSS of the added processes minus the memory they share (reflex_overlap) */
};

/* One limit and the files from which memory use is read. The caller owns the fds, which must stay
 * open until the next reflex_gauge or reflex_free. */
struct reflex_gauge {
    enum reflex_source source;
    /* files of a cgroup (without an fd for stat, nothing is subtracted from the usage); for
     * REFLEX_HOST, `usage` is /proc/meminfo */
    struct limit_fds fds;
    uint64_t limit_bytes;
    /* Thresholds for headroom: at ALARM the reflex wakes the loop, at KILL it kills the job. */
    uint64_t alarm_bytes, kill_bytes;
};

/* The job is killed above the KILL threshold if, at its current growth rate, it would use up the
 * headroom within REFLEX_KILL_MS. */
enum { REFLEX_KILL_MS = 25 };

/* The last reading of a gauge, taken at T_NS. If a cgroup has much headroom, the reading may be a
 * second old, because memory.stat is expensive to read. least_headroom_bytes is the minimum since
 * the gauge was set or the reflex was rearmed. The growth rate covers about the last half second,
 * and is 0 while memory shrinks. */
struct reflex_reading {
    bool known;
    uint64_t t_ns, used_bytes, room_bytes, least_headroom_bytes;
    double pace_bytes_per_s;
};

/* Starts the thread. KILL_FD is the fd of cgroup.kill, which must stay open until reflex_free; if
 * it is negative, the reflex kills by pidfds. Unless MAY_KILL is set, the reflex only raises the
 * alarm (--dry-run, --no-kill). All functions must be called from one thread. *RET is not mapped in
 * a forked child, which must neither use nor free it. */
int reflex_new(int kill_fd, bool may_kill, struct reflex **ret, struct err *err);
void reflex_free(struct reflex *r); /* ends the thread; R may be NULL */
/* True if the code, stack and data of the reflex are all locked in memory. If not, a kill may have
 * to wait until pages are read from disk. */
bool reflex_is_locked(const struct reflex *r);
/* Returns an fd that becomes readable when headroom has crossed the ALARM threshold of a gauge or
 * the job was killed. Reading the fd resets it. */
int reflex_event_fd(const struct reflex *r);

/* Sets gauge WHICH (0 or 1) to *GAUGE, or removes gauge WHICH if the source in *GAUGE is
 * REFLEX_NONE. On return, the old fds are no longer in use. */
void reflex_gauge(struct reflex *r, unsigned which, const struct reflex_gauge *gauge);
/* For REFLEX_TREE: corrects the sum of RSS, which includes shared pages once per process. BYTES is
 * the excess, from a full sample taken just now, in which SHARED_BYTES were pages of files or
 * shared memory. Until the next call, the reflex does not know which new pages are shared, so it
 * ignores new pages of files and shared memory. A process that is newer than the sample may be a
 * fork that shares all its pages, so the reflex includes only the growth of its anonymous
 * memory. */
void reflex_overlap(struct reflex *r, uint64_t bytes, uint64_t shared_bytes);
/* Adds a process of the job and takes ownership of the fds. If STATM_FD is -1, the process's memory
 * is not measured, but the process is still killed with the job. If SLOT is already in the table,
 * its old entry is replaced. Returns -ENOSPC, with both fds closed, if the table is full. After a
 * kill and until reflex_rearm, an added process is killed at once, even if the table is full. */
int reflex_add(struct reflex *r, uint32_t slot, int pidfd, int statm_fd);
void reflex_remove(struct reflex *r, uint32_t slot);

void reflex_read(struct reflex *r, unsigned which, struct reflex_reading *ret);
/* Kills the job from the loop's thread, even if may_kill is false. After the kill, the reflex's
 * thread calls process_mrelease, so that memory is freed before the processes have exited. May be
 * called again. Returns the number of signalled processes, or at least 1 if the write to
 * cgroup.kill succeeded. */
int reflex_kill(struct reflex *r);
/* If the reflex killed the job by its own decision, returns the time of the kill and sets
 * *RET_WHICH to the gauge that caused it; otherwise returns 0. */
uint64_t reflex_killed_ns(const struct reflex *r, unsigned *ret_which);
/* Call this when a new segment starts: enables the kill and the alarm again. Waits for the end of a
 * sample in progress, so that the old sample cannot kill the new processes. */
void reflex_rearm(struct reflex *r);
