/* What the reflex's two sides share: the block that the loop fills and the thread reads. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/reflex.h"

/* The thread's code lies in a section of its own, so that exactly it can be locked in memory. It
 * calls nothing outside and refers to no constants outside (scripts/check_reflex.py checks that),
 * hence neither sanitizers nor the stack protector. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define REFLEX_NO_CANARY __attribute__((no_stack_protector))
#else
#define REFLEX_NO_CANARY
#endif
#define REFLEX_CODE                                                                                \
    __attribute__((section("ebb_reflex"), no_sanitize("address"), no_sanitize("undefined")))       \
    REFLEX_NO_CANARY

enum {
    REFLEX_STAT_MS = 1000, /* how old a reading of memory.stat may be while there is room */
    REFLEX_PACE_MS = 500,
    REFLEX_PAST = 32,       /* readings that the pace is taken from, */
    REFLEX_PAST_MS = 25,    /* so far apart */
    REFLEX_TEXT_MAX = 8192, /* memory.stat has about 2 KiB */
};

/* A key at the start of a line, before its number. In the block: constants are not locked. */
struct reflex_key {
    char text[32];
    size_t len;
};

struct reflex_process {
    int pidfd;    /* atomic: -1 free; -2 - fd: taken out, to be closed after the sample */
    int statm_fd; /* the same */
    uint32_t slot;
    uint32_t base_pages;  /* anonymous ones that it had when it was added, and */
    uint32_t overlap_gen; /* which overlap was known then */
};

/* The thread's own memory of a gauge. */
struct reflex_memory {
    bool is_alarmed, has_stat;
    uint64_t stat_ns; /* when memory.stat was read last */
    uint64_t wait_us; /* until the next sample, as far as this gauge goes */
    uint64_t pace;    /* bytes a second */
    uint64_t least_room;
    uint32_t n_past;
    struct {
        uint64_t t_ns, used_bytes;
    } past[REFLEX_PAST];
};

struct reflex_shown {
    uint64_t known, t_ns, used_bytes, room_bytes, least_room_bytes, pace;
};

/* One writer and one reader for everything, so there is no lock that a descheduled loop could hold
 * while the thread needs it. The loop writes processes, gauges and the words of "from the loop",
 * the thread the rest. What the loop takes away may be in use by a sample that is under way:
 * PHASE is odd during one, and fds are closed after it. */
struct reflex {
    /* from the loop */
    uint32_t wake; /* futex: changes when the thread should sample at once */
    uint32_t stop;
    uint32_t gauge_seq[REFLEX_GAUGES]; /* odd while it is being written */
    uint32_t arm;         /* bit 0: the kill was done, what is added dies; above: counts rearms */
    uint32_t n_processes; /* entries ever used */
    uint32_t overlap_gen;
    uint64_t overlap_bytes, overlap_shared_pages;
    uint32_t release; /* the loop has killed: give the memory back */
    struct reflex_gauge gauges[REFLEX_GAUGES];

    /* from the thread */
    uint32_t phase;
    uint64_t samples;
    uint64_t killed_ns;
    uint32_t killed_which;
    uint32_t shown_seq[REFLEX_GAUGES];
    struct reflex_shown shown[REFLEX_GAUGES];

    /* the thread's alone */
    uint32_t seen_gauge_seq[REFLEX_GAUGES], seen_arm, seen_overlap_gen;
    uint64_t seen_overlap_bytes, shared_base_pages;
    struct reflex_gauge now[REFLEX_GAUGES];
    struct reflex_memory memory[REFLEX_GAUGES];

    /* set before it starts */
    int kill_fd, event_fd;
    bool may_kill, is_locked;
    uint64_t page_bytes;
    /* by source: a cgroup's as enum limit_stat has them; total and available of the host */
    struct reflex_key keys[REFLEX_HOST + 1][LIMIT_STATS];

    /* the loop's alone */
    uint32_t retired_phase, n_retired;
    pthread_t thread;
    void *stack;

    struct reflex_process processes[REFLEX_PROCESSES];
    char text[REFLEX_TEXT_MAX];
};

/* Spaces, then a decimal number up to END or whatever is no digit. False without one, and for one
 * above 64 bits. */
bool reflex_number(const char *p, const char *end, uint64_t *ret);
/* The numbers behind each of N keys at the start of a line, where one without text is not in the
 * file; the first of two lines counts. Returns the bits of those that were found. */
uint32_t reflex_keyed(const char *text, size_t len, const struct reflex_key *keys, unsigned n,
                      uint64_t *ret);
/* Resident pages of a statm, and how many of them are of files or shared memory. TEXT is where it
 * is read to. */
bool reflex_statm(int fd, char *text, size_t size, uint64_t *ret_resident, uint64_t *ret_shared);
/* SIGKILL to all; how many. */
int reflex_signal_all(struct reflex *r);
bool reflex_signal(int pidfd);
void *reflex_thread(void *r);
void reflex_wake(struct reflex *r);
