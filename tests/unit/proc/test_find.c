/* Tests the search for training processes, on recorded machines and among real child processes. */
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

static void training_search_lists_best_candidates_first_with_evidence(void **state)
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
    /* The shell that started process 600 is not reported as its launcher, because the shell is also
     * an ancestor of the searching process. */
    assert_int_equal(c[1].launcher, 0);
    assert_string_equal(c[1].reasons, "training script on its command line");
    assert_true(c[0].score > c[1].score);
    proc_root_close(&root);
}

static void training_search_excludes_ebb_and_its_ancestors(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    static struct find_candidate c[MAX];
    /* Process 141658, a worker of the other recorded job, is given as the process that searches. */
    assert_int_equal(find_training(&root, 141658, c, MAX, NULL), 1);
    assert_int_equal(c[0].process.id.pid, 600);
    proc_root_close(&root);
}

static void training_search_counts_jobs_that_do_not_fit_into_the_list(void **state)
{
    (void)state;
    struct proc_root root = recorded("find");
    static struct find_candidate c[2];
    c[1].score = -7;
    assert_int_equal(find_training(&root, 701, c, 1, NULL), 2);
    assert_int_equal(c[1].score, -7);
    proc_root_close(&root);
}

static void training_search_lists_all_ranks_of_a_torchrun_as_one_job(void **state)
{
    (void)state;
    struct proc_root root = recorded("find-ranks");
    static struct find_candidate c[MAX];
    assert_int_equal(find_training(&root, 40, c, MAX, NULL), 2);
    assert_int_equal(c[0].process.id.pid, 10);
    assert_int_equal(c[0].ranks, 2);
    assert_int_equal(c[0].rss_bytes, UINT64_C(3100) << 20);
    assert_string_equal(c[0].reasons, "2 ranks of torchrun; libtorch mapped; libcuda mapped; "
                                      "training script on its command line");
    /* This training process was started by a wrapper, which is not a training process. */
    assert_int_equal(c[1].process.id.pid, 51);
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

static void given_a_launcher_pid_the_training_process_is_watched(void **state)
{
    (void)state;
    expect_follow("find", 141489, 141495,
                  "process 141489 is `uv run`, a launcher; following process 141495 "
                  "(pt_main_thread), which has "
                  "libtorch mapped");
    expect_follow("find", 141495, 141495, "");
    expect_follow("find", 610, 610, "");
}

static void requested_worker_pid_is_watched_and_described_as_a_worker(void **state)
{
    (void)state;
    expect_follow("find", 141658, 141658,
                  "process 141658 (runs torch/_inductor/compile_worker) is a compile worker of "
                  "process 141614; watching only 141658");
}

static void launcher_of_several_ranks_is_watched_with_all_descendants(void **state)
{
    (void)state;
    expect_follow(
        "find-ranks", 10, 10,
        "process 10 is `torchrun`, a launcher, with 2 descendants that train; watching them all");
}

static void largest_descendant_is_watched_if_a_launcher_has_no_trainer(void **state)
{
    (void)state;
    expect_follow("find-ranks", 20, 21,
                  "process 20 is `bash`, a launcher; following process 21 (big), which is its "
                  "largest descendant");
    expect_follow("find-ranks", 30, 30,
                  "process 30 is `bash`, a launcher, with 2 descendants; watching them all");
    expect_follow("find-ranks", 40, 40,
                  "process 40 is `bash`, a launcher, which has not started a process yet; "
                  "watching all processes that it starts");
}

static void launcher_with_a_hostile_name_is_described_in_one_line(void **state)
{
    (void)state;
    expect_follow("find-ranks", 50, 51,
                  "process 50 is a launcher (we ird) S 1?); following process 51 (python3), which "
                  "has libtorch "
                  "mapped");
}

static void error_for_an_unknown_pid_contains_the_pid(void **state)
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

/* Runs in a separate process, because the thread that it starts never exits. */
static int check_own_thread_is_refused(void)
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
    snprintf(expected, sizeof(expected), "%d is a thread of process %d (threaded); use --pid %d",
             (int)tid, (int)getpid(), (int)getpid());
    if (find_real_process(&root, tid, &real, why, &err) != -ESRCH || real != -1)
        return 2;
    return strcmp(err.text, expected) == 0 ? 0 : 3;
}

static void error_for_a_thread_id_contains_the_pid_of_the_process(void **state)
{
    (void)state;
    int status;
    pid_t asker = fork();
    assert_true(asker >= 0);
    if (asker == 0)
        _exit(check_own_thread_is_refused());
    assert_int_equal(waitpid(asker, &status, 0), asker);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Starts a process that executes ARGS and is killed when this process exits. */
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
    (void)!read(done[0], &c, 1); /* The read returns once exec has closed the write end. */
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

/* A running python3 process that executes train.py and was found by find_training. With pyenv,
 * python3 is at first a shell script, which executes the interpreter later. */
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
            /* Just after exec, RSS may still be 0, because the kernel updates it in batches per
             * CPU. */
            found = NULL;
        if (found == NULL)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    assert_non_null(found);
    if (found != NULL) /* gcc does not know that assert_non_null ends the test. */
        t->found = *found;
    proc_root_close(&root);
}

static void trainer_stop(struct trainer *t)
{
    stop(t->pid);
    unlink(t->script);
    rmdir(t->dir);
}

static void search_finds_a_running_python_training_script(void **state)
{
    (void)state;
    struct trainer t;
    trainer_start(&t);
    trainer_stop(&t);
    assert_non_null(strstr(t.found.reasons, "training script on its command line"));
    assert_true(t.found.rss_bytes > 0);
}

static void given_a_shell_pid_the_command_of_the_shell_is_watched(void **state)
{
    (void)state;
    char sh[] = "sh", opt[] = "-c", line[] = "sleep 600; true";
    char *args[] = {sh, opt, line, NULL};
    pid_t pid = start(args);
    struct proc_root root = live();
    int32_t real = pid;
    char why[256] = "";
    /* Between fork and exec, the child still executes the shell. */
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

/* Runs as a user who may not read our memory. Returns 0 if the error is as expected. */
static int check_other_users_process_is_refused(pid_t other)
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

static void process_of_another_user_is_rejected_and_not_listed(void **state)
{
    (void)state;
    if (!has_strangers()) {
        print_message("skipped: there is no process of another user\n");
        skip();
    }
    if (geteuid() != 0) { /* Without root, init is used as the process of another user. */
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
        _exit(check_other_users_process_is_refused(t.pid));
    int status;
    waitpid(asker, &status, 0);
    trainer_stop(&t);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_search_lists_best_candidates_first_with_evidence),
        cmocka_unit_test(training_search_excludes_ebb_and_its_ancestors),
        cmocka_unit_test(training_search_counts_jobs_that_do_not_fit_into_the_list),
        cmocka_unit_test(training_search_lists_all_ranks_of_a_torchrun_as_one_job),
        cmocka_unit_test(given_a_launcher_pid_the_training_process_is_watched),
        cmocka_unit_test(requested_worker_pid_is_watched_and_described_as_a_worker),
        cmocka_unit_test(launcher_of_several_ranks_is_watched_with_all_descendants),
        cmocka_unit_test(largest_descendant_is_watched_if_a_launcher_has_no_trainer),
        cmocka_unit_test(launcher_with_a_hostile_name_is_described_in_one_line),
        cmocka_unit_test(error_for_an_unknown_pid_contains_the_pid),
        cmocka_unit_test(error_for_a_thread_id_contains_the_pid_of_the_process),
        cmocka_unit_test(search_finds_a_running_python_training_script),
        cmocka_unit_test(given_a_shell_pid_the_command_of_the_shell_is_watched),
        cmocka_unit_test(process_of_another_user_is_rejected_and_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
