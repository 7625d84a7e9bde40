/* The memory that the reflex's thread shares with the loop. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/reflex.h"

/* The thread's code has its own section, so that exactly this code can be locked in memory. The
 * code uses no functions or data outside that section; scripts/check_reflex.py verifies this. The
 * section is compiled without sanitizers and stack protector, because they would add calls to
 * functions outside the section. */
#if defined(__has_attribute) && __has_attribute(no_stack_protector)
#define REFLEX_NO_CANARY __attribute__((no_stack_protector))
#else
#define REFLEX_NO_CANARY
#endif
#define REFLEX_CODE                                                                                \
    __attribute__((section("ebb_reflex"), no_sanitize("address"), no_sanitize("undefined")))       \
    REFLEX_NO_CANARY

enum {
    /* maximum age of a reading of memory.stat while headroom is above the alarm threshold */
    REFLEX_STAT_MS = 1000,
    REFLEX_PACE_MS = 500,
    REFLEX_PAST = 32,       /* number of past readings that are kept to compute the growth rate */
    REFLEX_PAST_MS = 25,    /* interval between two readings kept for the growth rate */
    REFLEX_TEXT_MAX = 8192, /* buffer size for memory.stat, which is about 2 KiB long */
};

/* The key of a "KEY NUMBER" line. Constants are not locked in memory, so the keys are copied
 * here. */
struct reflex_key {
    char text[32];
    size_t len;
};

struct reflex_process {
    /* Atomic. -1: the entry is free. -2 - FD: the process was removed, and FD will be closed after
     * the sample in progress. */
    int pidfd;
    int statm_fd; /* like pidfd */
    uint32_t slot;
    uint32_t base_pages;  /* anonymous pages when the process was added */
    uint32_t overlap_gen; /* value of reflex.overlap_gen when the process was added */
};

/* The thread's own state of a gauge. */
struct reflex_memory {
    bool is_alarmed, has_stat;
    uint64_t stat_ns; /* time at which memory.stat was last read */
    uint64_t wait_us; /* time until the next sample of this gauge */
    uint64_t pace;    /* bytes/s */
    uint64_t least_headroom;
    uint32_t n_past;
    struct {
        uint64_t t_ns, used_bytes;
    } past[REFLEX_PAST];
};

struct reflex_shown {
    uint64_t known, t_ns, used_bytes, room_bytes, least_headroom_bytes, pace;
};

/* Memory shared by the thread and the loop. There is no lock, because the thread would have to wait
 * if the loop lost its CPU while holding the lock. Instead, each member has one writer, the loop or
 * the thread, as noted below; the loop also writes `processes`. A sample in progress may still use
 * fds that the loop has removed. PHASE is odd during a sample, and the loop closes removed fds only
 * after the sample. */
struct reflex {
    /* members written by the loop: */
    uint32_t wake; /* a futex, changed to make the thread sample at once */
    uint32_t stop;
    uint32_t gauge_seq[REFLEX_GAUGES]; /* each is odd while the loop writes the gauge */
    /* Bit 0: the job was killed, so new processes are killed at once. The other bits count the
     * calls of reflex_rearm. */
    uint32_t arm;
    /* number of entries at the start of the table that are or have been in use */
    uint32_t n_processes;
    uint32_t overlap_gen;
    uint64_t overlap_bytes, overlap_shared_pages;
    /* Set after the loop has killed the job. The thread then frees the job's memory with
     * process_mrelease. */
    uint32_t release;
    struct reflex_gauge gauges[REFLEX_GAUGES];

    /* members that only the thread writes: */
    uint32_t phase;
    uint64_t samples;
    uint64_t killed_ns;
    uint32_t killed_which;
    uint32_t shown_seq[REFLEX_GAUGES];
    struct reflex_shown shown[REFLEX_GAUGES];

    /* members used only by the thread: */
    uint32_t seen_gauge_seq[REFLEX_GAUGES], seen_arm, seen_overlap_gen;
    uint64_t seen_overlap_bytes, shared_base_pages;
    struct reflex_gauge now[REFLEX_GAUGES];
    struct reflex_memory memory[REFLEX_GAUGES];

    /* constant */
    int kill_fd, event_fd;
    bool may_kill, is_locked;
    uint64_t page_bytes;
    /* keys to read for each source: for a cgroup, in the order of enum limit_stat; for the host,
     * the keys of total and available memory */
    struct reflex_key keys[REFLEX_HOST + 1][LIMIT_STATS];

    /* members used only by the loop: */
    uint32_t retired_phase, n_retired;
    pthread_t thread;
    void *stack;

    struct reflex_process processes[REFLEX_PROCESSES];
    char text[REFLEX_TEXT_MAX];
};

/* Parses spaces and a decimal number. Returns false if there is no number, or it exceeds 64
 * bits. */
bool reflex_number(const char *p, const char *end, uint64_t *ret);
/* Finds the number after each of N keys at the start of a line. Empty keys are skipped. If two
 * lines have the same key, the first one is used. Returns a bit mask of the keys found. */
uint32_t reflex_keyed(const char *text, size_t len, const struct reflex_key *keys, unsigned n,
                      uint64_t *ret);
/* Reads two numbers from statm: all resident pages, and the resident pages of files or shared
 * memory. TEXT is a scratch buffer. */
bool reflex_statm(int fd, char *text, size_t size, uint64_t *ret_resident, uint64_t *ret_shared);
/* Sends SIGKILL to all processes in the table. Returns their number. */
int reflex_signal_all(struct reflex *r);
bool reflex_signal(int pidfd);
void *reflex_thread(void *r);
void reflex_wake(struct reflex *r);
