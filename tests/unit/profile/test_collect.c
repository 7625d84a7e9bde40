/* Tests receiving tables from real processes and collecting their readings. */
#include "profile/collect.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "mark/mark.h"
#include "profile/fake_table.h"
#include "profile/store.h"

#define WAIT_NS (120 * NS_PER_S)

/* The clock is stopped while a table arrives, so that the arrival time is known exactly. */
static uint64_t stopped_ns; /* Stopped time of the clock in ns; 0 means that the clock runs. */

uint64_t __real_clock_mono_ns(void); /* NOLINT: the linker's name */
uint64_t __wrap_clock_mono_ns(void); /* NOLINT */

uint64_t __wrap_clock_mono_ns(void)
{
    return stopped_ns ? stopped_ns : __real_clock_mono_ns();
}

struct fixture {
    struct loop *loop;
    struct collect *collect;
    char folder[32], path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int dirfd;
    struct fake fake;
    uint64_t now_ns;
};

static struct fixture fixture;

static void start(struct fixture *f, int dirfd)
{
    struct err err = {0};
    assert_int_equal(collect_new(f->loop, f->path, dirfd, &f->collect, &err), 0);
}

static int setup(void **state)
{
    struct fixture *f = &fixture;
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%.31s/marks.heap", f->folder);
    f->dirfd = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(loop_new(&f->loop), 0);
    fake_open(&f->fake, 1);
    f->now_ns = clock_mono_ns();
    f->fake.table->header.start_ns = f->now_ns;
    start(f, f->dirfd);
    *state = f;
    return 0;
}

/* Returns the number of entries in the folder, and removes them if CLEAR is set. */
static size_t count_files(const struct fixture *f, bool clear)
{
    size_t n = 0;
    DIR *dir = opendir(f->folder);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !strstr(e->d_name, ".ebbheap"))
            continue;
        n++;
        if (clear)
            unlinkat(f->dirfd, e->d_name, 0);
    }
    closedir(dir);
    return n;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    stopped_ns = 0;
    collect_free(f->collect);
    loop_free(f->loop);
    fake_close(&f->fake);
    count_files(f, true);
    close(f->dirfd);
    /* The folder is empty, because the socket has been removed as well. */
    assert_int_equal(rmdir(f->folder), 0);
    return 0;
}

static int connect_to(const struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, f->path, strlen(f->path) + 1);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Sends LEN bytes of HELLO with COUNT copies of the descriptor FD. */
static int send_hello(int to, const void *hello, size_t len, int fd, size_t count)
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)hello, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof fd);
        struct cmsghdr *c = &control.align;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof fd);
        for (size_t i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
    }
    return sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -errno;
}

static const struct heap_hello good = {
    .magic = HEAP_TABLE_MAGIC, .version = HEAP_TABLE_VERSION, .pid = 1};

/* Sends the table in the same way as the profiler library inside a process. */
static int send_table(const struct fixture *f)
{
    int fd = connect_to(f);
    int rc = fd >= 0 ? send_hello(fd, &good, sizeof good, f->fake.fd, 1) : -1;
    close(fd);
    return rc;
}

static json_int_t number(const struct fixture *f, const char *key)
{
    json_t *doc = collect_json(f->collect);
    json_int_t n = json_integer_value(json_object_get(doc, key));
    json_decref(doc);
    return n;
}

/* Returns the I-th process of the JSON list as a new object, or NULL. */
static json_t *process(const struct fixture *f, size_t i)
{
    json_t *doc = collect_json(f->collect);
    json_t *p = json_incref(json_array_get(json_object_get(doc, "processes"), i));
    json_decref(doc);
    return p;
}

static size_t processes(const struct fixture *f)
{
    json_t *doc = collect_json(f->collect);
    size_t n = json_array_size(json_object_get(doc, "processes"));
    json_decref(doc);
    return n;
}

static void wait_processes(struct fixture *f, size_t n)
{
    uint64_t end = __real_clock_mono_ns() + WAIT_NS;
    while (processes(f) != n && __real_clock_mono_ns() < end)
        assert_true(loop_once(f->loop, 100) >= 0);
    assert_int_equal(processes(f), n);
}

static void arrive(struct fixture *f)
{
    f->now_ns = stopped_ns = clock_mono_ns();
    assert_int_equal(send_table(f), 0);
    wait_processes(f, 1);
    stopped_ns = 0;
}

static uint64_t after_s(const struct fixture *f, double s)
{
    return f->now_ns + (uint64_t)(s * 1e9);
}

static struct profile *read_file(struct fixture *f, const char *name)
{
    struct profile *p = NULL;
    struct err err = {0};
    int fd = openat(f->dirfd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(store_read(fd, &p, NULL, &err), 0);
    close(fd);
    return p;
}

/* Reads the file of an exited process. Tries again until the file is complete, because collect_free
 * waits for a slow disk only for a limited time. */
static struct profile *read_ended(struct fixture *f, const char *name)
{
    uint64_t end = clock_mono_ns() + WAIT_NS;
    for (;;) {
        struct profile *p = NULL;
        int fd = openat(f->dirfd, name, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        int rc = store_read(fd, &p, NULL, NULL);
        close(fd);
        if (rc == 0 && p->is_ended)
            return p;
        profile_free(p);
        assert_true(clock_mono_ns() < end);
        usleep(10 * 1000);
    }
}

static const char *own_name(const char *suffix)
{
    static char name[48];
    snprintf(name, sizeof name, "heap.%d%s.ebbheap", (int)getpid(), suffix);
    return name;
}

/* Stops collecting, so that everything is on disk. */
static struct profile *read_own(struct fixture *f)
{
    collect_free(f->collect);
    f->collect = NULL;
    return read_ended(f, own_name(""));
}

static void heap_file_of_a_process_is_created_with_its_first_reading(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 1.5));
    assert_int_equal(count_files(f, false), 0);
    collect_tick(f->collect, after_s(f, 2.5));
    assert_int_equal(count_files(f, false), 1);
    json_t *p = process(f, 0);
    /* The pid is the one that the kernel reports, although the message has pid 1. */
    assert_int_equal(json_integer_value(json_object_get(p, "pid")), getpid());
    assert_string_equal(json_string_value(json_object_get(p, "file")), own_name(""));
    assert_true(json_is_true(json_object_get(p, "is_alive")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(p, "cost"), "samples")), 3);
    assert_true(json_integer_value(json_object_get(p, "live_bytes")) > 68 << 20);
    assert_true(json_is_null(
        json_object_get(json_object_get(json_object_get(p, "cost"), "python"), "version")));
    json_decref(p);
    struct profile *profile = read_own(f);
    assert_int_equal(profile->pid, getpid());
    assert_int_equal(profile->n_readings, 2);
    profile_free(profile);
}

static void heap_readings_are_taken_only_when_due(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    for (int i = 0; i <= 100; i++) /* Ten seconds pass in ticks of 0.1 s. */
        collect_tick(f->collect, after_s(f, i * 0.1));
    struct profile *p = read_own(f);
    /* Readings are taken at 2, 3, … 10 s, and at the end. */
    assert_int_equal(p->n_readings, 9 + 1);
    assert_false(p->readings[0].has_step);
    profile_free(p);
}

static struct mark step_mark(const struct fixture *f, double s, int32_t pid, int64_t step)
{
    return (struct mark){
        .t_ns = after_s(f, s), .kind = MARK_STEP, .pid = pid, .has = MARK_HAS_STEP, .step = step};
}

static void due_heap_reading_waits_for_the_next_step(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    struct mark first = step_mark(f, 1, 1, 10), second = step_mark(f, 3.5, 1, 11);
    collect_mark(f->collect, &first);
    for (int i = 0; i <= 34; i++)
        collect_tick(f->collect, after_s(f, i * 0.1));
    assert_int_equal(count_files(f, false), 0);
    collect_mark(f->collect, &second);
    assert_int_equal(count_files(f, false), 1);
    collect_tick(f->collect,
                 after_s(f, 10)); /* The reading is due, but may still wait for a step. */
    collect_tick(f->collect, after_s(f, 16)); /* The reading no longer waits for a step. */
    struct profile *p = read_own(f);
    assert_int_equal(p->n_readings, 3);
    assert_int_equal(p->readings[0].t_ns, second.t_ns);
    assert_int_equal(p->readings[0].step, 11);
    assert_int_equal(p->readings[1].t_ns, after_s(f, 16));
    assert_int_equal(p->readings[1].step, 11);
    profile_free(p);
}

static void heap_of_a_process_that_sends_steps_is_read_at_step_ends(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    struct mark own = step_mark(f, 1, getpid(), 5), other = step_mark(f, 2.5, 1, 900);
    collect_mark(f->collect, &own);
    collect_mark(f->collect, &other); /* The step was sent by another process. */
    own = step_mark(f, 3.5, getpid(), 6);
    collect_mark(f->collect, &own);
    struct profile *p = read_own(f);
    assert_int_equal(p->n_readings, 3);
    assert_int_equal(p->readings[0].step, 5);
    assert_int_equal(p->readings[1].step, 6);
    profile_free(p);
}

static void heap_reading_is_taken_at_the_end_of_the_first_step(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    struct mark first = step_mark(f, 2.3, getpid(), 1), second = step_mark(f, 2.4, getpid(), 2);
    collect_mark(f->collect, &first);
    collect_mark(f->collect, &second);
    struct profile *p = read_own(f);
    assert_int_equal(p->n_readings, 3);
    assert_int_equal(p->readings[1].t_ns, first.t_ns);
    assert_int_equal(p->readings[1].step, 1);
    profile_free(p);
}

static void heap_snapshot_is_taken_at_the_end_of_an_epoch(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    struct mark epoch = {.t_ns = after_s(f, 4.2), .kind = MARK_EPOCH, .pid = 1};
    collect_mark(f->collect, &epoch);
    struct profile *p = read_own(f);
    assert_int_equal(p->n_snapshots, 3);
    assert_int_equal(p->snapshots[1].t_ns, epoch.t_ns);
    profile_free(p);
}

static void reused_pid_gets_a_second_heap_file(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    assert_int_equal(send_table(f), 0);
    wait_processes(f, 2);
    struct profile *first = read_own(f);
    assert_true(first->is_ended);
    assert_int_equal(first->n_readings, 2);
    struct profile *second = read_ended(f, own_name("-2"));
    assert_int_equal(second->n_readings, 1);
    profile_free(first);
    profile_free(second);
}

/* Starts a child that sends the table and waits to be killed. */
static pid_t spawn_child(struct fixture *f)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        if (send_table(f) < 0)
            _exit(1);
        for (int i = 0; i < 600 && getppid() == parent; i++)
            usleep(100 * 1000);
        _exit(0);
    }
    assert_true(pid > 0);
    return pid;
}

static void kill_child(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void killed_process_gets_a_final_heap_reading(void **state)
{
    struct fixture *f = *state;
    char name[48];
    pid_t pid = spawn_child(f);
    f->fake.table->header
        .samples++; /* A sample was taken, but its memory has already been freed. */
    wait_processes(f, 1);
    collect_tick(f->collect, clock_mono_ns() + 3 * NS_PER_S);
    fake_fill(&f->fake); /* The process continued to allocate after the reading. */
    kill_child(pid);
    collect_gone(f->collect, pid, clock_mono_ns() + 4 * NS_PER_S);
    json_t *p = process(f, 0);
    assert_true(json_is_false(json_object_get(p, "is_alive")));
    json_decref(p);
    collect_free(f->collect);
    f->collect = NULL;
    snprintf(name, sizeof name, "heap.%d.ebbheap", (int)pid);
    struct profile *profile = read_ended(f, name);
    assert_int_equal(profile->n_readings, 2);
    assert_int_equal(profile->readings[1].count, 2);
    assert_int_equal(profile->snapshots[profile->n_snapshots - 1].count, 3);
    profile_free(profile);
}

static void wait_number(struct fixture *f, const char *key, json_int_t n)
{
    uint64_t end = clock_mono_ns() + WAIT_NS;
    while (number(f, key) != n && clock_mono_ns() < end)
        assert_true(loop_once(f->loop, 100) >= 0);
    assert_int_equal(number(f, key), n);
}

static void short_lived_process_without_live_memory_has_no_heap_file(void **state)
{
    struct fixture *f = *state;
    pid_t pid = spawn_child(f);
    f->fake.table->header.samples++;
    wait_processes(f, 1);
    kill_child(pid);
    collect_gone(f->collect, pid, clock_mono_ns());
    wait_number(f, "without_file", 1);
    assert_int_equal(processes(f), 0);
    assert_int_equal(count_files(f, false), 0);
}

static void process_whose_heap_table_has_no_samples_has_no_heap_file(void **state)
{
    struct fixture *f = *state;
    pid_t pid = spawn_child(f);
    wait_processes(f, 1);
    collect_tick(f->collect, clock_mono_ns() + 3 * NS_PER_S);
    kill_child(pid);
    collect_gone(f->collect, pid, clock_mono_ns() + 4 * NS_PER_S);
    assert_int_equal(number(f, "without_file"), 0);
    assert_int_equal(count_files(f, false), 0);
}

static void exit_of_a_profiled_process_is_detected_through_a_pidfd(void **state)
{
    struct fixture *f = *state;
    int fd = (int)syscall(434 /* pidfd_open */, getpid(), 0);
    if (fd < 0) {
        print_message("skipped: pidfd_open: %s\n", strerror(errno));
        skip();
    }
    close(fd);
    fake_fill(&f->fake); /* The process has 68 MiB of live memory, enough for a heap file. */
    pid_t pid = spawn_child(f);
    wait_processes(f, 1);
    kill_child(pid);
    uint64_t end = clock_mono_ns() + WAIT_NS;
    while (count_files(f, false) == 0 && clock_mono_ns() < end)
        assert_true(loop_once(f->loop, 100) >= 0);
    assert_int_equal(count_files(f, false), 1);
}

static size_t open_fds(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void invalid_hello_of_a_profiler_leaks_no_descriptor(void **state)
{
    struct fixture *f = *state;
    struct heap_hello bad = good;
    bad.magic[0] = 'x';
    size_t before = open_fds();
    const struct {
        const void *hello;
        size_t len, fds;
    } cases[] = {{&bad, sizeof bad, 1}, {&good, sizeof good, 0}, {&good, 8, 1}, {"x", 1, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = connect_to(f);
        assert_true(fd >= 0);
        assert_int_equal(send_hello(fd, cases[i].hello, cases[i].len, f->fake.fd, cases[i].fds), 0);
        wait_number(f, "not_followed", (json_int_t)i + 1);
        close(fd);
    }
    assert_int_equal(open_fds(), before);
    assert_int_equal(processes(f), 0);
}

static void extra_descriptors_sent_by_a_profiler_are_closed(void **state)
{
    struct fixture *f = *state;
    int fd = connect_to(f);
    assert_int_equal(send_hello(fd, &good, sizeof good, f->fake.fd, 8), 0);
    close(fd);
    size_t before = open_fds();
    wait_processes(f, 1);
    /* One more descriptor is allowed: a pidfd, if the kernel supports pidfds. */
    assert_in_range(open_fds(), before, before + 1);
}

static void silent_profiler_connection_is_closed(void **state)
{
    struct fixture *f = *state;
    char byte;
    int fd = connect_to(f);
    assert_true(fd >= 0);
    assert_true(loop_once(f->loop, 1000) >= 0);
    collect_tick(f->collect, clock_mono_ns() + NS_PER_S);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    collect_tick(f->collect, clock_mono_ns() + 60 * NS_PER_S);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    assert_int_equal(number(f, "not_followed"), 1);
    close(fd);
}

static void many_silent_profiler_connections_do_not_block_others(void **state)
{
    struct fixture *f = *state;
    int silent[100];
    for (int i = 0; i < 100; i++) {
        silent[i] = connect_to(f);
        assert_true(silent[i] >= 0);
        assert_true(loop_once(f->loop, 1000) >= 0);
    }
    arrive(f);
    for (int i = 0; i < 100; i++)
        close(silent[i]);
}

static void heap_table_of_another_version_is_reported_only_once(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    f->fake.table->header.version = 99;
    assert_int_equal(collect_trouble(f->collect, &err), 0);
    assert_int_equal(send_table(f), 0);
    wait_number(f, "not_followed", 1);
    assert_int_equal(collect_trouble(f->collect, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "version 99"));
    assert_int_equal(send_table(f), 0);
    wait_number(f, "not_followed", 2);
    assert_int_equal(collect_trouble(f->collect, &err), 0);
}

static void heap_file_that_cannot_be_created_is_reported_only_once(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    collect_free(f->collect);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC); /* no folder */
    start(f, null);
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    assert_int_equal(collect_trouble(f->collect, &err), -ENOTDIR);
    assert_int_equal(collect_trouble(f->collect, &err), 0);
    json_t *p = process(f, 0);
    assert_true(json_is_null(json_object_get(p, "file")));
    assert_true(json_integer_value(json_object_get(p, "live_bytes")) > 0);
    json_decref(p);
    close(null);
}

struct reported {
    uint64_t sampled, shared, pool, allocated;
    int calls;
};

static void note_figure(void *user, int32_t pid, const char *name, uint64_t value)
{
    struct reported *r = user;
    assert_int_equal(pid, getpid());
    r->calls++;
    *(strcmp(name, "heap_sampled") == 0  ? &r->sampled
      : strcmp(name, "heap_shared") == 0 ? &r->shared
      : strcmp(name, "heap_pool") == 0   ? &r->pool
                                         : &r->allocated) = value;
}

static void private_and_shared_and_allocated_bytes_become_metrics(void **state)
{
    struct fixture *f = *state;
    struct reported r = {0};
    collect_on_figure(f->collect, note_figure, NULL, &r);
    fake_fill(&f->fake);
    f->fake.table->live[fake_live(&f->fake, 2, 8 << 20, 0)].kind_turn = HEAP_KIND_SHARED;
    f->fake.table->header.allocated_bytes = 123 << 20;
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    assert_int_equal(r.calls, 3); /* The process never had a memory pool, so none is reported. */
    assert_true(r.sampled > 68 << 20 && r.sampled < 72 << 20);
    assert_true(r.shared >= 8 << 20 && r.shared < 9 << 20);
    assert_int_equal(r.allocated, 123 << 20);
    collect_tick(f->collect, after_s(f, 2.5));
    assert_int_equal(r.calls, 3);
    f->fake.table->live[3].ptr = 0;
    collect_tick(f->collect, after_s(f, 20));
    assert_int_equal(r.calls, 6); /* Shared memory that was freed is reported as 0. */
    assert_int_equal(r.shared, 0);
}

static void current_heap_state_is_available_if_no_run_folder_exists(void **state)
{
    struct fixture *f = *state;
    collect_free(f->collect);
    start(f, -1);
    fake_fill(&f->fake);
    f->fake.table->header.python_version = 0x030b04f0;
    f->fake.table->header.python_state = HEAP_PYTHON_OK;
    f->fake.table->header.drops[HEAP_DROP_STALE] = 4;
    arrive(f);
    collect_tick(f->collect, after_s(f, 2));
    json_t *p = process(f, 0);
    assert_true(json_integer_value(json_object_get(p, "live_bytes")) > 68 << 20);
    const json_t *python = json_object_get(json_object_get(p, "cost"), "python");
    assert_string_equal(json_string_value(json_object_get(python, "version")), "3.11.4");
    const json_t *drops = json_object_get(json_object_get(p, "cost"), "drops");
    assert_int_equal(json_object_size(drops), 1);
    assert_int_equal(json_integer_value(json_object_get(drops, "stale")), 4);
    json_decref(p);
    assert_int_equal(collect_refresh(f->collect, 0, after_s(f, 3), WAIT_NS), 0);
    assert_int_equal(count_files(f, false), 0);
}

static void requested_heap_reading_includes_processes_never_read_before(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    collect_tick(f->collect, after_s(f, 1));
    assert_int_equal(count_files(f, false), 0);
    assert_int_equal(collect_refresh(f->collect, 0, after_s(f, 1), WAIT_NS), 1);
    assert_int_equal(count_files(f, false), 1);
}

static void requested_heap_reading_is_written_to_the_heap_file(void **state)
{
    struct fixture *f = *state;
    fake_fill(&f->fake);
    arrive(f);
    /* Process 1 is not profiled. */
    assert_int_equal(collect_refresh(f->collect, 1, after_s(f, 1), WAIT_NS), 0);
    assert_int_equal(collect_refresh(f->collect, getpid(), after_s(f, 1), WAIT_NS), 1);
    struct profile *p = read_file(f, own_name(""));
    assert_int_equal(p->n_readings, 1);
    assert_int_equal(p->n_snapshots, 1);
    assert_false(p->is_ended);
    profile_free(p);
    assert_int_equal(collect_refresh(f->collect, 0, after_s(f, 5), WAIT_NS), 1);
    p = read_file(f, own_name(""));
    assert_int_equal(p->n_readings, 2);
    profile_free(p);
}

/* One process sends many tables, one after each exec. */
static void heap_file_with_least_live_bytes_is_removed_at_the_file_limit(void **state)
{
    struct fixture *f = *state;
    enum { TABLES = COLLECT_FILES + 4 };
    fake_fill(&f->fake);
    for (int i = 0; i < TABLES; i++) {
        assert_int_equal(send_table(f), 0);
        uint64_t end = clock_mono_ns() + WAIT_NS;
        size_t expected = i < COLLECT_FILES ? (size_t)i + 1 : COLLECT_FILES + 1;
        while ((processes(f) != expected || number(f, "without_file") < i - COLLECT_FILES) &&
               clock_mono_ns() < end)
            assert_true(loop_once(f->loop, 100) >= 0);
        collect_tick(f->collect, clock_mono_ns());
        /* Each process has more live bytes than the previous one. */
        fake_live(&f->fake, 1, 1 << 20, 0);
    }
    collect_free(f->collect);
    f->collect = NULL;
    assert_int_equal(count_files(f, false), COLLECT_FILES);
    /* The name of the removed file is available again. */
    struct profile *p = read_ended(f, own_name(""));
    assert_true(p->snapshots[0].count > COLLECT_FILES);
    profile_free(p);
    p = read_ended(f, own_name("-64"));
    assert_in_range(p->snapshots[0].count, COLLECT_FILES - 1, COLLECT_FILES + 3);
    profile_free(p);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(heap_file_of_a_process_is_created_with_its_first_reading),
        T(heap_readings_are_taken_only_when_due),
        T(due_heap_reading_waits_for_the_next_step),
        T(heap_of_a_process_that_sends_steps_is_read_at_step_ends),
        T(heap_reading_is_taken_at_the_end_of_the_first_step),
        T(heap_snapshot_is_taken_at_the_end_of_an_epoch),
        T(reused_pid_gets_a_second_heap_file),
        T(killed_process_gets_a_final_heap_reading),
        T(short_lived_process_without_live_memory_has_no_heap_file),
        T(process_whose_heap_table_has_no_samples_has_no_heap_file),
        T(exit_of_a_profiled_process_is_detected_through_a_pidfd),
        T(invalid_hello_of_a_profiler_leaks_no_descriptor),
        T(extra_descriptors_sent_by_a_profiler_are_closed),
        T(silent_profiler_connection_is_closed),
        T(many_silent_profiler_connections_do_not_block_others),
        T(heap_table_of_another_version_is_reported_only_once),
        T(heap_file_that_cannot_be_created_is_reported_only_once),
        T(current_heap_state_is_available_if_no_run_folder_exists),
        T(requested_heap_reading_includes_processes_never_read_before),
        T(requested_heap_reading_is_written_to_the_heap_file),
        T(heap_file_with_least_live_bytes_is_removed_at_the_file_limit),
        T(private_and_shared_and_allocated_bytes_become_metrics),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
