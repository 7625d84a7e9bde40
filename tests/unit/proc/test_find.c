/* Which process trains: on recorded machines, and among processes started here. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "kit.h"
#include "proc/find.h"

enum { MAX = 8 };

static struct proc_root recorded(const char *name)
{
    char path[128];
    struct proc_root root;
    struct err err;
    snprintf(path, sizeof(path), "tests/proc-fixtures/machine-%s/proc", name);
    if (proc_root_open(path, NULL, &root, &err) < 0)
        fail_msg("%s", err.text);
    root.page_bytes = 4096;
    return root;
}

static struct proc_root live(void)
{
    struct proc_root root;
    assert_int_equal(proc_root_open("/proc", NULL, &root, NULL), 0);
    return root;
}

static void what_trains_is_listed_best_first_with_its_reasons(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    static struct find_candidate c[MAX];
    assert_int_equal(find_training(&root, 701, c, MAX, NULL), 2);
    assert_int_equal(c[0].process.id.pid, 141495);
    assert_int_equal(c[0].launcher, 141489);
    assert_int_equal(c[0].ranks, 1);
    assert_int_equal(c[0].rss_bytes, UINT64_C(9000) << 20);
    assert_string_equal(c[0].reasons, "libtorch mapped; /dev/nvidia0 open; libcuda mapped");
    assert_int_equal(c[1].process.id.pid, 600);
    assert_int_equal(c[1].launcher, 0); /* the shell is above us too: it says nothing */
    assert_string_equal(c[1].reasons, "trainer on its command line");
    assert_true(c[0].score > c[1].score);
    proc_root_close(&root);
}

static void we_and_those_above_us_are_never_candidates(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    static struct find_candidate c[MAX];
    assert_int_equal(find_training(&root, 141658, c, MAX, NULL), 1); /* as if we were a worker */
    assert_int_equal(c[0].process.id.pid, 600);
    proc_root_close(&root);
}

static void more_candidates_than_room_are_counted_and_not_written(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    static struct find_candidate c[2];
    c[1].score = -7;
    assert_int_equal(find_training(&root, 701, c, 1, NULL), 2);
    assert_int_equal(c[1].score, -7);
    proc_root_close(&root);
}

static void the_ranks_of_one_torchrun_are_one_candidate(void **state)
{
    (void)state;
    struct proc_root root = recorded("find-ranks");
    static struct find_candidate c[MAX];
    assert_int_equal(find_training(&root, 40, c, MAX, NULL), 2);
    assert_int_equal(c[0].process.id.pid, 10);
    assert_int_equal(c[0].ranks, 2);
    assert_int_equal(c[0].rss_bytes, UINT64_C(3100) << 20);
    assert_string_equal(c[0].reasons, "2 ranks of torchrun; libtorch mapped; libcuda mapped; "
                                      "trainer on its command line");
    assert_int_equal(c[1].process.id.pid, 51); /* below a wrapper that does not train */
    assert_int_equal(c[1].launcher, 50);
    proc_root_close(&root);
}

static void expect_follow(const char *name, int32_t pid, int32_t want, const char *want_why)
{
    struct proc_root root = recorded(name);
    int32_t got = -1;
    char why[256];
    struct err err;
    if (find_real_process(&root, pid, &got, why, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(why, want_why);
    assert_int_equal(got, want);
    proc_root_close(&root);
}

static void a_launcher_is_followed_to_the_process_that_trains(void **state)
{
    (void)state;
    expect_follow("find", 141489, 141495,
                  "141489 is `uv run`, a launcher; following 141495 (pt_main_thread), which has "
                  "libtorch mapped");
    expect_follow("find", 141495, 141495, "");
    expect_follow("find", 610, 610, "");
}

static void a_worker_is_watched_but_named_as_one(void **state)
{
    (void)state;
    expect_follow("find", 141658, 141658,
                  "141658 is a compile worker of 141614 (runs torch/_inductor/compile_worker); "
                  "watching it alone");
}

static void several_that_train_are_watched_through_their_launcher(void **state)
{
    (void)state;
    expect_follow("find-ranks", 10, 10,
                  "10 is `torchrun`, a launcher, with 2 processes below it that train; watching "
                  "them all");
}

static void without_libraries_the_only_or_by_far_the_largest_is_followed(void **state)
{
    (void)state;
    expect_follow("find-ranks", 20, 21,
                  "20 is `bash`, a launcher; following 21 (big), which is the largest below it");
    expect_follow("find-ranks", 30, 30,
                  "30 is `bash`, a launcher, with 2 processes below it; watching them all");
    expect_follow("find-ranks", 40, 40,
                  "40 is `bash`, a launcher, with nothing below it yet; watching all it starts");
}

static void a_wrapper_with_a_hostile_name_is_followed_in_one_line(void **state)
{
    (void)state;
    expect_follow("find-ranks", 50, 51,
                  "50 is a launcher (we ird) S 1?); following 51 (python3), which has libtorch "
                  "mapped");
}

static void no_such_process_is_said_with_its_number(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    int32_t pid = -1;
    char why[256] = "untouched";
    struct err err;
    assert_int_equal(find_real_process(&root, 4242, &pid, why, &err), -ESRCH);
    assert_non_null(strstr(err.text, "4242"));
    assert_int_equal(pid, -1);
    assert_string_equal(why, "untouched");
    proc_root_close(&root);
}

static void *tell_tid(void *arg)
{
    *(_Atomic pid_t *)arg = (pid_t)syscall(SYS_gettid);
    for (;;)
        pause();
    return NULL;
}

/* In a process of its own, as the thread stays. */
static int ask_about_a_thread(void)
{
    _Atomic pid_t tid = 0;
    pthread_t thread;
    struct proc_root root;
    int32_t real = -1;
    char why[256], expected[128];
    struct err err = {0};
    prctl(PR_SET_NAME, "threaded");
    if (pthread_create(&thread, NULL, tell_tid, &tid) != 0 ||
        proc_root_open("/proc", NULL, &root, NULL) < 0)
        return 1;
    while (tid == 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    snprintf(expected, sizeof(expected),
             "%d is a thread of process %d (threaded); watch that one: --pid %d", (int)tid,
             (int)getpid(), (int)getpid());
    if (find_real_process(&root, tid, &real, why, &err) != -ESRCH || real != -1)
        return 2;
    return strcmp(err.text, expected) == 0 ? 0 : 3;
}

static void the_number_of_a_thread_is_answered_with_its_process(void **state)
{
    (void)state;
    int status;
    pid_t asker = fork();
    assert_true(asker >= 0);
    if (asker == 0)
        _exit(ask_about_a_thread());
    assert_int_equal(waitpid(asker, &status, 0), asker);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A process that has executed ARGS and dies with us. */
static pid_t start(char *const args[])
{
    int done[2];
    assert_int_equal(pipe2(done, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(args[0], args);
        _exit(127);
    }
    close(done[1]);
    char c;
    (void)!read(done[0], &c, 1); /* ends when exec has closed the other end */
    close(done[0]);
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static const struct find_candidate *candidate(const struct find_candidate *c, int n, pid_t pid)
{
    for (int i = 0; i < n && i < 64; i++)
        if (c[i].process.id.pid == pid)
            return &c[i];
    return NULL;
}

/* A real python3 that runs a file train.py, once find_training has seen it: pyenv's shim is a
 * shell that executes the real one after a while. */
struct trainer {
    char dir[32], script[48];
    pid_t pid;
    struct find_candidate found;
};

static void trainer_start(struct trainer *t)
{
    strcpy(t->dir, "/tmp/ebb-test-find.XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    snprintf(t->script, sizeof(t->script), "%s/train.py", t->dir);
    FILE *f = fopen(t->script, "w");
    assert_non_null(f);
    fputs("import time\ntime.sleep(600)\n", f);
    fclose(f);
    char python[] = "python3";
    char *args[] = {python, t->script, NULL};
    t->pid = start(args);

    struct proc_root root = live();
    static struct find_candidate c[64];
    const struct find_candidate *found = NULL;
    for (int tries = 0; found == NULL && tries < 6000; tries++) {
        int n = find_training(&root, getpid(), c, 64, NULL);
        assert_true(n >= 0);
        assert_null(candidate(c, n, getpid()));
        assert_null(candidate(c, n, getppid()));
        found = candidate(c, n, t->pid);
        if (found != NULL && found->rss_bytes == 0)
            found = NULL; /* just after exec: the kernel counts per CPU, in batches */
        if (found == NULL)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    assert_non_null(found);
    if (found != NULL) /* gcc does not know that the assertion ends the test */
        t->found = *found;
    proc_root_close(&root);
}

static void trainer_stop(struct trainer *t)
{
    stop(t->pid);
    unlink(t->script);
    rmdir(t->dir);
}

static void a_living_python_with_a_trainer_is_found(void **state)
{
    (void)state;
    struct trainer t;
    trainer_start(&t);
    trainer_stop(&t);
    assert_non_null(strstr(t.found.reasons, "trainer on its command line"));
    assert_true(t.found.rss_bytes > 0);
}

static void a_living_shell_is_followed_to_what_it_runs(void **state)
{
    (void)state;
    char sh[] = "sh", opt[] = "-c", line[] = "sleep 600; true";
    char *args[] = {sh, opt, line, NULL};
    pid_t pid = start(args);
    struct proc_root root = live();
    int32_t real = pid;
    char why[256] = "";
    /* between fork and exec the child is a shell, too */
    for (int tries = 0; strstr(why, "(sleep)") == NULL && tries < 6000; tries++) {
        assert_int_equal(find_real_process(&root, pid, &real, why, NULL), 0);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    assert_int_not_equal(real, pid);
    assert_non_null(strstr(why, "(sleep)"));
    kill(real, SIGKILL);
    stop(pid);
    proc_root_close(&root);
}

/* Runs under a uid that may not look into us; exits with 0 if it was told so properly. */
static int ask_about_another_users_process(pid_t other)
{
    struct proc_root root;
    int32_t real = -1;
    char why[256], number[16];
    struct err err;
    static struct find_candidate c[64];
    if (setresgid(65533, 65533, 65533) < 0 || setresuid(65533, 65533, 65533) < 0)
        return 1;
    if (proc_root_open("/proc", NULL, &root, NULL) < 0)
        return 2;
    int r = find_real_process(&root, other, &real, why, &err);
    snprintf(number, sizeof(number), "%d", other);
    if (r != -EACCES || strstr(err.text, number) == NULL || real != -1)
        return 3;
    int n = find_training(&root, getpid(), c, 64, NULL);
    if (n < 0 || candidate(c, n, other) != NULL)
        return 4;
    proc_root_close(&root);
    return 0;
}

static void another_users_process_is_refused_by_name_and_not_listed(void **state)
{
    (void)state;
    if (!has_strangers()) {
        print_message("skipped: no process of another user's here\n");
        skip();
    }
    if (geteuid() != 0) { /* then init is another user's */
        struct proc_root root = live();
        int32_t real = -1;
        char why[256];
        assert_int_equal(find_real_process(&root, 1, &real, why, NULL), -EACCES);
        proc_root_close(&root);
        return;
    }
    struct trainer t;
    trainer_start(&t);
    pid_t asker = fork();
    assert_true(asker >= 0);
    if (asker == 0)
        _exit(ask_about_another_users_process(t.pid));
    int status;
    waitpid(asker, &status, 0);
    trainer_stop(&t);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_trains_is_listed_best_first_with_its_reasons),
        cmocka_unit_test(we_and_those_above_us_are_never_candidates),
        cmocka_unit_test(more_candidates_than_room_are_counted_and_not_written),
        cmocka_unit_test(the_ranks_of_one_torchrun_are_one_candidate),
        cmocka_unit_test(a_launcher_is_followed_to_the_process_that_trains),
        cmocka_unit_test(a_worker_is_watched_but_named_as_one),
        cmocka_unit_test(several_that_train_are_watched_through_their_launcher),
        cmocka_unit_test(without_libraries_the_only_or_by_far_the_largest_is_followed),
        cmocka_unit_test(a_wrapper_with_a_hostile_name_is_followed_in_one_line),
        cmocka_unit_test(no_such_process_is_said_with_its_number),
        cmocka_unit_test(the_number_of_a_thread_is_answered_with_its_process),
        cmocka_unit_test(a_living_python_with_a_trainer_is_found),
        cmocka_unit_test(a_living_shell_is_followed_to_what_it_runs),
        cmocka_unit_test(another_users_process_is_refused_by_name_and_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
