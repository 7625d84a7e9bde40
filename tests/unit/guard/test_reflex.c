/* Tests that, at the kill threshold, the reflex kills the processes added to it, and no others.
 * Gauges are files in which the tests change a single digit, so that a sample never reads a
 * half-written number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "guard/reflex.h"
#include "guard/reflex_private.h"

#define MIB (UINT64_C(1) << 20)
#define LIMIT_BYTES UINT64_C(10000000000)
enum { WAIT_S = 60 };

static pid_t bystander; /* The bystander is never added, so it must survive every test. */

static pid_t child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    assert_true(pid > 0);
    return pid;
}

static int set_up(void **state)
{
    (void)state;
    bystander = fork();
    if (bystander == 0)
        for (;;)
            pause();
    return bystander < 0;
}

static int tear_down(void **state)
{
    (void)state;
    bool is_alive = waitpid(bystander, NULL, WNOHANG) == 0;
    kill(bystander, SIGKILL);
    waitpid(bystander, NULL, 0);
    return is_alive ? 0 : -1;
}

static int file_of(const char *text)
{
    int fd = memfd_create("gauge", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    return fd;
}

/* Changes the digit at offset AT of the file to D; the leading digit stands for gigabytes. */
static void set_gb(int fd, off_t at, int d)
{
    char c = (char)('0' + d);
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
}

static int usage_of(int gb)
{
    char text[16];
    snprintf(text, sizeof text, "%d000000000\n", gb);
    return file_of(text);
}

static struct reflex *reflex_of(bool may_kill)
{
    struct reflex *r = NULL;
    assert_int_equal(reflex_new(-1, may_kill, &r, NULL), 0);
    return r;
}

/* The limit is 10 GB, the alarm threshold 3 GB of headroom, the kill threshold 1.5 GB. Headroom in
 * whole GB never equals the kill threshold, and only a growth rate above 60 GB/s would raise the
 * kill threshold. */
static struct reflex_gauge gauge_of(enum reflex_source source, int usage_fd, int stat_fd)
{
    return (struct reflex_gauge){.source = source,
                                 .fds = {usage_fd, stat_fd, -1},
                                 .limit_bytes = LIMIT_BYTES,
                                 .alarm_bytes = 3500000000,
                                 .kill_bytes = 1500000000};
}

static int add_pid(struct reflex *r, uint32_t slot, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(pidfd >= 0);
    return reflex_add(r, slot, pidfd, open(path, O_RDONLY | O_CLOEXEC));
}

static struct reflex_reading reading_of(struct reflex *r, unsigned which)
{
    struct reflex_reading reading;
    reflex_read(r, which, &reading);
    return reading;
}

static void wait_for_used(struct reflex *r, unsigned which, uint64_t low, uint64_t high)
{
    uint64_t until = clock_mono_ns() + WAIT_S * NS_PER_S;
    struct reflex_reading reading;
    do {
        usleep(1000);
        reading = reading_of(r, which);
    } while ((!reading.known || reading.used_bytes < low || reading.used_bytes > high) &&
             clock_mono_ns() < until);
    assert_true(reading.known);
    assert_in_range(reading.used_bytes, low, high);
}

static uint64_t samples_of(const struct reflex *r)
{
    return __atomic_load_n(&r->samples, __ATOMIC_RELAXED);
}

/* Waits for COUNT complete samples that start after this call. */
static void wait_for_samples(const struct reflex *r, uint64_t count)
{
    uint64_t until = clock_mono_ns() + WAIT_S * NS_PER_S, target = samples_of(r) + count + 1;
    while (samples_of(r) < target && clock_mono_ns() < until)
        usleep(1000);
    assert_true(samples_of(r) >= target);
}

static void assert_killed(pid_t pid)
{
    uint64_t until = clock_mono_ns() + WAIT_S * NS_PER_S;
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && clock_mono_ns() < until)
        usleep(1000);
    assert_int_equal(got, pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void assert_alive(pid_t pid)
{
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
}

static void end(pid_t pid)
{
    assert_alive(pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static bool has_event(struct reflex *r, int timeout_ms)
{
    struct pollfd p = {.fd = reflex_event_fd(r), .events = POLLIN};
    uint64_t count;
    if (poll(&p, 1, timeout_ms) != 1)
        return false;
    assert_int_equal(read(p.fd, &count, sizeof count), sizeof count);
    return true;
}

static void reflex_kills_every_process_at_the_kill_threshold(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(5);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    pid_t pids[3];
    unsigned which = 9;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        pids[i] = child();
        assert_int_equal(add_pid(r, i, pids[i]), 0);
    }
    reflex_gauge(r, 1, &g);
    wait_for_used(r, 1, 5000000000, 5000000000);
    assert_int_equal(reading_of(r, 1).room_bytes, 5000000000);
    assert_int_equal(reflex_killed_ns(r, &which), 0);
    assert_int_equal(which, 9);
    for (size_t i = 0; i < 3; i++)
        assert_alive(pids[i]);
    uint64_t before_ns = clock_mono_ns();
    set_gb(fd, 0, 9);
    assert_true(has_event(r, WAIT_S * 1000));
    for (size_t i = 0; i < 3; i++)
        assert_killed(pids[i]);
    assert_in_range(reflex_killed_ns(r, &which), before_ns, clock_mono_ns());
    assert_int_equal(which, 1);
    assert_int_equal(reading_of(r, 1).least_headroom_bytes, 1000000000);
    assert_false(reading_of(r, 0).known);
    reflex_free(r);
    close(fd);
}

static void reflex_without_permission_to_kill_only_raises_an_alarm(void **state)
{
    struct reflex *r = reflex_of(false);
    int fd = usage_of(9);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    pid_t pid = child();
    (void)state;
    assert_int_equal(add_pid(r, 0, pid), 0);
    reflex_gauge(r, 0, &g);
    assert_true(has_event(r, WAIT_S * 1000));
    wait_for_samples(r, 3);
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    assert_alive(pid);
    /* Without may_kill, the reflex thread does not kill, but the event loop may still call
     * reflex_kill(). */
    assert_int_equal(reflex_kill(r), 1);
    assert_killed(pid);
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    reflex_free(r);
    close(fd);
}

static void reflex_excludes_file_cache_from_memory_in_use(void **state)
{
    static const char *const stats[] = {
        "inactive_file 9000000000\nactive_file 900000000\n"
        "total_inactive_file 2000000000\ntotal_active_file 1000000000\n",
        "anon 1\ninactive_file 2000000000\nactive_file 1000000000\nslab 7\n"};
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct reflex *r = reflex_of(true);
        int fd = usage_of(9), stat_fd = file_of(stats[i]);
        struct reflex_gauge g = gauge_of(i == 0 ? REFLEX_CGROUP_V1 : REFLEX_CGROUP_V2, fd, stat_fd);
        reflex_gauge(r, 0, &g);
        wait_for_used(r, 0, 6000000000, 6000000000);
        assert_int_equal(reading_of(r, 0).room_bytes, 4000000000);
        wait_for_samples(r, 3);
        assert_false(has_event(r, 0));
        assert_int_equal(reflex_killed_ns(r, NULL), 0);
        reflex_free(r);
        close(fd);
        close(stat_fd);
    }
}

static int fixture_open(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/proc-fixtures/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* The tests of proc/limit.c use the same recording. Of 148 MiB that are charged, 10.5 MiB are in
 * use. */
static void reflex_does_not_kill_a_job_whose_memory_is_reclaimable(void **state)
{
    static const struct {
        enum reflex_source source;
        const char *usage, *stat, *kernel;
        uint64_t used;
    } cases[] = {
        {REFLEX_CGROUP_V1, "machine-v1-reclaimable/cgroup/memory/job/memory.usage_in_bytes",
         "machine-v1-reclaimable/cgroup/memory/job/memory.stat",
         "machine-v1-reclaimable/cgroup/memory/job/memory.kmem.usage_in_bytes", 11698176},
        {REFLEX_CGROUP_V2, "machine-v2-reclaimable/cgroup/job/memory.current",
         "machine-v2-reclaimable/cgroup/job/memory.stat", NULL, 12714560},
    };
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct reflex *r = reflex_of(true);
        struct reflex_gauge g =
            gauge_of(cases[i].source, fixture_open(cases[i].usage), fixture_open(cases[i].stat));
        pid_t pid = child();
        if (cases[i].kernel)
            g.fds.kernel = fixture_open(cases[i].kernel);
        g.limit_bytes = 156 << 20;
        g.alarm_bytes = 32 << 20;
        g.kill_bytes = 16 << 20;
        assert_int_equal(add_pid(r, 0, pid), 0);
        reflex_gauge(r, 0, &g);
        wait_for_used(r, 0, cases[i].used, cases[i].used);
        wait_for_samples(r, 3);
        assert_false(has_event(r, 0));
        assert_int_equal(reflex_killed_ns(r, NULL), 0);
        assert_alive(pid);
        g.limit_bytes = 24 << 20; /* Only memory in use is compared with the limit. */
        reflex_gauge(r, 0, &g);
        assert_killed(pid);
        reflex_free(r);
        limit_fds_close(&g.fds);
    }
}

/* Usage grows with the file cache, so the reflex would kill if it used an old reading of the
 * cache. */
static void reflex_does_not_kill_because_of_an_outdated_cache_reading(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(5), stat_fd = file_of("inactive_file 0000000000\nactive_file 0000000000\n");
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, stat_fd);
    pid_t pid = child();
    (void)state;
    assert_int_equal(add_pid(r, 0, pid), 0);
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 5000000000, 5000000000);
    for (int i = 0; i < 6; i++) { /* The loop covers cache readings of different ages. */
        set_gb(stat_fd, 14, 4);
        set_gb(fd, 0, 9);
        wait_for_samples(r, 1);
        assert_int_equal(reading_of(r, 0).used_bytes, 5000000000);
        set_gb(fd, 0, 5);
        wait_for_samples(r, (uint64_t)i % 3);
        set_gb(stat_fd, 14, 0);
    }
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    assert_alive(pid);
    set_gb(fd, 0, 9); /* The same usage without file cache makes the reflex kill. */
    assert_killed(pid);
    reflex_free(r);
    close(fd);
    close(stat_fd);
}

static void reflex_does_not_kill_if_memory_stat_is_unreadable(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(9), stat_fd = file_of("");
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, stat_fd);
    pid_t pid = child();
    (void)state;
    assert_int_equal(add_pid(r, 0, pid), 0);
    reflex_gauge(r, 0, &g);
    wait_for_samples(r, 3);
    assert_false(reading_of(r, 0).known);
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    end(pid);
    reflex_free(r);
    close(fd);
    close(stat_fd);
}

static void reflex_repeats_its_alarm_only_after_headroom_has_recovered(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = file_of("6000000000\n");
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    (void)state;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 6000000000, 6000000000);
    assert_false(has_event(r, 0));
    set_gb(fd, 0, 7); /* The headroom is 3.0 GB and the alarm threshold 3.5 GB. */
    assert_true(has_event(r, WAIT_S * 1000));
    set_gb(fd, 1, 1);
    wait_for_used(r, 0, 7100000000, 7100000000);
    assert_false(has_event(r, 0));
    set_gb(fd, 1, 4);
    set_gb(fd, 0, 6); /* A headroom of 3.6 GB exceeds the alarm threshold by less than a tenth. */
    wait_for_used(r, 0, 6400000000, 6400000000);
    set_gb(fd, 0, 7);
    wait_for_used(r, 0, 7400000000, 7400000000);
    assert_false(has_event(r, 0));
    set_gb(fd, 0, 5);
    wait_for_used(r, 0, 5400000000, 5400000000);
    set_gb(fd, 0, 7);
    assert_true(has_event(r, WAIT_S * 1000));
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    reflex_free(r);
    close(fd);
}

static void threshold_change_does_not_clear_the_last_reflex_reading(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = file_of("6000000000\n");
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    struct reflex_reading reading;
    (void)state;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 6000000000, 6000000000);
    for (int i = 0; i < 50; i++) {
        g.alarm_bytes -= 1;
        reflex_gauge(r, 0, &g);
        reflex_read(r, 0, &reading);
        assert_true(reading.known);
    }
    /* Moving the alarm threshold past the current reading raises the alarm. */
    g.alarm_bytes = 5000000000;
    reflex_gauge(r, 0, &g);
    assert_true(has_event(r, WAIT_S * 1000));
    reflex_free(r);
    close(fd);
}

/* The kill threshold alone would require only two samples per second. */
static void reflex_samples_more_often_near_the_alarm_threshold(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = file_of("6000000000\n");
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    (void)state;
    g.limit_bytes = UINT64_C(10000000000000);
    /* The alarm threshold is one byte below the headroom. */
    g.alarm_bytes = g.limit_bytes - UINT64_C(6000000001);
    reflex_gauge(r, 0, &g);
    wait_for_samples(r, 4 * WAIT_S);
    assert_false(has_event(r, 0));
    reflex_free(r);
    close(fd);
}

static void reflex_computes_used_host_memory_from_meminfo(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = file_of("MemTotal:       10000000 kB\nMemFree:          100000 kB\n"
                     "MemAvailable:    4000000 kB\n");
    struct reflex_gauge g = gauge_of(REFLEX_HOST, fd, -1);
    (void)state;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 6144000000, 6144000000);
    reflex_free(r);
    close(fd);
}

/* A child process. For each byte that it receives, it touches more memory (anonymous memory or a
 * mapped file) and then answers. */
struct grower {
    pid_t pid;
    int to, from;
};

static _Noreturn void grow(int from, int to, int fd, size_t bytes)
{
    char c;
    while (read(from, &c, 1) == 1) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
        if (p == MAP_FAILED)
            _exit(1);
        memset(p, 1, bytes);
        if (write(to, &c, 1) != 1)
            break;
    }
    _exit(0);
}

static struct grower grower_of(int fd, size_t bytes)
{
    int there[2], back[2];
    assert_int_equal(pipe2(there, O_CLOEXEC), 0);
    assert_int_equal(pipe2(back, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* The child must close its copy of the write end. Otherwise it would never read end of
         * file. */
        close(there[1]);
        grow(there[0], back[1], fd, bytes);
    }
    assert_true(pid > 0);
    close(there[0]);
    close(back[1]);
    return (struct grower){pid, there[1], back[0]};
}

static void grow_once(const struct grower *g)
{
    char c = 'x';
    assert_int_equal(write(g->to, &c, 1), 1);
    assert_int_equal(read(g->from, &c, 1), 1);
}

static void grower_close(const struct grower *g)
{
    close(g->to);
    close(g->from);
}

/* Reports, as a full sample would, that PID is the only process and that BYTES of its memory are
 * shared. */
static void overlap_of(struct reflex *r, uint64_t bytes, pid_t pid)
{
    char path[64], text[128];
    uint64_t resident, shared;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(reflex_statm(fd, text, sizeof text, &resident, &shared));
    close(fd);
    reflex_overlap(r, bytes, shared * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void reflex_kills_a_process_that_grows_past_the_tree_limit(void **state)
{
    struct reflex *r = reflex_of(true);
    struct reflex_gauge g = {.source = REFLEX_TREE, .fds = LIMIT_NO_FDS};
    struct grower grower = grower_of(-1, 64 * MIB);
    (void)state;
    assert_int_equal(add_pid(r, 7, grower.pid), 0);
    overlap_of(r, 0, grower.pid);
    g.limit_bytes = UINT64_C(1) << 40;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 1, UINT64_MAX);
    g.limit_bytes = reading_of(r, 0).used_bytes + 200 * MIB;
    g.kill_bytes = 100 * MIB;
    reflex_gauge(r, 0, &g);
    grow_once(&grower);
    wait_for_samples(r, 2);
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    assert_alive(grower.pid);
    char c = 'x';
    assert_int_equal(write(grower.to, &c, 1), 1); /* The process may be killed before it answers. */
    assert_killed(grower.pid);
    assert_true(reflex_killed_ns(r, NULL) > 0);
    grower_close(&grower);
    reflex_free(r);
}

static void reflex_subtracts_shared_memory_from_the_sum_of_rss(void **state)
{
    struct reflex *r = reflex_of(true);
    struct reflex_gauge g = {.source = REFLEX_TREE, .fds = LIMIT_NO_FDS};
    struct grower grower = grower_of(-1, 64 * MIB);
    (void)state;
    grow_once(&grower);
    assert_int_equal(add_pid(r, 7, grower.pid), 0);
    overlap_of(r, 0, grower.pid);
    g.limit_bytes = UINT64_C(1) << 40;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 64 * MIB, UINT64_MAX);
    uint64_t used = reading_of(r, 0).used_bytes;
    overlap_of(r, 50 * MIB, grower.pid);
    wait_for_used(r, 0, used - 60 * MIB, used - 40 * MIB);
    overlap_of(r, UINT64_C(1) << 50, grower.pid);
    wait_for_used(r, 0, 0, 0);
    grower_close(&grower);
    assert_int_equal(waitpid(grower.pid, NULL, 0), grower.pid);
    reflex_free(r);
}

/* A forked child shares all pages with its parent; each page is counted once although it appears in
 * the statm of both processes. */
static void reflex_counts_only_anonymous_growth_of_unsampled_process(void **state)
{
    struct reflex *r = reflex_of(true);
    struct reflex_gauge g = {.source = REFLEX_TREE, .fds = LIMIT_NO_FDS};
    struct grower grower = grower_of(-1, 64 * MIB);
    (void)state;
    grow_once(&grower);
    grow_once(&grower);
    overlap_of(r, 0, grower.pid);
    assert_int_equal(add_pid(r, 7, grower.pid), 0);
    g.limit_bytes = UINT64_C(1) << 40;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 0, 8 * MIB);
    grow_once(&grower);
    wait_for_used(r, 0, 60 * MIB, 80 * MIB);
    overlap_of(r, 0, grower.pid);
    wait_for_used(r, 0, 190 * MIB, UINT64_MAX);
    grower_close(&grower);
    assert_int_equal(waitpid(grower.pid, NULL, 0), grower.pid);
    reflex_free(r);
}

static void reflex_ignores_new_shared_pages_until_the_next_full_sample(void **state)
{
    struct reflex *r = reflex_of(true);
    struct reflex_gauge g = {.source = REFLEX_TREE, .fds = LIMIT_NO_FDS};
    int fd = memfd_create("shared", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 64 * MIB), 0);
    struct grower grower = grower_of(fd, 64 * MIB);
    (void)state;
    assert_int_equal(add_pid(r, 7, grower.pid), 0);
    overlap_of(r, 0, grower.pid);
    g.limit_bytes = UINT64_C(1) << 40;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 1, UINT64_MAX);
    uint64_t used = reading_of(r, 0).used_bytes;
    grow_once(&grower);
    wait_for_samples(r, 2);
    assert_in_range(reading_of(r, 0).used_bytes, 1, used + 32 * MIB);
    overlap_of(r, 0, grower.pid);
    wait_for_used(r, 0, used + 60 * MIB, UINT64_MAX);
    grower_close(&grower);
    assert_int_equal(waitpid(grower.pid, NULL, 0), grower.pid);
    close(fd);
    reflex_free(r);
}

static void reflex_growth_rate_is_zero_while_memory_shrinks(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(1);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    uint64_t until = clock_mono_ns() + WAIT_S * NS_PER_S;
    (void)state;
    reflex_gauge(r, 0, &g);
    wait_for_used(r, 0, 1000000000, 1000000000);
    set_gb(fd, 0, 2);
    while (reading_of(r, 0).pace_bytes_per_s <= 0 && clock_mono_ns() < until)
        usleep(1000);
    /* The rate is averaged over at least half a second, in which usage grew by 1 GB. */
    assert_true(reading_of(r, 0).pace_bytes_per_s > 0);
    assert_true(reading_of(r, 0).pace_bytes_per_s <= 2e9);
    set_gb(fd, 0, 1);
    wait_for_used(r, 0, 1000000000, 1000000000);
    assert_true(reading_of(r, 0).pace_bytes_per_s == 0);
    reflex_free(r);
    close(fd);
}

static void process_added_after_a_reflex_kill_is_also_killed(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(9);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    pid_t first = child(), second = child(), third = child();
    (void)state;
    assert_int_equal(add_pid(r, 0, first), 0);
    reflex_gauge(r, 0, &g);
    assert_killed(first);
    assert_true(has_event(r, WAIT_S * 1000));
    set_gb(fd, 0, 5);
    wait_for_used(r, 0, 5000000000, 5000000000);
    assert_int_equal(add_pid(r, 1, second), 0);
    assert_killed(second);
    reflex_remove(r, 0);
    reflex_remove(r, 1);
    reflex_rearm(r);
    assert_int_equal(reflex_killed_ns(r, NULL), 0);
    assert_int_equal(add_pid(r, 2, third), 0);
    wait_for_samples(r, 2);
    assert_alive(third);
    set_gb(fd, 0, 9);
    assert_killed(third);
    reflex_free(r);
    close(fd);
}

static void process_removed_from_the_reflex_is_not_killed(void **state)
{
    struct reflex *r = reflex_of(true);
    int fd = usage_of(5);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    pid_t kept = child(), spared = child();
    uint64_t until = clock_mono_ns() + WAIT_S * NS_PER_S;
    (void)state;
    reflex_gauge(r, 0, &g);
    int pidfd = (int)syscall(SYS_pidfd_open, spared, 0), statm_fd = dup(fd);
    assert_int_equal(reflex_add(r, 1, pidfd, statm_fd), 0);
    assert_int_equal(add_pid(r, 2, kept), 0);
    reflex_remove(r, 1);
    reflex_remove(r, 99);
    while ((fcntl(pidfd, F_GETFD) >= 0 || fcntl(statm_fd, F_GETFD) >= 0) && clock_mono_ns() < until)
        reading_of(r, 0); /* Every call of a reflex function closes the fds of removed processes. */
    assert_int_equal(fcntl(pidfd, F_GETFD), -1);
    assert_int_equal(fcntl(statm_fd, F_GETFD), -1);
    set_gb(fd, 0, 9);
    assert_killed(kept);
    end(spared);
    reflex_free(r);
    close(fd);
}

static void reflex_kills_only_the_newest_process_of_a_reused_slot(void **state)
{
    struct reflex *r = reflex_of(true);
    pid_t old = child(), new = child();
    (void)state;
    assert_int_equal(add_pid(r, 1, old), 0);
    assert_int_equal(add_pid(r, 1, new), 0);
    assert_int_equal(reflex_kill(r), 1);
    assert_killed(new);
    end(old);
    reflex_free(r);
}

/* All entries refer to the same open file. The reflex does not check whether an fd is a pidfd. */
static void full_reflex_table_rejects_a_process_and_closes_its_fds(void **state)
{
    struct rlimit before, raised;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    raised = before;
    raised.rlim_cur = raised.rlim_max;
    setrlimit(RLIMIT_NOFILE, &raised);
    if (raised.rlim_max < REFLEX_PROCESSES + 100) {
        print_message("the hard limit of open files is too low to fill the table\n");
        skip();
    }
    struct reflex *r = reflex_of(true);
    int fd = usage_of(5);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    reflex_gauge(r, 0, &g);
    for (uint32_t i = 0; i < REFLEX_PROCESSES; i++)
        assert_int_equal(reflex_add(r, i, fcntl(fd, F_DUPFD_CLOEXEC, 3), -1), 0);
    int pidfd = fcntl(fd, F_DUPFD_CLOEXEC, 3), statm_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    assert_true(pidfd >= 0 && statm_fd >= 0);
    assert_int_equal(reflex_add(r, REFLEX_PROCESSES, pidfd, statm_fd), -ENOSPC);
    assert_int_equal(fcntl(pidfd, F_GETFD), -1);
    assert_int_equal(fcntl(statm_fd, F_GETFD), -1);
    /* A process added to a full table after a kill is killed as well. */
    assert_int_equal(reflex_kill(r), 0);
    pid_t pid = child();
    assert_int_equal(add_pid(r, REFLEX_PROCESSES, pid), -ENOSPC);
    assert_killed(pid);
    reflex_remove(r, 17);
    wait_for_samples(r, 0); /* The slot becomes free after the sample in progress. */
    assert_int_equal(reflex_add(r, 5000, fcntl(fd, F_DUPFD_CLOEXEC, 3), -1), 0);
    reflex_free(r);
    /* All fds are closed, so a low fd number is free. */
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    assert_in_range(again, 3, 64);
    close(again);
    close(fd);
    setrlimit(RLIMIT_NOFILE, &before);
}

static void reflex_kills_the_cgroup_with_one_write(void **state)
{
    int kill_fd = memfd_create("cgroup.kill", MFD_CLOEXEC);
    struct reflex *r = NULL;
    int fd = usage_of(9);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    char text[8] = "";
    (void)state;
    assert_int_equal(reflex_new(kill_fd, true, &r, NULL), 0);
    reflex_gauge(r, 0, &g);
    assert_true(has_event(r, WAIT_S * 1000));
    wait_for_samples(r, 3);
    assert_true(reflex_killed_ns(r, NULL) > 0);
    /* The kill file is written once, although usage stays above the threshold. */
    assert_int_equal(pread(kill_fd, text, sizeof text, 0), 1);
    assert_string_equal(text, "1");
    assert_int_equal(reflex_kill(r), 1);
    assert_int_equal(pread(kill_fd, text, sizeof text, 0), 2);
    reflex_free(r);
    close(kill_fd);
    close(fd);
}

/* Returns the number of locked KiB of the mapping that contains P. */
static long locked_kib(const void *p)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[512], rights[8];
    unsigned long low, high;
    long kib = -1;
    bool is_ours = false;
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) == 3)
            is_ours = (uintptr_t)p >= low && (uintptr_t)p < high;
        else if (is_ours && sscanf(line, "Locked: %ld kB", &kib) == 1)
            break;
    }
    (void)fclose(f);
    return kib;
}

static void memory_of_the_reflex_thread_is_locked(void **state)
{
    struct reflex *r = reflex_of(true);
    (void)state;
    if (!reflex_is_locked(r)) {
        print_message("this machine does not let us lock memory\n");
        reflex_free(r);
        skip();
    }
    assert_true(locked_kib(r) >= (long)(sizeof *r / 1024));
    assert_true(locked_kib((const void *)(uintptr_t)reflex_thread) >= 4);
    /* The stack consists of two locked mappings, because one of them is zeroed in a forked
     * child. */
    const char *stack = (const char *)r->stack + r->page_bytes;
    long stack_kib = locked_kib(stack) + locked_kib(stack + 64 * 1024 - 1);
    reflex_free(r);
    assert_true(stack_kib >= 64);
}

static int kill_without_locks(void)
{
    struct rlimit none = {0, 0};
    struct reflex *r = NULL;
    int status;
    if (setrlimit(RLIMIT_MEMLOCK, &none) < 0 ||
        (getuid() == 0 && setresuid(65534, 65534, 65534) < 0))
        return 1;
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    if (reflex_new(-1, true, &r, NULL) < 0 || reflex_is_locked(r))
        return 2;
    if (reflex_add(r, 0, (int)syscall(SYS_pidfd_open, pid, 0), -1) < 0 || reflex_kill(r) != 1)
        return 3;
    if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        return 4;
    reflex_free(r);
    return 0;
}

static void reflex_kills_even_if_its_memory_cannot_be_locked(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(kill_without_locks());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In a forked child, the thread's stack contains only zeroes. This must not crash libc. */
static void process_with_a_reflex_thread_can_fork_repeatedly(void **state)
{
    struct reflex *r = reflex_of(true);
    int status, fd = usage_of(5);
    struct reflex_gauge g = gauge_of(REFLEX_CGROUP_V2, fd, -1);
    (void)state;
    reflex_gauge(r, 0, &g);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(3);
        _exit(waitpid(grandchild, &status, 0) == grandchild ? WEXITSTATUS(status) : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    wait_for_samples(r, 1); /* The thread continues in the parent after the fork. */
    reflex_free(r);
    close(fd);
}

/* Returns the mask of signals that are blocked by the thread NAME of this process, or 0 if there is
 * no such thread. */
static uint64_t blocked_in(const char *name)
{
    glob_t found;
    uint64_t blocked = 0;
    assert_int_equal(glob("/proc/self/task/*/status", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *f = fopen(found.gl_pathv[i], "re");
        char line[256], comm[64] = "";
        unsigned long mask;
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            (void)sscanf(line, "Name: %63s", comm);
            if (strcmp(comm, name) == 0 && sscanf(line, "SigBlk: %lx", &mask) == 1)
                blocked = mask;
        }
        if (f != NULL)
            (void)fclose(f);
    }
    globfree(&found);
    return blocked;
}

static void reflex_thread_is_named_and_blocks_signals(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGWINCH, SIGSEGV};
    struct reflex *r = reflex_of(true);
    uint64_t blocked = blocked_in("ebb-reflex");
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        assert_true(blocked & (UINT64_C(1) << (signals[i] - 1)));
    reflex_free(r);
    assert_int_equal(blocked_in("ebb-reflex"), 0);
    reflex_free(NULL);
}

static void reflex_parser_reads_numbers_from_kernel_files(void **state)
{
    static const struct reflex_key keys[] = {
        {"active_file ", 12}, {"", 0}, {"inactive_file ", 14}, {"anon ", 5}};
    const char text[] = "inactive_file 5\nactive_file 77\n", twice[] = "anon 1\nanon 2\n";
    uint64_t v = 1, three[4] = {0};
    (void)state;
    assert_int_equal(reflex_keyed(text, strlen(text), keys, 4, three), 1 | 4);
    assert_int_equal(three[0], 77);
    assert_int_equal(three[2], 5);
    assert_int_equal(reflex_keyed(twice, strlen(twice), keys, 4, three), 8);
    assert_int_equal(three[3], 1);
    /* The text is truncated in the middle of a number. */
    assert_int_equal(reflex_keyed(text, strlen(text) - 2, keys, 1, &v), 1);
    assert_int_equal(v, 7);
    assert_int_equal(reflex_keyed(text, strlen(text) - 3, keys, 1, &v), 0);
    assert_int_equal(reflex_keyed(text, 18, keys, 1, &v), 0);
    const char max[] = " 18446744073709551615\n", over[] = "18446744073709551616";
    const char word[] = "max";
    assert_true(reflex_number(max, max + strlen(max), &v));
    assert_true(v == UINT64_MAX);
    assert_false(reflex_number(over, over + strlen(over), &v));
    assert_false(reflex_number(max, max, &v));
    assert_false(reflex_number(word, word + strlen(word), &v));
    assert_true(v == UINT64_MAX); /* untouched */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reflex_kills_every_process_at_the_kill_threshold),
        cmocka_unit_test(reflex_without_permission_to_kill_only_raises_an_alarm),
        cmocka_unit_test(reflex_excludes_file_cache_from_memory_in_use),
        cmocka_unit_test(reflex_does_not_kill_a_job_whose_memory_is_reclaimable),
        cmocka_unit_test(reflex_does_not_kill_because_of_an_outdated_cache_reading),
        cmocka_unit_test(reflex_does_not_kill_if_memory_stat_is_unreadable),
        cmocka_unit_test(reflex_repeats_its_alarm_only_after_headroom_has_recovered),
        cmocka_unit_test(threshold_change_does_not_clear_the_last_reflex_reading),
        cmocka_unit_test(reflex_samples_more_often_near_the_alarm_threshold),
        cmocka_unit_test(reflex_computes_used_host_memory_from_meminfo),
        cmocka_unit_test(reflex_kills_a_process_that_grows_past_the_tree_limit),
        cmocka_unit_test(reflex_subtracts_shared_memory_from_the_sum_of_rss),
        cmocka_unit_test(reflex_counts_only_anonymous_growth_of_unsampled_process),
        cmocka_unit_test(reflex_ignores_new_shared_pages_until_the_next_full_sample),
        cmocka_unit_test(reflex_growth_rate_is_zero_while_memory_shrinks),
        cmocka_unit_test(process_added_after_a_reflex_kill_is_also_killed),
        cmocka_unit_test(process_removed_from_the_reflex_is_not_killed),
        cmocka_unit_test(reflex_kills_only_the_newest_process_of_a_reused_slot),
        cmocka_unit_test(full_reflex_table_rejects_a_process_and_closes_its_fds),
        cmocka_unit_test(reflex_kills_the_cgroup_with_one_write),
        cmocka_unit_test(memory_of_the_reflex_thread_is_locked),
        cmocka_unit_test(reflex_kills_even_if_its_memory_cannot_be_locked),
        cmocka_unit_test(process_with_a_reflex_thread_can_fork_repeatedly),
        cmocka_unit_test(reflex_thread_is_named_and_blocks_signals),
        cmocka_unit_test(reflex_parser_reads_numbers_from_kernel_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
