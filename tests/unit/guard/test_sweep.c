/* Tests that processes of the job are ended, and no others. Each test runs its subreaper in a child
 * process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "guard/sentinel.h"
#include "guard/sweep.h"
#include "proc/procfs.h"

static struct proc_root root;
static volatile int *ready; /* Shared counter of processes that are ready. */
static pid_t bystander;

static int set_up(void **state)
{
    (void)state;
    ready = mmap(NULL, sizeof *ready, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ready = 0;
    if (ready == MAP_FAILED || proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) < 0)
        return -1;
    bystander = fork();
    if (bystander == 0)
        for (;;)
            pause();
    return bystander < 0;
}

static int tear_down(void **state)
{
    int status;
    (void)state;
    /* The bystander must survive every test. */
    int alive = waitpid(bystander, &status, WNOHANG) == 0;
    kill(bystander, SIGKILL);
    waitpid(bystander, &status, 0);
    proc_root_close(&root);
    munmap((void *)(uintptr_t)ready, sizeof *ready);
    return alive ? 0 : -1;
}

enum { PATIENCE_S = 180 };

static void wait_for_ready(int count)
{
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < count && clock_mono_ns() < until)
        usleep(1000);
    if (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < count)
        _exit(90);
}

static _Noreturn void stay(void)
{
    __atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
}

/* Runs FN as a subreaper in a separate process and returns its exit status. */
static int in_subreaper(int (*fn)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        _exit(fn());
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int double_fork_with_setsid(void)
{
    pid_t middle = fork();
    if (middle == 0) {
        setsid();
        if (fork() == 0) {
            signal(SIGTERM, SIG_IGN);
            stay();
        }
        _exit(0);
    }
    wait_for_ready(1);
    /* The intermediate process is reaped, so that only the orphan is left. */
    waitpid(middle, NULL, 0);
    int ended = guard_end_all(&root, 50 * NS_PER_MS);
    return ended == 1 && waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1;
}

static void daemon_ignoring_sigterm_is_killed(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(double_fork_with_setsid), 0);
}

static int many_grandchildren(void)
{
    for (int i = 0; i < 5; i++)
        if (fork() == 0) {
            for (int j = 0; j < 100; j++)
                if (fork() == 0)
                    stay();
            _exit(0); /* The process leaves a hundred orphans behind. */
        }
    wait_for_ready(500);
    guard_end_all(&root, PATIENCE_S * NS_PER_S);
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1;
}

static void hundreds_of_orphaned_processes_are_killed(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(many_grandchildren), 0);
}

/* Four chains of processes fork and exit repeatedly. They end by themselves after a while, so that
 * no process is left if the test fails. */
static int a_storm(void)
{
    enum { STORM_S = 120 };
    uint64_t until = clock_mono_ns() + STORM_S * NS_PER_S;
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            signal(SIGTERM, SIG_IGN);
            __atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
            while (clock_mono_ns() < until)
                if (fork() != 0)
                    _exit(0);
            _exit(0);
        }
    wait_for_ready(4);
    guard_end_all(&root, 20 * NS_PER_MS);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return 1;
    return clock_mono_ns() < until ? 0 : 2;
}

static void chains_of_processes_that_fork_and_exit_are_killed(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(a_storm), 0);
}

static rlim_t count_of_user(uid_t uid)
{
    DIR *proc = opendir("/proc");
    rlim_t count = 0;
    for (const struct dirent *e; proc && (e = readdir(proc)) != NULL;) {
        struct stat st;
        count += e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
                 fstatat(dirfd(proc), e->d_name, &st, 0) == 0 && st.st_uid == uid;
    }
    closedir(proc);
    return count;
}

/* Every process forks until the process limit is reached. The processes end by themselves after a
 * while, so that none is left if the test fails. */
static int a_bomb(void)
{
    enum { BOMB_S = 120, BOMB = 150, NOBODYS_UID = 64999 };
    uint64_t until = clock_mono_ns() + BOMB_S * NS_PER_S;
    if (geteuid() == 0 && (setgid(NOBODYS_UID) < 0 || setuid(NOBODYS_UID) < 0))
        return 10;
    const rlim_t most = count_of_user(geteuid()) + BOMB;
    if (setrlimit(RLIMIT_NPROC, &(struct rlimit){most, most}) < 0)
        return 11;
    if (fork() == 0) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGCHLD, SIG_IGN);
        while (clock_mono_ns() < until)
            if (fork() < 0)
                __atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
        _exit(0);
    }
    wait_for_ready(1); /* The fork bomb has reached the process limit. */
    guard_end_all(&root, 20 * NS_PER_MS);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        return 1;
    return clock_mono_ns() < until ? 0 : 2;
}

static void fork_bomb_at_its_process_limit_is_killed(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(a_bomb), 0);
}

/* A fake /proc with one child that survives every signal, as in uninterruptible sleep. */
struct undead {
    char path[64], folder[32], stat[48];
    struct proc_root root;
};

enum { UNDEAD_PID = 2147483646 };

static void undead_make(struct undead *u)
{
    snprintf(u->path, sizeof u->path, "/tmp/ebb-test-sweep.XXXXXX");
    snprintf(u->folder, sizeof u->folder, "%d", UNDEAD_PID);
    snprintf(u->stat, sizeof u->stat, "%d/stat", UNDEAD_PID);
    assert_non_null(mkdtemp(u->path));
    assert_int_equal(proc_root_open(u->path, NULL, &u->root, NULL), 0);
    assert_int_equal(mkdirat(u->root.proc_fd, u->folder, 0777), 0);
    int fd = openat(u->root.proc_fd, u->stat, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    dprintf(fd, "%d (hung) D %d 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 4096 1 0 1 1 1 0 0 0 0\n",
            UNDEAD_PID, (int)getpid());
    close(fd);
}

static void undead_remove(struct undead *u)
{
    unlinkat(u->root.proc_fd, u->stat, 0);
    unlinkat(u->root.proc_fd, u->folder, AT_REMOVEDIR);
    proc_root_close(&u->root);
    rmdir(u->path);
}

static bool one_is_left(void *user)
{
    (void)user;
    return true;
}

static void process_that_survives_sigkill_is_scanned_less_often(void **state)
{
    struct guard_kill k = {0};
    struct undead u;
    struct proc_stat stat;
    int32_t pid;
    (void)state;
    undead_make(&u);
    /* The call returns although UNTIL_NS is infinite. */
    assert_int_equal(guard_kill_below(&k, &u.root, UINT64_MAX, one_is_left, NULL), 0);
    assert_true(k.wait_ns >= NS_PER_MS);
    assert_false(guard_kill_stuck(&k, &u.root, k.changed_ns, &stat, &pid));
    const uint64_t since_ns = k.changed_ns -= 60 * NS_PER_S;
    assert_int_equal(guard_kill_below(&k, &u.root, UINT64_MAX, one_is_left, NULL), 0);
    assert_true(k.wait_ns >= NS_PER_S);
    assert_int_equal(k.changed_ns, since_ns);
    assert_true(guard_kill_stuck(&k, &u.root, clock_mono_ns(), &stat, &pid));
    assert_int_equal(pid, UNDEAD_PID);
    assert_string_equal(stat.comm, "hung");
    guard_kill_fini(&k);
    undead_remove(&u);
}

static int a_group_without_its_leader(void)
{
    int status;
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        if (fork() == 0)
            stay();
        stay();
    }
    wait_for_ready(2);
    int fd = io_pidfd_open(leader);
    kill(leader, SIGKILL);
    if (waitpid(leader, &status, 0) != leader)
        return 1;
    int r = guard_signal_group(fd, SIGKILL);
    if (r == -EINVAL) { /* kernels before 6.9 */
        guard_end_all(&root, 0);
        return 0;
    }
    if (r < 0 || waitpid(-1, &status, 0) <= 0 || !WIFSIGNALED(status))
        return 2;
    return guard_signal_group(fd, SIGKILL) == -ESRCH ? 0 : 3;
}

static void process_group_can_be_signalled_after_its_leader_was_reaped(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(a_group_without_its_leader), 0);
}

static int only_that_group(void)
{
    pid_t in = fork();
    if (in == 0) {
        setpgid(0, 0);
        stay();
    }
    pid_t out = fork();
    if (out == 0) {
        setpgid(0, 0);
        stay();
    }
    wait_for_ready(2);
    if (guard_signal_below(&root, (int32_t)getpid(), (int32_t)in, SIGKILL) != 1)
        return 1;
    if (waitpid(in, NULL, 0) != in || waitpid(out, NULL, WNOHANG) != 0)
        return 2;
    guard_end_all(&root, 0);
    return 0;
}

static void signal_to_a_process_group_does_not_reach_other_groups(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(only_that_group), 0);
}

static void process_with_a_reused_pid_is_not_signalled(void **state)
{
    struct process_id id = {.pid = (int32_t)bystander, .start_ticks = 1};
    (void)state;
    assert_int_equal(guard_signal(&root, &id, SIGKILL), -ESRCH);
    assert_int_equal(kill(bystander, 0), 0);
    assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
}

static int supervisor_killed(void)
{
    struct sentinel_note *note = sentinel_note_new(false);
    struct sentinel_end end;
    pid_t supervisor = fork();
    if (supervisor == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (int i = 0; i < 3; i++)
            if (fork() == 0) {
                setsid();
                if (fork() == 0)
                    stay();
                stay();
            }
        for (;;)
            pause();
    }
    wait_for_ready(6);
    kill(supervisor, SIGKILL);
    sentinel_wait(&root, supervisor, 100 * NS_PER_MS, note, -1, &end);
    return end.is_lost && end.ended == 6 && waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0
                                                                                                : 1;
}

static void sentinel_ends_processes_of_a_killed_supervisor(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(supervisor_killed), 0);
}

static int supervisor_done(void)
{
    struct sentinel_note *note = sentinel_note_new(false);
    struct sentinel_end end;
    pid_t supervisor = fork();
    if (supervisor == 0)
        _exit(0);
    sentinel_wait(&root, supervisor, NS_PER_S, note, -1, &end);
    return end.is_lost;
}

static void sentinel_kills_nothing_after_supervisor_exits_with_status_0(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(supervisor_done), 0);
}

/* Checks that processes are neither signalled nor waited for if ROOT's pids belong to another
 * namespace. */
static int check_does_nothing(const struct proc_root *foreign, const struct process_id *id)
{
    int32_t self = (int32_t)getpid();
    if (guard_signal(foreign, id, SIGKILL) != -EXDEV)
        return 1;
    if (guard_signal_below(foreign, self, 0, SIGKILL) != -EXDEV)
        return 2;
    if (guard_end_all(foreign, 60 * NS_PER_S) != -EXDEV)
        return 3;
    return kill(id->pid, 0) == 0 && waitpid(id->pid, NULL, WNOHANG) == 0 ? 0 : 4;
}

static bool count_calls(void *user)
{
    ++*(int *)user;
    return true; /* The fake tree always has one child left. */
}

/* Creates a fake /proc in which our pid is 999999999 and our child has the pid of another
 * process. */
static int with_another_self(void)
{
    char path[] = "/tmp/ebb-test-sweep.XXXXXX", name[32];
    struct proc_root foreign;
    struct process_id id = {.pid = (int32_t)fork(), .start_ticks = 4242};
    if (id.pid == 0)
        stay();
    wait_for_ready(1);
    if (!mkdtemp(path) || proc_root_open(path, NULL, &foreign, NULL) < 0)
        return 10;
    snprintf(name, sizeof name, "%d", id.pid);
    mkdirat(foreign.proc_fd, name, 0777);
    snprintf(name, sizeof name, "%d/stat", id.pid);
    int fd = openat(foreign.proc_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    dprintf(fd, "%d (x) S %d 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 4096 1 0 1 1 1 0 0 0 0\n",
            id.pid, (int)getpid());
    close(fd);
    int r = symlinkat("999999999", foreign.proc_fd, "self") < 0 ? 11 : 0;
    struct guard_kill k = {0};
    int calls = 0;
    if (r == 0)
        r = check_does_nothing(&foreign, &id);
    if (r == 0 && guard_kill_below(&k, &foreign, UINT64_MAX, count_calls, &calls) != -EXDEV)
        r = 12;
    if (r == 0 && calls != 1)
        r = 13;
    kill(id.pid, SIGKILL);
    unlinkat(foreign.proc_fd, name, 0);
    snprintf(name, sizeof name, "%d", id.pid);
    unlinkat(foreign.proc_fd, name, AT_REMOVEDIR);
    unlinkat(foreign.proc_fd, "self", 0);
    proc_root_close(&foreign);
    rmdir(path);
    return r;
}

static void sweep_signals_nothing_if_proc_shows_another_pid_namespace(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(with_another_self), 0);
}

static int in_new_namespace(void)
{
    int status;
    /* A new pid namespace requires root or unprivileged user namespaces. Without them, this test
     * checks nothing. */
    if (unshare(CLONE_NEWPID) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
        return 0;
    pid_t first = fork();
    if (first == 0) {
        struct process_id id = {.pid = (int32_t)fork()};
        if (id.pid == 0)
            stay();
        wait_for_ready(1);
        /* When this process exits, the kernel ends all processes of its namespace. */
        _exit(check_does_nothing(&root, &id));
    }
    return waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 20;
}

static void sweep_signals_nothing_if_proc_belongs_to_the_parent_namespace(void **state)
{
    (void)state;
    assert_int_equal(in_subreaper(in_new_namespace), 0);
}

enum { ROUNDS = 3 };

static bool are_rounds_left(void *user)
{
    return ++*(int *)user <= ROUNDS;
}

/* Writes a children file so long that one read ends in the middle of the number that begins with
 * PID. */
static void write_long_children(int fd, pid_t pid)
{
    enum { ONE_READ = 16383 };
    char text[ONE_READ + 64], digits[16];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%d", pid), at = 0;
    while (at + 11 <= ONE_READ - len)
        at += (size_t)sprintf(text + at, "2147483646 "); /* No process can have this pid. */
    while (at < ONE_READ - len)
        text[at++] = ' ';
    at += (size_t)sprintf(text + at, "%s99 ", digits);
    assert_int_equal(write(fd, text, at), (ssize_t)at);
}

static void truncated_pid_in_children_file_is_never_killed(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-sweep-XXXXXX", name[64];
    struct proc_root mock;
    struct guard_kill k = {0};
    int rounds = 0, status = 0, self = (int)getpid();
    pid_t victim = fork();
    if (victim == 0)
        for (;;)
            pause();
    assert_non_null(mkdtemp(path));
    assert_int_equal(proc_root_open(path, "/sys/fs/cgroup", &mock, NULL), 0);
    char folders[3][32];
    snprintf(folders[0], sizeof folders[0], "%d", self);
    snprintf(folders[1], sizeof folders[1], "%d/task", self);
    snprintf(folders[2], sizeof folders[2], "%d/task/%d", self, self);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mkdirat(mock.proc_fd, folders[i], 0777), 0);
    snprintf(name, sizeof name, "%s/children", folders[2]);
    int fd = openat(mock.proc_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    write_long_children(fd, victim);
    close(fd);
    while (are_rounds_left(&rounds)) {
        assert_int_equal(guard_kill_below(&k, &mock, UINT64_MAX, one_is_left, NULL), 0);
        assert_true(k.wait_ns > 0);
    }
    guard_kill_fini(&k);
    /* The victim must still be alive. If SIGKILL had already ended it, the wait status would not
     * contain SIGTERM. */
    kill(victim, SIGTERM);
    assert_int_equal(waitpid(victim, &status, 0), victim);
    assert_int_equal(WTERMSIG(status), SIGTERM);
    unlinkat(mock.proc_fd, name, 0);
    for (size_t i = 3; i-- > 0;)
        unlinkat(mock.proc_fd, folders[i], AT_REMOVEDIR);
    proc_root_close(&mock);
    rmdir(path);
}

/* The sentinel must close the pipes of a job that was restarted. Otherwise the pipes would fill the
 * socket's queue after many restarts. */
static void sentinel_closes_old_output_pipes_when_a_job_is_restarted(void **state)
{
    (void)state;
    struct sentinel_note *note = sentinel_note_new(true);
    int old[2], now[2];
    assert_non_null(note);
    assert_int_equal(pipe2(old, O_CLOEXEC), 0);
    assert_int_equal(pipe2(now, O_CLOEXEC), 0);
    signal(SIGPIPE, SIG_IGN);
    sentinel_keep_streams(note, &old[0], 1);
    close(old[0]);
    /* The byte stays in the pipe, whose read end only the sentinel has open. */
    assert_int_equal(write(old[1], "x", 1), 1);
    sentinel_keep_streams(note, &now[0], 1);
    close(now[0]);
    assert_int_equal(write(old[1], "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(write(now[1], "x", 1), 1);
    signal(SIGPIPE, SIG_DFL);
    close(old[1]);
    close(now[1]);
    close(note->stream_pair[0]);
    close(note->stream_pair[1]);
    munmap(note, sizeof *note);
}

#define WITH_NEIGHBOUR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* ---- stray processes ---- */

/* Writes the variable NAME=/no/OUR_PID/7-END to RET and returns a pointer to the path in RET. The
 * pid makes the path unique to this test run. */
static const char *sign_of(const char *name, const char *end, char ret[64])
{
    snprintf(ret, 64, "%s=/no/%d/7-%s", name, (int)getpid(), end);
    return strchr(ret, '/');
}

static pid_t start_with(const char *name, const char *end)
{
    char text[64];
    sign_of(name, end, text);
    char *const env[] = {text, NULL};
    char *const argv[] = {(char[]){"sleep"}, (char[]){"600"}, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execve("/bin/sleep", argv, env);
        _exit(127);
    }
    return pid;
}

static void wait_for_strays(const struct stray_signs *signs, int count)
{
    uint64_t until = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (guard_signal_strays(&root, signs, 0) != count && clock_mono_ns() < until)
        usleep(1000);
    assert_int_equal(guard_signal_strays(&root, signs, 0), count);
}

static void stray_process_is_ended_only_if_variable_ebb_run_dir_matches(void **state)
{
    static const char run_dir[] = "EBB_RUN_DIR";
    static const struct {
        const char *name, *end;
    } others[] = {{run_dir, "a2"}, {"XEBB_RUN_DIR", "a"}, {run_dir, ""}, {"PWD", "a"}};
    enum { OTHERS = sizeof others / sizeof *others };
    char text[64], other_text[64];
    const struct stray_signs signs = {.run_dir = sign_of(run_dir, "a", text), .cgroup = ""};
    pid_t other[OTHERS];
    int status;
    (void)state;
    for (size_t i = 0; i < OTHERS; i++) {
        const struct stray_signs own = {
            .run_dir = sign_of(others[i].name, others[i].end, other_text), .cgroup = ""};
        other[i] = start_with(others[i].name, others[i].end);
        if (others[i].name == run_dir)
            wait_for_strays(&own, 1);
    }
    pid_t stray = start_with(run_dir, "a");
    wait_for_strays(&signs, 1);
    assert_int_equal(guard_end_strays(&root, &signs, PATIENCE_S * NS_PER_S), 1);
    assert_int_equal(waitpid(stray, &status, 0), stray);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    for (size_t i = 0; i < OTHERS; i++) {
        assert_int_equal(waitpid(other[i], &status, WNOHANG), 0);
        kill(other[i], SIGKILL);
        waitpid(other[i], &status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_NEIGHBOUR(daemon_ignoring_sigterm_is_killed),
        WITH_NEIGHBOUR(hundreds_of_orphaned_processes_are_killed),
        WITH_NEIGHBOUR(chains_of_processes_that_fork_and_exit_are_killed),
        WITH_NEIGHBOUR(fork_bomb_at_its_process_limit_is_killed),
        WITH_NEIGHBOUR(process_group_can_be_signalled_after_its_leader_was_reaped),
        WITH_NEIGHBOUR(signal_to_a_process_group_does_not_reach_other_groups),
        WITH_NEIGHBOUR(process_with_a_reused_pid_is_not_signalled),
        WITH_NEIGHBOUR(sweep_signals_nothing_if_proc_shows_another_pid_namespace),
        WITH_NEIGHBOUR(sweep_signals_nothing_if_proc_belongs_to_the_parent_namespace),
        WITH_NEIGHBOUR(sentinel_ends_processes_of_a_killed_supervisor),
        WITH_NEIGHBOUR(sentinel_kills_nothing_after_supervisor_exits_with_status_0),
        WITH_NEIGHBOUR(stray_process_is_ended_only_if_variable_ebb_run_dir_matches),
        cmocka_unit_test(process_that_survives_sigkill_is_scanned_less_often),
        cmocka_unit_test(truncated_pid_in_children_file_is_never_killed),
        cmocka_unit_test(sentinel_closes_old_output_pipes_when_a_job_is_restarted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
