/* The reflex's thread, which samples memory and kills the job at the kill line. All of its code is
 * in the locked section. It makes system calls directly, because pages of libc may have to be read
 * from disk first. */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guard/reflex_private.h"

#define REFLEX_INLINE REFLEX_CODE static inline __attribute__((always_inline))

/* Makes a system call. Returns its result or -errno. */
REFLEX_INLINE long raw(long n, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long ret;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
    long ret = syscall(n, a, b, c, d);
    return ret < 0 ? -errno : ret;
#endif
}

REFLEX_CODE static uint64_t clock_read(clockid_t clock)
{
    struct timespec ts;
    ts.tv_sec = ts.tv_nsec = 0;
    if (raw(SYS_clock_gettime, clock, (long)&ts, 0, 0) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

REFLEX_CODE bool reflex_number(const char *p, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    while (p < end && *p == ' ')
        p++;
    if (p == end || *p < '0' || *p > '9')
        return false;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    *ret = v;
    return true;
}

REFLEX_CODE static bool starts_with(const char *p, const char *end, const struct reflex_key *key)
{
    if ((size_t)(end - p) < key->len)
        return false;
    for (size_t i = 0; i < key->len; i++)
        if (p[i] != key->text[i])
            return false;
    return true;
}

REFLEX_CODE uint32_t reflex_keyed(const char *text, size_t len, const struct reflex_key *keys,
                                  unsigned n, uint64_t *ret)
{
    const char *p = text, *end = text + len;
    uint32_t found = 0;
    while (p < end) {
        for (unsigned i = 0; i < n; i++)
            if (!(found & 1u << i) && keys[i].len > 0 && starts_with(p, end, &keys[i]) &&
                reflex_number(p + keys[i].len, end, &ret[i]))
                found |= 1u << i;
        while (p < end && *p != '\n')
            p++;
        p++;
    }
    return found;
}

REFLEX_CODE bool reflex_statm(int fd, char *text, size_t size, uint64_t *ret_resident,
                              uint64_t *ret_shared)
{
    long len = raw(SYS_pread64, fd, (long)text, (long)size, 0);
    const char *p = text, *end = text + len;
    if (len <= 0)
        return false;
    while (p < end && *p != ' ')
        p++;
    if (!reflex_number(p, end, ret_resident))
        return false;
    while (p < end && *p == ' ')
        p++;
    while (p < end && *p != ' ')
        p++;
    return reflex_number(p, end, ret_shared);
}

/* Reads a file into r's buffer and sets *RET_LEN to its length. Returns false if nothing could be
 * read. */
REFLEX_CODE static bool reflex_text_read(struct reflex *r, int fd, size_t *ret_len)
{
    long len = raw(SYS_pread64, fd, (long)r->text, sizeof r->text, 0);
    if (len <= 0)
        return false;
    *ret_len = (size_t)len;
    return true;
}

REFLEX_INLINE uint64_t reflex_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* A reading of one gauge. If IS_FRESH is false, USED_BYTES is only an upper bound, which is used to
 * schedule the next sample but not to raise an alarm or kill. */
struct found {
    uint64_t used_bytes;
    bool is_fresh;
};

/* Reads the reclaimable memory of a cgroup, as limit_used_read() does, but without calling libc. */
REFLEX_CODE static bool reclaimable_read(struct reflex *r, const struct reflex_gauge *g,
                                         uint64_t *ret)
{
    struct limit_stats stats;
    uint64_t kernel;
    size_t len;
    if (g->fds.kernel < 0 || !reflex_text_read(r, g->fds.kernel, &len) ||
        !reflex_number(r->text, r->text + len, &kernel))
        kernel = 0;
    if (!reflex_text_read(r, g->fds.stat, &len))
        return false;
    for (volatile unsigned i = 0; i < LIMIT_STATS;
         i++) /* volatile, so that the compiler does not turn the loop into a call of memset */
        stats.v[i] = 0;
    stats.known = reflex_keyed(r->text, len, r->keys[g->source], LIMIT_STATS, stats.v);
    *ret = limit_reclaimable(&stats) + kernel;
    return true;
}

/* The kill threshold, raised so that there is time to kill the job at the current growth rate. */
REFLEX_INLINE uint64_t kill_line(const struct reflex_gauge *g, const struct reflex_memory *m)
{
    uint64_t rise = m->pace / 1000 * REFLEX_KILL_MS;
    return rise > g->kill_bytes ? rise : g->kill_bytes;
}

REFLEX_CODE static bool cgroup_measure(struct reflex *r, const struct reflex_gauge *g,
                                       struct reflex_memory *m, uint64_t now_ns, struct found *ret)
{
    uint64_t reclaimable;
    size_t len;
    if (!reflex_text_read(r, g->fds.usage, &len) ||
        !reflex_number(r->text, r->text + len, &ret->used_bytes))
        return false;
    ret->is_fresh = true;
    if (g->fds.stat < 0)
        return true;
    uint64_t room = reflex_minus(g->limit_bytes, ret->used_bytes), line = kill_line(g, m);
    if (m->has_stat && room > g->alarm_bytes && room > line &&
        now_ns - m->stat_ns < REFLEX_STAT_MS * UINT64_C(1000000)) {
        ret->is_fresh = false;
        return true;
    }
    if (!reclaimable_read(r, g, &reclaimable))
        return false;
    m->stat_ns = now_ns;
    m->has_stat = true;
    ret->used_bytes = reflex_minus(ret->used_bytes, reclaimable);
    return true;
}

REFLEX_CODE static bool host_measure(struct reflex *r, const struct reflex_gauge *g,
                                     struct found *ret)
{
    uint64_t kib[2]; /* MemTotal, MemAvailable */
    size_t len;
    if (!reflex_text_read(r, g->fds.usage, &len) ||
        reflex_keyed(r->text, len, r->keys[g->source], 2, kib) != 3)
        return false;
    *ret = (struct found){reflex_minus(kib[0], kib[1]) * 1024, true};
    return true;
}

/* Measures the job's processes. For a process newer than the last full sample, only the growth of
 * its anonymous memory is included, because it may be a fork that shares all pages with its parent.
 * New shared pages are not included, because they may be the same pages in every process. The next
 * full sample measures new processes and new shared pages. */
REFLEX_CODE static void tree_measure(struct reflex *r, struct found *ret)
{
    uint32_t gen = __atomic_load_n(&r->overlap_gen, __ATOMIC_ACQUIRE);
    uint32_t n = __atomic_load_n(&r->n_processes, __ATOMIC_ACQUIRE);
    uint64_t pages = 0, shared_pages = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct reflex_process *p = &r->processes[i];
        int fd = __atomic_load_n(&p->statm_fd, __ATOMIC_SEQ_CST);
        uint64_t resident, shared;
        if (fd < 0 || !reflex_statm(fd, r->text, sizeof r->text, &resident, &shared))
            continue;
        if ((int32_t)(gen - p->overlap_gen) > 0) {
            pages += resident;
            shared_pages += shared;
        } else {
            pages += reflex_minus(reflex_minus(resident, shared), p->base_pages);
        }
    }
    if (gen != r->seen_overlap_gen) {
        r->seen_overlap_gen = gen;
        r->seen_overlap_bytes = __atomic_load_n(&r->overlap_bytes, __ATOMIC_RELAXED);
        r->shared_base_pages = __atomic_load_n(&r->overlap_shared_pages, __ATOMIC_RELAXED);
    }
    pages -= reflex_minus(shared_pages, r->shared_base_pages);
    *ret = (struct found){reflex_minus(pages * r->page_bytes, r->seen_overlap_bytes), true};
}

REFLEX_CODE static bool gauge_measure(struct reflex *r, const struct reflex_gauge *g,
                                      struct reflex_memory *m, uint64_t now_ns, struct found *ret)
{
    if (g->source == REFLEX_CGROUP_V1 || g->source == REFLEX_CGROUP_V2)
        return cgroup_measure(r, g, m, now_ns, ret);
    if (g->source == REFLEX_HOST)
        return host_measure(r, g, ret);
    tree_measure(r, ret);
    return true;
}

/* Computes the growth rate since the newest reading that is at least REFLEX_PACE_MS old. Before the
 * first reading, memory is assumed to have been constant, so that the start of a program does not
 * look like growth. */
REFLEX_CODE static void reflex_pace_update(struct reflex_memory *m, uint64_t now_ns,
                                           uint64_t used_bytes)
{
    uint32_t i = m->n_past, oldest = m->n_past > REFLEX_PAST ? m->n_past - REFLEX_PAST : 0;
    uint64_t age_ms = 0;
    while (i > oldest && age_ms < REFLEX_PACE_MS)
        age_ms = (now_ns - m->past[--i % REFLEX_PAST].t_ns) / 1000000;
    if (age_ms < REFLEX_PACE_MS)
        age_ms = REFLEX_PACE_MS;
    m->pace = 0;
    if (m->n_past > 0)
        m->pace = reflex_minus(used_bytes, m->past[i % REFLEX_PAST].used_bytes) * 1000 / age_ms;
    if (m->n_past > 0 &&
        (now_ns - m->past[(m->n_past - 1) % REFLEX_PAST].t_ns) / 1000000 < REFLEX_PAST_MS)
        return;
    m->past[m->n_past % REFLEX_PAST].t_ns = now_ns;
    m->past[m->n_past % REFLEX_PAST].used_bytes = used_bytes;
    m->n_past++;
    /* prevents an overflow; n_past % REFLEX_PAST stays the same */
    if (m->n_past == 2 * REFLEX_PAST)
        m->n_past = REFLEX_PAST;
}

#define SHOW(field, value) __atomic_store_n(&s->field, (value), __ATOMIC_RELAXED)

REFLEX_CODE static void reflex_show(struct reflex *r, unsigned which, uint64_t now_ns,
                                    const struct found *found)
{
    struct reflex_shown *s = &r->shown[which];
    const struct reflex_memory *m = &r->memory[which];
    __atomic_add_fetch(&r->shown_seq[which], 1, __ATOMIC_SEQ_CST);
    SHOW(known, found ? 1 : 0);
    if (found) {
        SHOW(t_ns, now_ns);
        SHOW(used_bytes, found->used_bytes);
        SHOW(room_bytes, reflex_minus(r->now[which].limit_bytes, found->used_bytes));
        SHOW(least_headroom_bytes, m->least_headroom);
        SHOW(pace, m->pace);
    }
    __atomic_add_fetch(&r->shown_seq[which], 1, __ATOMIC_SEQ_CST);
}

REFLEX_CODE static void notify_loop(struct reflex *r)
{
    uint64_t one = 1;
    raw(SYS_write, r->event_fd, (long)&one, sizeof one, 0);
}

REFLEX_CODE static void alarm_update(struct reflex *r, const struct reflex_gauge *g,
                                     struct reflex_memory *m, uint64_t room)
{
    if (!m->is_alarmed && room <= g->alarm_bytes) {
        m->is_alarmed = true;
        notify_loop(r);
    } else if (room >= g->alarm_bytes + g->alarm_bytes / 10 && room > g->alarm_bytes) {
        m->is_alarmed = false;
    }
}

REFLEX_CODE bool reflex_signal(int pidfd)
{
    return raw(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0) == 0;
}

REFLEX_CODE int reflex_signal_all(struct reflex *r)
{
    char one = '1';
    uint32_t n = __atomic_load_n(&r->n_processes, __ATOMIC_SEQ_CST);
    bool is_group = r->kill_fd >= 0 && raw(SYS_write, r->kill_fd, (long)&one, 1, 0) == 1;
    int count = 0;
    for (uint32_t i = 0; i < n; i++) {
        int fd = __atomic_load_n(&r->processes[i].pidfd, __ATOMIC_SEQ_CST);
        if (fd >= 0 && reflex_signal(fd))
            count++;
    }
    return is_group && count == 0 ? 1 : count;
}

/* Frees the memory of processes that are being killed. The kernel rejects this for other
 * processes. */
REFLEX_CODE static void release_all(struct reflex *r)
{
    uint32_t n = __atomic_load_n(&r->n_processes, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < n && !__atomic_load_n(&r->stop, __ATOMIC_RELAXED); i++) {
        int fd = __atomic_load_n(&r->processes[i].pidfd, __ATOMIC_SEQ_CST);
        if (fd >= 0)
            raw(SYS_process_mrelease, fd, 0, 0, 0);
    }
}

/* Kills the job. ARM is the value of r->arm at the start of the sample. If the loop has started a
 * new segment since then, the sample measured the old segment, so the new segment must not be
 * killed. */
REFLEX_CODE static void kill_now(struct reflex *r, unsigned which, uint64_t now_ns, uint32_t arm)
{
    if (!__atomic_compare_exchange_n(&r->arm, &arm, arm | 1, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return;
    /* The time and the gauge are stored before the kill, so that a reader that sees the processes
     * exit also finds the reason. */
    __atomic_store_n(&r->killed_which, which, __ATOMIC_RELAXED);
    __atomic_store_n(&r->killed_ns, now_ns, __ATOMIC_RELEASE);
    reflex_signal_all(r);
    notify_loop(r);
    release_all(r);
}

/* Returns half of the time until ROOM bytes are used up at BYTES_PER_S, but at least
 * REFLEX_SHORTEST_MS and at most REFLEX_LONGEST_MS. */
REFLEX_CODE static uint64_t reflex_wait_us(uint64_t room, uint64_t bytes_per_s)
{
    uint64_t us = room / (bytes_per_s / 1000000 + 1) / 2;
    if (us < REFLEX_SHORTEST_MS * 1000)
        return REFLEX_SHORTEST_MS * 1000;
    return us > REFLEX_LONGEST_MS * 1000 ? REFLEX_LONGEST_MS * 1000 : us;
}

/* Returns the time until the next sample, which must come before headroom can fall to the next
 * threshold: the alarm threshold or, below that, the kill threshold. Expensive samples (thousands
 * of processes, a slow memory.stat) use at most a fiftieth of a CPU, unless the current growth rate
 * requires more. */
REFLEX_CODE static uint64_t wait_next(const struct reflex_memory *m, uint64_t above_kill,
                                      uint64_t above_alarm, uint64_t cost_us)
{
    uint64_t pace = 2 * m->pace;
    uint64_t worst = pace > REFLEX_FILL_BYTES ? pace : REFLEX_FILL_BYTES;
    uint64_t by_room = reflex_wait_us(above_kill, worst), by_cost = cost_us * 50;
    uint64_t by_pace = reflex_wait_us(above_kill, pace);
    if (above_alarm > 0) {
        uint64_t by_alarm = reflex_wait_us(above_alarm, worst);
        if (by_alarm < REFLEX_ALARM_MS * 1000)
            by_alarm = REFLEX_ALARM_MS * 1000;
        if (by_room > by_alarm)
            by_room = by_alarm;
    }
    if (by_cost > 50000)
        by_cost = 50000;
    if (by_cost > by_pace)
        by_cost = by_pace;
    return by_room > by_cost ? by_room : by_cost;
}

REFLEX_CODE static void gauge_sample(struct reflex *r, unsigned which, uint32_t arm)
{
    const struct reflex_gauge *g = &r->now[which];
    struct reflex_memory *m = &r->memory[which];
    struct found found;
    uint64_t now_ns = clock_read(CLOCK_MONOTONIC), cpu_ns = clock_read(CLOCK_THREAD_CPUTIME_ID);
    if (!gauge_measure(r, g, m, now_ns, &found)) {
        reflex_show(r, which, now_ns, NULL);
        m->wait_us =
            m->wait_us > REFLEX_LONGEST_MS * 500 ? REFLEX_LONGEST_MS * 1000 : m->wait_us * 2;
        return;
    }
    uint64_t room = reflex_minus(g->limit_bytes, found.used_bytes);
    if (found.is_fresh) {
        reflex_pace_update(m, now_ns, found.used_bytes);
        if (room < m->least_headroom)
            m->least_headroom = room;
        reflex_show(r, which, now_ns, &found);
        alarm_update(r, g, m, room);
        if (room <= kill_line(g, m) && r->may_kill && !(arm & 1))
            kill_now(r, which, now_ns, arm);
    }
    uint64_t cost_us = (clock_read(CLOCK_THREAD_CPUTIME_ID) - cpu_ns) / 1000;
    m->wait_us = wait_next(m, reflex_minus(room, kill_line(g, m)),
                           reflex_minus(room, g->alarm_bytes), cost_us);
}

REFLEX_CODE static void memory_reset(struct reflex_memory *m)
{
    m->is_alarmed = m->has_stat = false;
    m->pace = m->n_past = 0;
    m->least_headroom = UINT64_MAX;
    m->wait_us = REFLEX_SHORTEST_MS * 1000;
}

/* Copies a gauge member by member, because a compiler may copy a whole struct by calling memcpy,
 * which is outside the section. */
REFLEX_CODE static void gauge_copy(const struct reflex_gauge *from, struct reflex_gauge *to)
{
    const volatile struct reflex_gauge *g = from;
    to->source = g->source;
    to->fds.usage = g->fds.usage;
    to->fds.stat = g->fds.stat;
    to->fds.kernel = g->fds.kernel;
    to->limit_bytes = g->limit_bytes;
    to->alarm_bytes = g->alarm_bytes;
    to->kill_bytes = g->kill_bytes;
}

/* Updates the thread's copy of a gauge. While the loop writes the gauge, the thread keeps its old
 * copy. The loop then waits until the thread no longer uses this copy. */
REFLEX_CODE static void gauge_take(struct reflex *r, unsigned which)
{
    uint32_t seq = __atomic_load_n(&r->gauge_seq[which], __ATOMIC_SEQ_CST);
    if ((seq & 1) || seq == r->seen_gauge_seq[which])
        return;
    struct reflex_gauge taken;
    gauge_copy(&r->gauges[which], &taken);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&r->gauge_seq[which], __ATOMIC_SEQ_CST) != seq)
        return;
    const struct reflex_gauge *old = &r->now[which];
    bool is_same = taken.source == old->source && taken.fds.usage == old->fds.usage &&
                   taken.fds.stat == old->fds.stat && taken.limit_bytes == old->limit_bytes;
    gauge_copy(&taken, &r->now[which]);
    r->seen_gauge_seq[which] = seq;
    if (is_same) { /* only the thresholds have changed, so the last reading is still valid */
        r->memory[which].is_alarmed = false;
        return;
    }
    memory_reset(&r->memory[which]);
    reflex_show(r, which, 0, NULL);
}

/* Samples all gauges. Returns the time until the next sample in µs; 0 means to sleep until
 * woken. */
REFLEX_CODE static uint64_t reflex_sample(struct reflex *r)
{
    uint32_t arm = __atomic_load_n(&r->arm, __ATOMIC_SEQ_CST);
    uint64_t wait_us = 0;
    bool is_rearmed = (arm & ~1u) != r->seen_arm;
    r->seen_arm = arm & ~1u;
    for (unsigned i = 0; i < REFLEX_GAUGES; i++) {
        if (is_rearmed)
            memory_reset(&r->memory[i]);
        gauge_take(r, i);
        if (r->now[i].source == REFLEX_NONE)
            continue;
        gauge_sample(r, i, arm);
        if (wait_us == 0 || r->memory[i].wait_us < wait_us)
            wait_us = r->memory[i].wait_us;
    }
    if (__atomic_exchange_n(&r->release, 0, __ATOMIC_SEQ_CST))
        release_all(r);
    /* the reflex can sample less often if it may not kill or has already killed the job */
    if (wait_us > 0 && wait_us < 20000 && (!r->may_kill || (arm & 1)))
        wait_us = 20000;
    return wait_us;
}

REFLEX_CODE void *reflex_thread(void *user)
{
    struct reflex *r = user;
    /* Raises the priority of this thread. Lack of permission is ignored. */
    raw(SYS_setpriority, PRIO_PROCESS, 0, -20, 0);
    for (;;) {
        uint32_t wake = __atomic_load_n(&r->wake, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&r->stop, __ATOMIC_SEQ_CST))
            return NULL;
        __atomic_add_fetch(&r->phase, 1, __ATOMIC_SEQ_CST);
        uint64_t us = reflex_sample(r);
        __atomic_add_fetch(&r->samples, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&r->phase, 1, __ATOMIC_SEQ_CST);
        struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
        raw(SYS_futex, (long)&r->wake, FUTEX_WAIT_PRIVATE, (long)wake, us > 0 ? (long)&ts : 0);
    }
}

REFLEX_CODE void reflex_wake(struct reflex *r)
{
    __atomic_add_fetch(&r->wake, 1, __ATOMIC_SEQ_CST);
    raw(SYS_futex, (long)&r->wake, FUTEX_WAKE_PRIVATE, 1, 0);
}
