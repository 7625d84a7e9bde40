/* Tests the folder that contains all run folders: creation, errors, and an unreachable folder. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/jobs/runs_folder.h"

static const uint64_t patience_ns = 60 * NS_PER_S;

static char root[] = "/tmp/ebb-test-XXXXXX", path[sizeof root + 16];
static sem_t answers;

static int hang(int fd)
{
    (void)fd;
    sem_wait(&answers);
    return 0;
}

static int refuse(int fd)
{
    (void)fd;
    return -ENOSPC;
}

static struct runs_folder *folder_in(const char *name, int (*prepare)(int fd))
{
    struct runs_folder *f;
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(runs_folder_new(path, prepare, &f), 0);
    assert_false(runs_folder_is_open(f));
    return f;
}

static void runs_folder_is_created_with_mode_0700(void **state)
{
    (void)state;
    struct stat st;
    struct runs_folder *f = folder_in("new/runs", NULL);
    assert_int_equal(runs_folder_open(f, patience_ns), 0);
    assert_true(runs_folder_is_open(f));
    assert_int_equal(fstat(runs_folder_fd(f), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_false(runs_folder_is_remote(f));
    runs_folder_free(f);
}

static void unreachable_runs_folder_is_opened_as_soon_as_it_responds(void **state)
{
    (void)state;
    struct runs_folder *f = folder_in("slow", hang);
    assert_int_equal(runs_folder_open(f, 1), -ETIMEDOUT);
    assert_int_equal(runs_folder_open(f, 1), -ETIMEDOUT);
    assert_false(runs_folder_is_open(f));
    sem_post(&answers);
    assert_int_equal(runs_folder_open(f, patience_ns), 0);
    assert_true(runs_folder_fd(f) >= 0);
    runs_folder_free(f);
    assert_int_equal(sem_trywait(&answers), -1); /* `hang` was called only once */
}

static void runs_folder_can_be_opened_after_a_failed_attempt(void **state)
{
    (void)state;
    struct runs_folder *f = folder_in("later/runs", NULL);
    char parent[sizeof path];
    snprintf(parent, sizeof parent, "%s/later", root);
    int fd = open(parent, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(runs_folder_open(f, patience_ns), -ENOTDIR);
    assert_int_equal(runs_folder_fd(f), -EIO);
    assert_int_equal(unlink(parent), 0);
    assert_int_equal(runs_folder_open(f, patience_ns), 0);
    runs_folder_free(f);

    f = folder_in("full", refuse);
    assert_int_equal(runs_folder_open(f, patience_ns), -ENOSPC);
    assert_false(runs_folder_is_open(f));
    runs_folder_free(f);
    runs_folder_free(NULL);
}

static int set_up(void **state)
{
    (void)state;
    return sem_init(&answers, 0, 0) == 0 && mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[sizeof root + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_folder_is_created_with_mode_0700),
        cmocka_unit_test(unreachable_runs_folder_is_opened_as_soon_as_it_responds),
        cmocka_unit_test(runs_folder_can_be_opened_after_a_failed_attempt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
