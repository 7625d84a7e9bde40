/* Tests a job's process tree: which processes belong to it, and how a reused pid is detected. Uses
 * child processes, and mock-ups of /proc for states that cannot be produced with the real
 * kernel. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "kit.h"
#include "proc/node.h"
#include "proc/helper.h"

struct watch {
    struct proc_root root;
    struct proc_tree *tree;
    struct notebook seen;
};

static void watch_begin(struct watch *w)
{
    memset(w, 0, sizeof(*w));
    assert_int_equal(proc_root_open("/proc", "/sys/fs/cgroup", &w->root, NULL), 0);
    assert_int_equal(proc_tree_new(&w->root, notebook_write, &w->seen, &w->tree), 0);
}

static void watch_end(struct watch *w)
{
    proc_tree_free(w->tree);
    proc_root_close(&w->root);
}

static void watch_pid(struct watch *w, pid_t pid)
{
    struct err err;
    if (proc_tree_add(w->tree, pid, clock_mono_ns(), &err) < 0)
        fail_msg("%s", err.text);
}

static void walk(struct watch *w)
{
    assert_int_equal(proc_tree_walk(w->tree, clock_mono_ns()), 0);
}

static void tick(struct watch *w)
{
    proc_tree_tick(w->tree, clock_mono_ns());
}

static uint64_t rss_of(const struct proc_node *n)
{
    assert_true(n->sample.read >> SAMPLE_RSS & 1u);
    return n->sample.v[SAMPLE_RSS];
}

static void fork_children(void *count)
{
    for (int i = 0; i < *(int *)count; i++)
        if (fork_tied() == 0)
            sleep_for_ever();
}

static void fork_two_generations(void *arg)
{
    (void)arg;
    int one = 1;
    kid_start(fork_children, &one);
}

/* ---- births and deaths ---- */

static void process_tree_contains_the_root_process_and_its_descendants(void **state)
{
    (void)state;
    struct watch w;
    watch_begin(&w);
    pid_t pid = kid_start(fork_two_generations, NULL);
    watch_pid(&w, pid);
    assert_int_equal(proc_tree_count(w.tree), 3);
    assert_int_equal(w.seen.count[PROCESS_BORN], 3);
    struct proc_node *root = proc_tree_at(w.tree, 0);
    assert_int_equal(root->info.id.pid, pid);
    assert_true(root->is_root);
    assert_int_equal(root->info.ppid, getpid());
    assert_int_equal(root->info.uid, getuid());
    assert_int_equal(proc_tree_at(w.tree, 1)->info.ppid, pid);
    assert_false(proc_tree_at(w.tree, 1)->is_root);
    assert_ptr_equal(proc_tree_find(w.tree, pid), root);
    assert_null(proc_tree_find(w.tree, 1));
    tick(&w);
    assert_true(rss_of(root) > 0);
    kid_end(pid);
    watch_end(&w);
}

struct remote {
    int fork_now; /* The first byte makes the child fork, the second makes the grandchild exit. */
};

static void fork_when_told(void *arg)
{
    struct remote *r = arg;
    char byte;
    if (fork_tied() != 0) /* Only this child continues and follows the commands of the test. */
        return;
    if (read(r->fork_now, &byte, 1) != 1)
        _exit(1);
    pid_t pid = fork_tied();
    if (pid == 0)
        sleep_for_ever();
    if (read(r->fork_now, &byte, 1) != 1)
        _exit(1);
    kid_end(pid);
    sleep_for_ever();
}

static void birth_and_death_of_one_child_have_the_same_slot(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct remote remote = {fds[0]};
    pid_t pid = kid_start(fork_when_told, &remote);
    watch_begin(&w);
    watch_pid(&w, pid);
    assert_int_equal(proc_tree_count(w.tree), 2);
    walk(&w);
    assert_int_equal(w.seen.count[PROCESS_BORN], 2);
    assert_int_equal(write(fds[1], "f", 1), 1);
    EVENTUALLY(w.seen.count[PROCESS_BORN] == 3, walk(&w));
    uint32_t slot = w.seen.slot[PROCESS_BORN];
    assert_int_equal(slot, 2);
    tick(&w);
    assert_int_equal(write(fds[1], "x", 1), 1);
    EVENTUALLY(w.seen.count[PROCESS_DIED] == 1, tick(&w));
    assert_int_equal(w.seen.slot[PROCESS_DIED], slot);
    assert_int_equal(proc_tree_count(w.tree), 2);
    kid_end(pid);
    walk(&w);
    EVENTUALLY(proc_tree_count(w.tree) == 0, walk(&w));
    assert_int_equal(w.seen.count[PROCESS_DIED], 3);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

static void zombie_is_reported_as_dead_and_never_as_newborn(void **state)
{
    (void)state;
    struct watch w;
    watch_begin(&w);
    assert_int_equal(proc_tree_add_below(w.tree, getpid(), clock_mono_ns(), NULL), 0);
    pid_t pid = kid_start(NULL, NULL);
    walk(&w);
    assert_int_equal(w.seen.count[PROCESS_BORN], 1);
    /* The process is not reaped, so it remains among our children as a zombie. */
    kill(pid, SIGKILL);
    EVENTUALLY(w.seen.count[PROCESS_DIED] == 1, tick(&w));
    for (int i = 0; i < 3; i++)
        walk(&w);
    assert_int_equal(w.seen.count[PROCESS_BORN], 1);
    assert_int_equal(proc_tree_count(w.tree), 0);
    struct err err;
    assert_int_equal(proc_tree_add(w.tree, pid, clock_mono_ns(), &err), -ESRCH);
    kid_end(pid);
    watch_end(&w);
}

/* ---- threads ---- */

static void *fork_in_thread(void *arg)
{
    if (fork_tied() == 0)
        sleep_for_ever();
    *(_Atomic int *)arg = 1;
    sleep_for_ever();
}

static void start_forking_thread(void *arg)
{
    (void)arg;
    static _Atomic int forked;
    pthread_t thread;
    if (pthread_create(&thread, NULL, fork_in_thread, &forked) != 0)
        abort();
    while (!forked)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void children_forked_by_any_thread_are_found(void **state)
{
    (void)state;
    struct watch w;
    watch_begin(&w);
    pid_t pid = kid_start(start_forking_thread, NULL);
    watch_pid(&w, pid);
    assert_int_equal(proc_tree_count(w.tree), 2);
    assert_int_equal(proc_tree_at(w.tree, 1)->info.ppid, pid);
    kid_end(pid);
    watch_end(&w);
}

/* The kernel counts resident pages per CPU, so the reported sum is only approximate. */
enum { HELD_BYTES = 16 << 20, REPORTED_BYTES = HELD_BYTES - (1 << 20) };

static void *hold_memory(void *arg)
{
    char *p = mmap(NULL, HELD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    memset(p, 1, HELD_BYTES);
    if (write(*(int *)arg, "", 1) != 1)
        abort();
    sleep_for_ever();
}

/* Ends only the main thread. ASan does not support pthread_exit followed by the raw system call. */
static void leave_a_thread_behind(void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold_memory, arg) != 0)
        abort();
    syscall(SYS_exit, 0);
}

static bool is_zombie(pid_t pid)
{
    char path[64], text[512];
    struct proc_stat st;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof(text));
    return len > 0 && proc_stat_parse(text, (size_t)len, &st) == 0 && st.state == 'Z';
}

static void process_whose_main_thread_has_exited_stays_in_the_tree(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    char byte;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    watch_begin(&w);
    pid_t pid = kid_spawn(leave_a_thread_behind, &fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    watch_pid(&w, pid);
    EVENTUALLY(is_zombie(pid), (void)0);
    tick(&w);
    walk(&w);
    tick(&w);
    assert_int_equal(w.seen.count[PROCESS_DIED], 0);
    assert_true(rss_of(proc_tree_at(w.tree, 0)) >= REPORTED_BYTES);
    assert_int_equal(proc_node_read_status(w.tree, proc_tree_at(w.tree, 0)), 0);
    assert_true(proc_tree_at(w.tree, 0)->sample.v[SAMPLE_ANON] >= REPORTED_BYTES);
    kid_end(pid);
    tick(&w);
    assert_int_equal(w.seen.count[PROCESS_DIED], 1);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

/* ---- exec and names ---- */

static void exec_when_told(void *arg)
{
    struct remote *r = arg;
    char byte;
    if (fork_tied() != 0)
        return;
    if (read(r->fork_now, &byte, 1) == 1)
        execlp("sleep", "sleep", "1000", (char *)NULL);
    _exit(1);
}

static void exec_is_reported_with_the_new_name_and_command_line(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct remote remote = {fds[0]};
    pid_t pid = kid_start(exec_when_told, &remote);
    watch_begin(&w);
    watch_pid(&w, pid);
    walk(&w);
    assert_int_equal(w.seen.count[PROCESS_EXECED], 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    EVENTUALLY(w.seen.count[PROCESS_EXECED] > 0, walk(&w));
    walk(&w);
    assert_int_equal(w.seen.count[PROCESS_EXECED], 1);
    assert_int_equal(proc_tree_count(w.tree), 2);
    const struct process_info *info = &proc_tree_at(w.tree, 1)->info;
    assert_int_equal(info->comm_len, 5);
    assert_memory_equal(info->comm, "sleep", 5);
    /* The names may have been read in the middle of the exec. */
    EVENTUALLY(info->cmdline_len == 10, walk(&w));
    assert_memory_equal(info->cmdline, "sleep\0001000", 10);
    kid_end(pid);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

static void rename_when_told(void *arg)
{
    struct remote *r = arg;
    char byte;
    if (fork_tied() != 0)
        return;
    if (read(r->fork_now, &byte, 1) == 1)
        prctl(PR_SET_NAME, ") R 1\n\033[");
    sleep_for_ever();
}

static void process_name_change_is_not_reported_as_an_exec(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct remote remote = {fds[0]};
    pid_t pid = kid_start(rename_when_told, &remote);
    watch_begin(&w);
    watch_pid(&w, pid);
    assert_int_equal(write(fds[1], "x", 1), 1);
    const struct process_info *info = &proc_tree_at(w.tree, 1)->info;
    EVENTUALLY(info->comm_len == 8 && memcmp(info->comm, ") R 1\n\033[", 8) == 0, walk(&w));
    assert_int_equal(w.seen.count[PROCESS_EXECED], 0);
    kid_end(pid);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

static void exec_is_detected_by_new_name_if_stack_address_is_unreadable(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    mock_begin(&m);
    struct mock_process p = {.pid = 50, .ppid = 1, .start = 9, .comm = "bash", .children = ""};
    mock_put(&m, &p);
    mock_write(&m, 50, "cmdline", "bash", 5);
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    p.comm = "worker/0";
    mock_put(&m, &p);
    assert_int_equal(proc_tree_walk(tree, 2), 0);
    assert_int_equal(seen.count[PROCESS_EXECED], 0);
    p.comm = "python3";
    mock_put(&m, &p);
    mock_write(&m, 50, "cmdline", "python3\0t.py", 13);
    assert_int_equal(proc_tree_walk(tree, 3), 0);
    assert_int_equal(seen.count[PROCESS_EXECED], 1);
    proc_tree_free(tree);
    mock_end(&m);
}

/* ---- orphans ---- */

static void orphan_when_told(void *arg)
{
    struct remote *r = arg;
    if (fork_tied() != 0)
        return;
    if (fork_loose() == 0)
        sleep_for_ever();
    char byte;
    _exit(read(r->fork_now, &byte, 1) == 1 ? 0 : 1);
}

static void orphan_stays_in_the_process_tree_with_a_new_parent(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    struct remote remote = {fds[0]};
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t pid = kid_start(orphan_when_told, &remote);
    watch_begin(&w);
    watch_pid(&w, pid);
    EVENTUALLY(proc_tree_count(w.tree) == 3, walk(&w));
    int32_t parent = proc_tree_at(w.tree, 1)->info.id.pid;
    int32_t orphan = proc_tree_at(w.tree, 2)->info.id.pid;
    assert_int_equal(write(fds[1], "x", 1), 1);
    /* A walk during the exit of the parent may report only one of the two events, so the walk is
     * repeated. */
    EVENTUALLY(w.seen.count[PROCESS_REPARENTED] == 1 && w.seen.count[PROCESS_DIED] == 1, walk(&w));
    assert_int_equal(w.seen.pid[PROCESS_REPARENTED], orphan);
    assert_int_equal(proc_tree_find(w.tree, orphan)->info.ppid, getpid());
    assert_int_equal(w.seen.pid[PROCESS_DIED], parent);
    kid_end(orphan);
    kid_end(pid);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

static void daemonise(void *arg)
{
    if (fork_tied() == 0) {
        setsid();
        if (fork_loose() == 0) {
            pid_t self = getpid();
            if (write(*(int *)arg, &self, sizeof(self)) != sizeof(self))
                abort();
            sleep_for_ever();
        }
        _exit(0);
    }
    wait(NULL);
}

static void daemon_stays_in_the_tree_as_a_child_of_the_subreaper(void **state)
{
    (void)state;
    struct watch w;
    int fds[2];
    pid_t daemon_pid;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    watch_begin(&w);
    assert_int_equal(proc_tree_add_below(w.tree, getpid(), clock_mono_ns(), NULL), 0);
    pid_t pid = kid_start(daemonise, &fds[1]);
    assert_int_equal(read(fds[0], &daemon_pid, sizeof(daemon_pid)), sizeof(daemon_pid));
    EVENTUALLY(proc_tree_find(w.tree, daemon_pid) != NULL &&
                   proc_tree_find(w.tree, daemon_pid)->info.ppid == getpid(),
               walk(&w));
    assert_non_null(proc_tree_find(w.tree, pid));
    assert_null(proc_tree_find(w.tree, getpid()));
    assert_int_equal(proc_tree_count(w.tree), 2);
    kid_end(daemon_pid);
    kid_end(pid);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(fds[0]);
    close(fds[1]);
    watch_end(&w);
}

/* ---- reused pids ---- */

static void expect_pid_reuse(size_t fd_budget)
{
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 1, .start = 9, .children = "60 "});
    mock_put(&m, &(struct mock_process){
                     .pid = 60, .ppid = 50, .start = 10, .rss_pages = 5, .children = ""});
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    proc_tree_set_fd_budget(tree, fd_budget);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 2);
    uint32_t old_slot = proc_tree_find(tree, 60)->slot;

    mock_remove(&m, 60);
    mock_put(&m, &(struct mock_process){
                     .pid = 60, .ppid = 50, .start = 11, .rss_pages = 7, .children = ""});
    assert_int_equal(proc_tree_walk(tree, 2), 0);
    assert_int_equal(seen.count[PROCESS_DIED], 1);
    assert_int_equal(seen.slot[PROCESS_DIED], old_slot);
    assert_int_equal(seen.count[PROCESS_BORN], 3);
    assert_int_equal(proc_tree_count(tree), 2);
    assert_int_equal(proc_tree_find(tree, 60)->info.id.start_ticks, 11);
    assert_int_not_equal(proc_tree_find(tree, 60)->slot, old_slot);

    /* The pid is reused again. This time a tick detects the reuse, and must not read the memory of
     * the new process. */
    mock_remove(&m, 60);
    mock_put(&m, &(struct mock_process){
                     .pid = 60, .ppid = 1, .start = 12, .rss_pages = 9, .children = ""});
    proc_tree_tick(tree, 3);
    assert_int_equal(seen.count[PROCESS_DIED], 2);
    assert_null(proc_tree_find(tree, 60));
    proc_tree_free(tree);
    mock_end(&m);
}

static void reused_pid_is_reported_as_one_death_and_one_birth(void **state)
{
    (void)state;
    expect_pid_reuse(1000);
}

static void reused_pid_is_detected_even_if_no_fds_are_kept_open(void **state)
{
    (void)state;
    expect_pid_reuse(0);
}

/* Simulates a process that holds its memory lock, so that reading its command line blocks. */
static void process_tree_walk_does_not_wait_for_a_command_line(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    char path[128];
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 1, .start = 9, .children = "60 "});
    mock_put(&m, &(struct mock_process){.pid = 60, .ppid = 50, .start = 10, .children = ""});
    snprintf(path, sizeof(path), "%s/60/cmdline", m.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int pipe = open(path, O_RDWR | O_CLOEXEC);
    assert_true(pipe >= 0);
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 2);
    assert_int_equal(proc_tree_find(tree, 60)->info.cmdline_len, 0);
    /* No further calls that could block are made, but processes are still found. */
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 1, .start = 9, .children = "60 70 "});
    mock_put(&m, &(struct mock_process){.pid = 70, .ppid = 50, .start = 11, .children = ""});
    for (uint64_t now = 2; now < 100; now++)
        assert_int_equal(proc_tree_walk(tree, now), 0);
    assert_int_equal(proc_tree_count(tree), 3);
    assert_true(proc_helper_is_busy(proc_tree_helper(tree)));
    assert_int_equal(write(pipe, "a\0b", 3), 3);
    proc_tree_free(tree);
    close(pipe);
    mock_end(&m);
}

/* Forks a child with the pid WANTED, which requires root. Returns -1 if this fails. */
static pid_t fork_as(pid_t wanted)
{
    struct clone_args args = {
        .exit_signal = SIGCHLD,
        .set_tid = (uintptr_t)&wanted,
        .set_tid_size = 1,
    };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep_for_ever();
    }
    return pid;
}

static void pid_reused_by_the_kernel_is_tracked_as_a_new_process(void **state)
{
    (void)state;
    struct watch w;
    watch_begin(&w);
    pid_t old = kid_start(NULL, NULL);
    watch_pid(&w, old);
    struct process_id id = proc_tree_at(w.tree, 0)->info.id;
    kid_end(old);
    /* Start times have a resolution of 10 ms. */
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    pid_t pid = fork_as(old);
    /* Without root, or if the pid is taken, the test only checks that the old process is reported
     * as dead. */
    if (pid < 0)
        pid = kid_start(NULL, NULL);
    tick(&w);
    assert_int_equal(w.seen.count[PROCESS_DIED], 1);
    watch_pid(&w, pid);
    assert_int_equal(proc_tree_count(w.tree), 1);
    assert_int_not_equal(proc_tree_at(w.tree, 0)->info.id.start_ticks, id.start_ticks);
    kid_end(pid);
    watch_end(&w);
}

/* ---- many processes ---- */

#ifdef __SANITIZE_ADDRESS__
/* Under a sanitizer a fork takes ten times as long, so the test uses fewer processes. */
enum { MANY = 400 };
#else
enum { MANY = 2000 };
#endif

/* Forks MANY processes, or as many as possible, because a container may limit their number. */
static void fork_many(void *made)
{
    for (int i = 0; i < MANY; i++) {
        pid_t parent = getpid(), pid = fork();
        if (pid < 0)
            return;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(0);
            sleep_for_ever();
        }
        ++*(int *)made;
    }
}

static void each_of_many_processes_is_found_exactly_once(void **state)
{
    (void)state;
    struct watch w;
    struct rlimit old;
    int *made =
        mmap(NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(made, MAP_FAILED);
    pid_t pid = kid_start(fork_many, made);
    if (*made < MANY) {
        assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
        kid_end(pid);
        while (wait(NULL) > 0) /* Later tests need the process slots that this test has used. */
            ;
        assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
        print_message("skipped: only %d processes are allowed here\n", *made);
        skip();
    }
    assert_int_equal(munmap(made, sizeof(*made)), 0);
    assert_int_equal(proc_raise_nofile(&old), 0);
    watch_begin(&w);
    watch_pid(&w, pid);
    EVENTUALLY(proc_tree_count(w.tree) == MANY + 1, walk(&w));
    walk(&w);
    tick(&w);
    assert_int_equal(w.seen.count[PROCESS_BORN], MANY + 1);
    assert_int_equal(w.seen.count[PROCESS_DIED], 0);
    for (size_t i = 0; i < proc_tree_count(w.tree); i++)
        assert_true(proc_tree_at(w.tree, i)->sample.read & 1u << SAMPLE_RSS);
    size_t killed = 0;
    for (size_t i = 1; i < proc_tree_count(w.tree); i += 2, killed++)
        kill(proc_tree_at(w.tree, i)->info.id.pid, SIGKILL);
    EVENTUALLY(proc_tree_count(w.tree) == MANY + 1 - killed, tick(&w));
    walk(&w);
    assert_int_equal(w.seen.count[PROCESS_DIED], killed);
    assert_int_equal(w.seen.count[PROCESS_BORN], MANY + 1);
    kid_end(pid);
    EVENTUALLY(proc_tree_count(w.tree) == 0, walk(&w));
    watch_end(&w);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static int watch_with_few_fds(void *arg)
{
    enum { KIDS = 60 };
    struct proc_root root;
    struct proc_tree *tree;
    struct notebook seen = {0};
    int count = KIDS;
    /* Closes files that the caller of the test program has left open. */
    syscall(SYS_close_range, 3, ~0U, 0);
    pid_t pid = kid_start(fork_children, &count);
    struct rlimit few;
    if (getrlimit(RLIMIT_NOFILE, &few) < 0)
        return 1;
    if (few.rlim_max > *(rlim_t *)arg)
        few.rlim_max = *(rlim_t *)arg;
    few.rlim_cur = few.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &few) < 0 || proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, notebook_write, &seen, &tree) < 0)
        return 1;
    if (proc_tree_add(tree, pid, 1, NULL) < 0 || proc_tree_count(tree) != KIDS + 1)
        return 2;
    if (proc_tree_walk(tree, 2) < 0)
        return 3;
    proc_tree_tick(tree, 2);
    for (size_t i = 0; i < proc_tree_count(tree); i++) {
        struct proc_node *n = proc_tree_at(tree, i);
        if (!(n->sample.read & 1u << SAMPLE_RSS) || proc_node_read_status(tree, n) < 0)
            return 4;
    }
    kill(proc_tree_at(tree, KIDS)->info.id.pid, SIGKILL);
    for (int i = 0; i < 6000 && seen.count[PROCESS_DIED] == 0; i++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        proc_tree_tick(tree, 3);
    }
    proc_tree_walk(tree, 4);
    if (seen.count[PROCESS_DIED] != 1 || seen.count[PROCESS_BORN] != KIDS + 1)
        return 5;
    proc_tree_free(tree);
    proc_root_close(&root);
    kid_end(pid);
    return 0;
}

static void process_tree_is_complete_even_if_few_fds_are_available(void **state)
{
    (void)state;
    rlim_t limits[] = {16, 128 + 50, 4096};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        assert_int_equal(in_child(watch_with_few_fds, &limits[i]), 0);
}

static int use_up_all_fds(void *arg)
{
    (void)arg;
    struct proc_root root;
    struct proc_tree *tree;
    struct notebook seen = {0};
    int count = 3;
    pid_t pid = kid_start(fork_children, &count);
    if (proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, notebook_write, &seen, &tree) < 0)
        return 1;
    proc_tree_set_fd_budget(tree, 0);
    if (proc_tree_add(tree, pid, 1, NULL) < 0 || proc_tree_count(tree) != 4)
        return 2;
    struct rlimit none = {3, 3};
    if (setrlimit(RLIMIT_NOFILE, &none) < 0)
        return 3;
    proc_tree_clear_read(tree);
    proc_tree_tick(tree, 2);
    if (proc_tree_walk(tree, 2) < 0)
        return 4;
    if (proc_tree_count(tree) != 4 || seen.count[PROCESS_DIED] != 0)
        return 5;
    const struct sample *s = &proc_tree_at(tree, 0)->sample;
    if ((s->read & 1u << SAMPLE_RSS) || !(s->stale & 1u << SAMPLE_RSS))
        return 6;
    kid_end(pid);
    return 0;
}

static void process_readings_become_stale_if_no_fd_is_free(void **state)
{
    (void)state;
    assert_int_equal(in_child(use_up_all_fds, NULL), 0);
}

static void raising_the_open_file_limit_returns_the_previous_limit(void **state)
{
    (void)state;
    struct rlimit before, old, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(proc_raise_nofile(&old), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(old.rlim_cur, before.rlim_cur);
    assert_int_equal(now.rlim_cur, before.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- recorded and simulated machines ---- */

static void process_tree_handles_hostile_process_names(void **state)
{
    (void)state;
    struct proc_root root;
    struct notebook seen = {0};
    struct proc_tree *tree;
    assert_int_equal(proc_root_open("tests/proc-fixtures/tree-hostile", NULL, &root, NULL), 0);
    assert_int_equal(proc_tree_new(&root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 26751, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 3);
    assert_memory_equal(proc_tree_at(tree, 0)->info.comm, ") R 1 1 1", 9);
    assert_memory_equal(proc_tree_at(tree, 1)->info.comm, "x\n\033[2Jy", 7);
    assert_memory_equal(proc_tree_at(tree, 2)->info.comm, "(((", 3);
    assert_int_equal(proc_tree_at(tree, 2)->info.ppid, 26764);
    proc_tree_tick(tree, 2);
    assert_true(rss_of(proc_tree_at(tree, 2)) > 1 << 20);
    assert_int_equal(proc_node_read_pss(tree, proc_tree_at(tree, 0)), 0);
    proc_tree_free(tree);
    proc_root_close(&root);
}

static void process_tree_uses_ppid_if_there_are_no_children_files(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 5, .ppid = 1, .start = 1});
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 5, .start = 9});
    mock_put(&m, &(struct mock_process){.pid = 40, .ppid = 50, .start = 10});
    mock_put(&m, &(struct mock_process){.pid = 30, .ppid = 40, .start = 11, .threads = 4});
    mock_put(&m, &(struct mock_process){.pid = 20, .ppid = 30, .start = 12});
    mock_write(&m, 0, "12monkeys/stat", "", 0); /* A name that starts with digits is not a pid. */
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 4);
    mock_put(&m, &(struct mock_process){.pid = 21, .ppid = 20, .start = 13});
    assert_int_equal(proc_tree_walk(tree, 2), 0);
    assert_int_equal(proc_tree_count(tree), 5);
    assert_null(proc_tree_find(tree, 5));
    proc_tree_free(tree);
    mock_end(&m);
}

static void whole_machine_tree_contains_every_process_with_memory(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 1, .start = 1});
    mock_put(&m, &(struct mock_process){.pid = 2, .start = 1, .no_memory = true});
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 1, .start = 9});
    mock_put(&m, &(struct mock_process){
                     .pid = 60, .ppid = 1, .start = 9, .state = 'Z', .no_memory = true});
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add_all(tree, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 2);
    mock_put(&m, &(struct mock_process){.pid = 70, .ppid = 50, .start = 10});
    mock_remove(&m, 50);
    assert_int_equal(proc_tree_walk(tree, 2), 0);
    assert_int_equal(proc_tree_count(tree), 2);
    assert_non_null(proc_tree_find(tree, 70));
    assert_int_equal(seen.pid[PROCESS_DIED], 50);
    proc_tree_free(tree);
    mock_end(&m);
}

static void cyclic_parents_do_not_cause_an_endless_loop(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    static const char torch[] =
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /usr/lib/libtorch_cpu.so\n";
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 50, .ppid = 60, .start = 9, .children = "60 50 "});
    mock_put(&m, &(struct mock_process){.pid = 60, .ppid = 50, .start = 9, .children = "50"});
    mock_write(&m, 50, "cmdline", "python3\0train.py", 17);
    mock_write(&m, 50, "maps", torch, sizeof(torch) - 1);
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    assert_int_equal(proc_tree_count(tree), 2);
    assert_int_equal(proc_tree_walk(tree, 2), 0);
    proc_tree_free(tree);
    mock_end(&m);
}

static void role_becomes_main_when_a_training_library_is_mapped(void **state)
{
    (void)state;
    struct mock m;
    struct notebook seen = {0};
    struct proc_tree *tree;
    static const char torch[] =
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /usr/lib/python3.11/libtorch_cpu.so\n";
    struct mock_process trainer = {
        .pid = 60, .ppid = 50, .start = 9, .children = "", .comm = "python3"};
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){
                     .pid = 50, .ppid = 1, .start = 9, .children = "60 ", .comm = "uv"});
    mock_put(&m, &trainer);
    mock_write(&m, 50, "cmdline", "uv\0run\0train.py", 16);
    mock_write(&m, 60, "cmdline", "python3\0train.py", 17);
    mock_write(&m, 60, "maps", "", 0);
    assert_int_equal(proc_tree_new(&m.root, notebook_write, &seen, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 50, 1, NULL), 0);
    assert_int_equal(proc_tree_find(tree, 50)->info.role, ROLE_LAUNCHER);
    size_t before = seen.count[PROCESS_ROLE];
    mock_write(&m, 60, "maps", torch, sizeof(torch) - 1);
    trainer.size_bytes = 900u << 20;
    mock_put(&m, &trainer);
    assert_int_equal(proc_tree_walk(tree, 100 * NS_PER_S), 0);
    assert_int_equal(proc_tree_find(tree, 60)->info.role, ROLE_MAIN);
    assert_int_equal(proc_tree_find(tree, 50)->info.role, ROLE_LAUNCHER);
    assert_true(seen.count[PROCESS_ROLE] >= before);
    proc_tree_free(tree);
    mock_end(&m);
}

/* ---- rejected processes ---- */

static void process_tree_rejects_an_unknown_pid(void **state)
{
    (void)state;
    struct watch w;
    struct err err;
    watch_begin(&w);
    assert_int_equal(proc_tree_add(w.tree, 2147483647, 1, &err), -ESRCH);
    assert_non_null(strstr(err.text, "2147483647"));
    assert_int_equal(proc_tree_add(w.tree, 0, 1, &err), -ESRCH);
    assert_int_equal(proc_tree_add(w.tree, -5, 1, &err), -ESRCH);
    assert_non_null(strstr(err.text, "-5"));
    assert_int_equal(proc_tree_add_below(w.tree, 2147483647, 1, &err), -ESRCH);
    assert_int_equal(proc_tree_count(w.tree), 0);
    watch_end(&w);
}

static int look_at_strangers(void *arg)
{
    struct proc_root root;
    struct proc_tree *tree;
    struct notebook seen = {0};
    struct err err = {{0}};
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", *(pid_t *)arg);
    if (proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, notebook_write, &seen, &tree) < 0)
        return 1;
    if (proc_tree_add(tree, *(pid_t *)arg, 1, &err) != -EACCES)
        return 2;
    if (strstr(err.text, pid) == NULL || strstr(err.text, "root") == NULL)
        return 3;
    if (proc_tree_count(tree) != 0 || seen.count[PROCESS_BORN] != 0)
        return 4;
    /* A descendant that belongs to another user (sudo) is accepted, but has fewer readings than a
     * process of this user. */
    if (proc_tree_add_all(tree, 1, &err) < 0)
        return 5;
    struct proc_node *n = proc_tree_find(tree, *(pid_t *)arg);
    if (n == NULL || !sample_has(&n->sample, SAMPLE_RSS) || n->info.uid != 0)
        return 6;
    if (proc_node_read_pss(tree, n) != -EACCES)
        return 7;
    proc_tree_free(tree);
    proc_root_close(&root);
    return 0;
}

static void error_for_a_process_of_another_user_contains_pid_and_user(void **state)
{
    (void)state;
    if (!has_strangers()) {
        print_message("skipped: there is no process of another user\n");
        skip();
    }
    pid_t stranger = geteuid() == 0 ? kid_start(NULL, NULL) : 1;
    assert_int_equal(as_nobody(look_at_strangers, &stranger), 0);
    if (geteuid() == 0)
        kid_end(stranger);
}

static void *tell_tid(void *arg)
{
    *(_Atomic pid_t *)arg = (pid_t)syscall(SYS_gettid);
    sleep_for_ever();
}

static int look_at_thread(void *arg)
{
    (void)arg;
    _Atomic pid_t tid = 0;
    pthread_t thread;
    struct proc_root root;
    struct proc_tree *tree;
    struct err err;
    char self[16];
    snprintf(self, sizeof(self), "process %d", getpid());
    if (pthread_create(&thread, NULL, tell_tid, &tid) != 0)
        return 1;
    while (tid == 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, NULL, NULL, &tree) < 0)
        return 1;
    if (proc_tree_add(tree, tid, 1, &err) != -ESRCH)
        return 2;
    return strstr(err.text, self) != NULL ? 0 : 3;
}

static void process_tree_error_for_a_thread_id_contains_the_process_id(void **state)
{
    (void)state;
    assert_int_equal(in_child(look_at_thread, NULL), 0);
}

static void process_tree_rejects_a_kernel_thread(void **state)
{
    (void)state;
    struct mock m;
    struct proc_tree *tree;
    struct err err;
    mock_begin(&m);
    mock_put(&m, &(struct mock_process){.pid = 2, .start = 1, .no_memory = true, .children = ""});
    assert_int_equal(proc_tree_new(&m.root, NULL, NULL, &tree), 0);
    assert_int_equal(proc_tree_add(tree, 2, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "kernel"));
    /* A process whose main thread is exiting reports no memory, but is not a kernel thread. */
    mock_put(&m, &(struct mock_process){
                     .pid = 3, .start = 1, .no_memory = true, .threads = 2, .children = ""});
    assert_int_equal(proc_tree_add(tree, 3, 1, &err), 0);
    proc_tree_free(tree);
    mock_end(&m);
}

/* ---- readings ---- */

static void statm_and_status_and_smaps_rollup_agree_on_memory(void **state)
{
    (void)state;
    struct watch w;
    watch_begin(&w);
    pid_t pid = kid_start(NULL, NULL);
    watch_pid(&w, pid);
    struct proc_node *n = proc_tree_at(w.tree, 0);
    tick(&w);
    assert_int_equal(proc_node_read_status(w.tree, n), 0);
    assert_int_equal(proc_node_read_pss(w.tree, n), 0);
    const uint64_t *v = n->sample.v;
    uint64_t sum = v[SAMPLE_ANON] + v[SAMPLE_FILE] + v[SAMPLE_SHMEM];
    /* The kernel counts these values per CPU, so they are only approximate. */
    assert_in_range(sum, v[SAMPLE_RSS] / 2, v[SAMPLE_RSS] * 2);
    assert_true(v[SAMPLE_PSS] > 0 && v[SAMPLE_PSS] <= v[SAMPLE_RSS] * 2);
    assert_true(v[SAMPLE_PEAK] > 0);
    proc_tree_clear_read(w.tree);
    tick(&w);
    assert_int_equal(n->sample.read, 1u << SAMPLE_RSS);
    assert_true(sample_has(&n->sample, SAMPLE_PSS));
    kid_end(pid);
    assert_int_equal(proc_node_read_status(w.tree, n), -ESRCH);
    assert_int_equal(proc_node_read_pss(w.tree, n), -ESRCH);
    assert_int_equal(proc_node_open(w.tree, n, "maps", O_RDONLY), -ESRCH);
    watch_end(&w);
}

/* ---- memory with shared pages counted once ---- */

struct figures {
    struct mock m;
    struct proc_tree *tree;
};

static void figures_begin(struct figures *f, const char *meminfo)
{
    mock_begin(&f->m);
    if (meminfo != NULL)
        mock_write(&f->m, 0, "meminfo", meminfo, strlen(meminfo));
    mock_put(&f->m, &(struct mock_process){.pid = 10, .ppid = 1, .start = 1, .children = "11 12 "});
    mock_put(&f->m, &(struct mock_process){.pid = 11, .ppid = 10, .start = 1, .children = ""});
    mock_put(&f->m, &(struct mock_process){.pid = 12, .ppid = 10, .start = 1, .children = ""});
    assert_int_equal(proc_tree_new(&f->m.root, NULL, NULL, &f->tree), 0);
    assert_int_equal(proc_tree_add(f->tree, 10, 1, NULL), 0);
    assert_int_equal(proc_tree_count(f->tree), 3);
}

static void figures_end(struct figures *f)
{
    proc_tree_free(f->tree);
    mock_end(&f->m);
}

static void put(struct figures *f, size_t i, unsigned field, uint64_t bytes)
{
    sample_put(&proc_tree_at(f->tree, i)->sample, field, bytes);
}

static void expect_bounds(struct figures *f, uint64_t low, uint64_t high)
{
    struct proc_tree_memory m;
    proc_tree_memory(f->tree, &m);
    assert_true(m.known);
    assert_int_equal(m.low_bytes, low);
    assert_int_equal(m.high_bytes, high);
}

static void unmeasured_tree_memory_ranges_from_largest_to_total_rss(void **state)
{
    (void)state;
    struct figures f;
    figures_begin(&f, NULL);
    put(&f, 0, SAMPLE_RSS, 1000);
    put(&f, 1, SAMPLE_RSS, 600);
    put(&f, 2, SAMPLE_RSS, 500);
    expect_bounds(&f, 1000, 2100);
    figures_end(&f);
}

static void unique_memory_raises_the_lower_bound_of_tree_memory(void **state)
{
    (void)state;
    struct figures f;
    struct proc_tree_memory m;
    figures_begin(&f, NULL);
    put(&f, 0, SAMPLE_RSS, 1000);
    put(&f, 1, SAMPLE_RSS, 600);
    put(&f, 2, SAMPLE_RSS, 500);
    put(&f, 0, SAMPLE_UNIQUE, 300); /* 700 bytes are shared */
    expect_bounds(&f, 300 + 700, 2100);
    put(&f, 1, SAMPLE_UNIQUE, 100); /* 500 bytes are shared */
    expect_bounds(&f, 400 + 700, 2100);
    put(&f, 2, SAMPLE_UNIQUE, 500); /* no bytes are shared */
    expect_bounds(&f, 900 + 700, 2100);
    proc_tree_memory(f.tree, &m);
    assert_int_equal(m.unique_bytes, 900);
    assert_int_equal(m.unique_known, 3);
    assert_int_equal(m.rss_sum_bytes, 2100);
    figures_end(&f);
}

static void tree_memory_bounds_can_exclude_file_pages(void **state)
{
    (void)state;
    struct figures f;
    struct proc_tree_memory m;
    figures_begin(&f, NULL);
    put(&f, 0, SAMPLE_RSS, 1000);
    put(&f, 0, SAMPLE_SHMEM, 200);
    put(&f, 0, SAMPLE_UNIQUE, 700);
    /* 1000 bytes consist of 300 anonymous bytes, 200 bytes of shared memory and 500 bytes of file
     * pages. */
    node_of(proc_tree_at(f.tree, 0))->anon_bytes = 300;
    /* At least 250 bytes of the file pages are unique. */
    node_of(proc_tree_at(f.tree, 0))->unique_file_bytes = 450;
    put(&f, 1, SAMPLE_RSS, 600);
    put(&f, 1, SAMPLE_UNIQUE, 600);
    node_of(proc_tree_at(f.tree, 1))->anon_bytes = 600;
    /* The third process has only file pages and has not been measured. */
    put(&f, 2, SAMPLE_RSS, 500);
    node_of(proc_tree_at(f.tree, 2))->anon_bytes = 0;
    proc_tree_memory(f.tree, &m);
    assert_int_equal(m.low_bytes, 700 + 600 + 500);
    assert_int_equal(m.low_without_files_bytes, 450 + 600 + 50);
    assert_int_equal(m.sum_without_files_bytes, 500 + 600);
    assert_int_equal(m.shared_sum_bytes, 700 + 500);
    figures_end(&f);
}

static void bounds_of_tree_memory_are_equal_if_nothing_is_shared(void **state)
{
    (void)state;
    struct figures f;
    figures_begin(&f, NULL);
    for (size_t i = 0; i < 3; i++) {
        put(&f, i, SAMPLE_RSS, 1000);
        put(&f, i, SAMPLE_UNIQUE, 1000);
    }
    expect_bounds(&f, 3000, 3000);
    figures_end(&f);
}

static void upper_bound_of_tree_memory_is_capped_at_machine_memory(void **state)
{
    (void)state;
    struct figures f;
    figures_begin(&f, "MemTotal: 100 kB\nMemAvailable: 9 kB\nAnonPages: 10 kB\nMapped: 2 kB\n");
    for (size_t i = 0; i < 3; i++) {
        /* The processes share all their pages except 100 bytes each. */
        put(&f, i, SAMPLE_RSS, 10 * 1024);
        put(&f, i, SAMPLE_UNIQUE, 100);
    }
    expect_bounds(&f, 300 + 10 * 1024 - 100, 12 * 1024);
    /* meminfo may be outdated, but the upper bound is never below the lower bound. */
    put(&f, 0, SAMPLE_RSS, 20 * 1024);
    expect_bounds(&f, 300 + 20 * 1024 - 100, 300 + 20 * 1024 - 100);
    figures_end(&f);
}

static void outdated_unique_memory_is_capped_at_resident_memory(void **state)
{
    (void)state;
    struct figures f;
    figures_begin(&f, NULL);
    put(&f, 0, SAMPLE_RSS, 100);
    put(&f, 0, SAMPLE_UNIQUE, 900);
    put(&f, 1, SAMPLE_RSS, 50);
    put(&f, 2, SAMPLE_RSS, 0);
    expect_bounds(&f, 150, 150);
    figures_end(&f);
}

static void bounds_of_tree_memory_are_sum_of_pss_if_all_pss_is_current(void **state)
{
    (void)state;
    struct figures f;
    figures_begin(&f, NULL);
    for (size_t i = 0; i < 3; i++) {
        put(&f, i, SAMPLE_RSS, 1000);
        put(&f, i, SAMPLE_PSS, 400);
    }
    expect_bounds(&f, 1200, 1200);
    proc_tree_at(f.tree, 1)->sample.read &= ~(1u << SAMPLE_PSS);
    expect_bounds(&f, 1000, 3000);
    figures_end(&f);
}

static void memory_of_an_empty_process_tree_is_unknown(void **state)
{
    (void)state;
    struct watch w;
    struct proc_tree_memory m;
    watch_begin(&w);
    proc_tree_memory(w.tree, &m);
    assert_false(m.known);
    assert_int_equal(m.high_bytes, 0);
    proc_tree_free(NULL);
    watch_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_tree_contains_the_root_process_and_its_descendants),
        cmocka_unit_test(birth_and_death_of_one_child_have_the_same_slot),
        cmocka_unit_test(zombie_is_reported_as_dead_and_never_as_newborn),
        cmocka_unit_test(children_forked_by_any_thread_are_found),
        cmocka_unit_test(process_whose_main_thread_has_exited_stays_in_the_tree),
        cmocka_unit_test(exec_is_reported_with_the_new_name_and_command_line),
        cmocka_unit_test(process_name_change_is_not_reported_as_an_exec),
        cmocka_unit_test(exec_is_detected_by_new_name_if_stack_address_is_unreadable),
        cmocka_unit_test(orphan_stays_in_the_process_tree_with_a_new_parent),
        cmocka_unit_test(daemon_stays_in_the_tree_as_a_child_of_the_subreaper),
        cmocka_unit_test(process_tree_walk_does_not_wait_for_a_command_line),
        cmocka_unit_test(reused_pid_is_reported_as_one_death_and_one_birth),
        cmocka_unit_test(reused_pid_is_detected_even_if_no_fds_are_kept_open),
        cmocka_unit_test(pid_reused_by_the_kernel_is_tracked_as_a_new_process),
        cmocka_unit_test(each_of_many_processes_is_found_exactly_once),
        cmocka_unit_test(process_tree_is_complete_even_if_few_fds_are_available),
        cmocka_unit_test(process_readings_become_stale_if_no_fd_is_free),
        cmocka_unit_test(raising_the_open_file_limit_returns_the_previous_limit),
        cmocka_unit_test(process_tree_handles_hostile_process_names),
        cmocka_unit_test(process_tree_uses_ppid_if_there_are_no_children_files),
        cmocka_unit_test(whole_machine_tree_contains_every_process_with_memory),
        cmocka_unit_test(cyclic_parents_do_not_cause_an_endless_loop),
        cmocka_unit_test(role_becomes_main_when_a_training_library_is_mapped),
        cmocka_unit_test(process_tree_rejects_an_unknown_pid),
        cmocka_unit_test(error_for_a_process_of_another_user_contains_pid_and_user),
        cmocka_unit_test(process_tree_error_for_a_thread_id_contains_the_process_id),
        cmocka_unit_test(process_tree_rejects_a_kernel_thread),
        cmocka_unit_test(statm_and_status_and_smaps_rollup_agree_on_memory),
        cmocka_unit_test(unmeasured_tree_memory_ranges_from_largest_to_total_rss),
        cmocka_unit_test(unique_memory_raises_the_lower_bound_of_tree_memory),
        cmocka_unit_test(tree_memory_bounds_can_exclude_file_pages),
        cmocka_unit_test(bounds_of_tree_memory_are_equal_if_nothing_is_shared),
        cmocka_unit_test(upper_bound_of_tree_memory_is_capped_at_machine_memory),
        cmocka_unit_test(outdated_unique_memory_is_capped_at_resident_memory),
        cmocka_unit_test(bounds_of_tree_memory_are_sum_of_pss_if_all_pss_is_current),
        cmocka_unit_test(memory_of_an_empty_process_tree_is_unknown),
    };
    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
