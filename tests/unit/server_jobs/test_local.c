/* Tests which process the local executor accepts as the supervisor of a job. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "proc/procfs.h"
#include "server/jobs/local_private.h"

/* Starts a child with the name of a supervisor. It runs until it is killed. */
static pid_t start_child(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "ebb-supervisor");
        while (write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void stop_child(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Makes a run whose lock file names the process PID as the sentinel. */
static struct local_run run_with_sentinel(pid_t pid)
{
    char path[40], text[1024], name[] = "/tmp/ebb-test-lock.XXXXXX";
    struct proc_stat stat;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    assert_true(len > 0);
    assert_int_equal(proc_stat_parse(text, (size_t)len, &stat), 0);
    struct local_run run = {.lock_fd = mkostemp(name, O_CLOEXEC)};
    assert_true(run.lock_fd >= 0);
    unlink(name);
    dprintf(run.lock_fd, "%d %llu\n", (int)pid, (unsigned long long)stat.start_ticks);
    return run;
}

static void only_a_child_of_the_sentinel_is_accepted_as_supervisor(void **state)
{
    (void)state;
    pid_t sentinel = start_child(), impostor = start_child(), child = start_child();
    struct local_run run = run_with_sentinel(sentinel);
    local_note_supervisor(&run, impostor);
    assert_int_equal(run.supervisor.pid, 0);
    close(run.lock_fd);
    run = run_with_sentinel(getpid());
    local_note_supervisor(&run, child);
    assert_int_equal(run.supervisor.pid, child);
    close(run.lock_fd);
    stop_child(sentinel);
    stop_child(impostor);
    stop_child(child);
}

static void orphaned_supervisor_is_accepted_after_its_sentinel_has_exited(void **state)
{
    (void)state;
    pid_t sentinel = start_child(), supervisor = start_child();
    struct local_run run = run_with_sentinel(sentinel);
    stop_child(sentinel);
    local_note_supervisor(&run, supervisor);
    assert_int_equal(run.supervisor.pid, supervisor);
    close(run.lock_fd);
    stop_child(supervisor);
}

/* With one free file descriptor, the pidfd of the sentinel can be opened, but not its stat file. */
static void no_supervisor_is_accepted_if_the_sentinel_cannot_be_examined(void **state)
{
    struct rlimit before, low;
    int fds[64];
    size_t count = 0;
    (void)state;
    pid_t sentinel = start_child(), impostor = start_child();
    struct local_run run = run_with_sentinel(sentinel);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){.rlim_cur = 32, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((fds[count] = fcntl(run.lock_fd, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    assert_true(count > 0);
    close(fds[--count]);
    local_note_supervisor(&run, impostor);
    while (count > 0)
        close(fds[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(run.supervisor.pid, 0);
    close(run.lock_fd);
    stop_child(sentinel);
    stop_child(impostor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_child_of_the_sentinel_is_accepted_as_supervisor),
        cmocka_unit_test(orphaned_supervisor_is_accepted_after_its_sentinel_has_exited),
        cmocka_unit_test(no_supervisor_is_accepted_if_the_sentinel_cannot_be_examined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
