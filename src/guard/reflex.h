/* The reflex: a thread that watches how much room is left and, at the last line, kills the job. It
 * needs nothing then: no allocation, no fork, no opening of files, no lock held by others, and its
 * code, stack and data are locked in memory (not by mlockall). It samples the more often the less
 * room there is: the worst it expects is that REFLEX_FILL_BYTES are filled in a second. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/limit.h"

struct err;
struct reflex;

#define REFLEX_FILL_BYTES (6ull << 30)
enum {
    REFLEX_GAUGES = 2,      /* the user's limit, and the one the machine has anyway */
    REFLEX_SHORTEST_MS = 2, /* between two samples */
    REFLEX_ALARM_MS = 10,   /* the longest just above the alarm line */
    REFLEX_LONGEST_MS = 500,
    REFLEX_PROCESSES = 4096, /* that can be killed one by one; a sweep finds the rest */
};

enum reflex_source {
    REFLEX_NONE = 0,
    REFLEX_CGROUP_V1, /* usage less reclaimable memory, as proc/limit.h counts it */
    REFLEX_CGROUP_V2,
    REFLEX_HOST, /* MemTotal - MemAvailable */
    REFLEX_TREE, /* RSS of the processes that were added, less what they share (OVERLAP) */
};

/* One limit. The fds are borrowed and must stay open until the next reflex_gauge or reflex_free. */
struct reflex_gauge {
    enum reflex_source source;
    struct limit_fds fds; /* a cgroup's; stat -1: nothing is taken off. For HOST usage is meminfo */
    uint64_t limit_bytes;
    /* Lines, as room left below the limit. Crossing ALARM wakes the loop; at KILL it is done. */
    uint64_t alarm_bytes, kill_bytes;
};

/* Lines move with the pace: kill_bytes is at least what is filled in KILL_MS at the present pace.
 */
enum { REFLEX_KILL_MS = 25 };

struct reflex_options {
    int kill_fd;   /* cgroup.kill; -1: by pidfds */
    bool may_kill; /* false: it only watches (--dry-run, --no-kill) */
};

/* What a gauge showed last, at T_NS; of a cgroup with much room that is up to a second ago, as its
 * memory.stat is dear. LEAST_ROOM is since the gauge was set or rearmed. PACE is of the last half
 * second or so, 0 when falling. */
struct reflex_reading {
    bool known;
    uint64_t t_ns, used_bytes, room_bytes, least_room_bytes;
    double pace_bytes_per_s;
};

/* KILL_FD is borrowed until reflex_free. All functions are for one thread. A process forked from
 * this one does not have the block: it must not use *RET, nor free it. */
int reflex_new(const struct reflex_options *options, struct reflex **ret, struct err *err);
void reflex_free(struct reflex *r); /* ends the thread; NULL is fine */
/* Was everything locked? Else the kill still works, but may have to wait for its own pages. */
bool reflex_is_locked(const struct reflex *r);
/* Readable when a gauge has crossed its ALARM line or the kill was done; reading resets it. */
int reflex_event_fd(const struct reflex *r);

/* Sets gauge WHICH (0 or 1), source REFLEX_NONE takes it away. On return the old fds are out of
 * use. */
void reflex_gauge(struct reflex *r, unsigned which, const struct reflex_gauge *gauge);
/* For REFLEX_TREE: how much of the sum of RSS is counted more than once (or is no memory to be
 * judged), from a full sample just made, in which SHARED_BYTES of it were pages of files or shared
 * memory. Between two of these calls the reflex cannot know what is shared, and would rather count
 * too little: a process added since counts by the growth of its anonymous memory since then, as a
 * fork shares all it has, and shared or file pages that have come since do not count. */
void reflex_overlap(struct reflex *r, uint64_t bytes, uint64_t shared_bytes);
/* A process of the job: the fds become the reflex's own. STATM_FD may be -1 (then it is killed but
 * not counted). A SLOT that is there already is replaced. -ENOSPC: full. Closes both on failure.
 * After a kill, until reflex_rearm, it is killed at once, room in the table or not. */
int reflex_add(struct reflex *r, uint32_t slot, int pidfd, int statm_fd);
void reflex_remove(struct reflex *r, uint32_t slot);

void reflex_read(struct reflex *r, unsigned which, struct reflex_reading *ret);
/* The kill itself, from the loop: the same path, also when it has been done before, and where the
 * reflex may not. Then, by the thread, process_mrelease, so that the memory comes back before the
 * processes have ended. Returns how many were signalled; at least 1 when cgroup.kill took it. */
int reflex_kill(struct reflex *r);
/* When the reflex itself has killed, and by which gauge; 0: it has not. */
uint64_t reflex_killed_ns(const struct reflex *r, unsigned *ret_which);
/* A new segment: it may kill again, and the alarms are armed. A sample that is under way ends
 * first, so that it cannot reach the new processes. */
void reflex_rearm(struct reflex *r);
uint64_t reflex_samples(const struct reflex *r); /* how often it has sampled */
