/* Tests the list of files that a job leaves in /dev/shm. Child processes play the role of the job;
 * the test itself is a bystander whose files must survive. */
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
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/eventually.h"
#include "guard/leftovers.h"

#define TMPFS_MAGIC_NUMBER 0x01021994

static struct proc_root root;
static char folder[64];
static int at; /* fd of the folder that replaces /dev/shm. */
static struct leftovers *l;
static struct proc_tree *tree;
static struct outcome left; /* Outcome of the last call of end(), with the list of leftovers. */

/* Calls leftovers_sample until COND is true. */
#define SAMPLED_UNTIL(cond) EVENTUALLY(cond, leftovers_sample(l, tree, clock_mono_ns()))

static void note_birth(void *user, const struct proc_event *event)
{
    (void)user;
    if (event->kind == PROCESS_BORN && l != NULL)
        leftovers_process(l, event->node->info.id.pid);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/dev/shm/ebb-test-leftovers.XXXXXX");
    if (!mkdtemp(folder)) {
        snprintf(folder, sizeof folder, "/tmp/ebb-test-leftovers.XXXXXX");
        if (!mkdtemp(folder))
            return -1;
    }
    at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || proc_root_open("/proc", NULL, &root, NULL) < 0)
        return -1;
    return proc_tree_new(&root, note_birth, NULL, &tree);
}

static int tear_down(void **state)
{
    (void)state;
    leftovers_free(l);
    l = NULL;
    outcome_fini(&left);
    left = (struct outcome){0};
    proc_tree_free(tree);
    tree = NULL;
    proc_root_close(&root);
    DIR *dir = fdopendir(at);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        unlinkat(at, e->d_name, e->d_type == DT_DIR ? AT_REMOVEDIR : 0);
    closedir(dir);
    return rmdir(folder);
}

static void begin(void)
{
    l = leftovers_new(folder);
    assert_non_null(l);
}

static bool is_on_tmpfs(void)
{
    struct statfs st;
    assert_int_equal(fstatfs(at, &st), 0);
    return st.f_type == TMPFS_MAGIC_NUMBER;
}

static int make(const char *name)
{
    int fd = openat(at, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 8192) < 0 || pwrite(fd, "x", 1, 0) != 1)
        abort();
    return fd;
}

static void make_closed(const char *name)
{
    close(make(name));
}

static bool exists(const char *name)
{
    return faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A process that runs FN, reports that FN has returned, and then waits until the test releases
 * it. */
struct kid {
    pid_t pid;
    int from_kid, to_kid;
};
typedef void kid_fn(void);

static void close_all_but(int a, int b)
{
    for (int fd = 3; fd < 256; fd++)
        if (fd != a && fd != b && fd != at)
            /* Inherited fds are closed, so that this process has no files of other processes open.
             */
            close(fd);
}

static struct kid kid_start_outside(kid_fn *fn)
{
    int up[2], down[2];
    char c;
    pid_t parent = getpid();
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close_all_but(up[1], down[0]);
        if (read(down[0], &c, 1) != 1)
            _exit(1);
        fn();
        if (write(up[1], "", 1) != 1)
            _exit(1);
        while (read(down[0], &c, 1) > 0)
            ;
        _exit(0);
    }
    assert_true(pid > 0);
    close(up[1]);
    close(down[0]);
    return (struct kid){pid, up[0], down[1]};
}

static void kid_go(const struct kid *kid)
{
    char c;
    assert_int_equal(write(kid->to_kid, "", 1), 1);
    assert_int_equal(read(kid->from_kid, &c, 1), 1);
}

static struct kid kid_start(kid_fn *fn)
{
    struct kid kid = kid_start_outside(fn);
    assert_int_equal(proc_tree_add(tree, (int32_t)kid.pid, clock_mono_ns(), NULL), 0);
    kid_go(&kid);
    return kid;
}

static void kid_end(const struct kid *kid)
{
    int status;
    close(kid->to_kid);
    close(kid->from_kid);
    assert_int_equal(waitpid(kid->pid, &status, 0), kid->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    proc_tree_walk(tree, clock_mono_ns());
}

static size_t end(bool clean)
{
    outcome_fini(&left);
    left = (struct outcome){0};
    leftovers_end(l, &root, clean, &left.left);
    return left.left.shm_count;
}

/* Returns the leftover called NAME, or NULL if it is not listed. */
static const struct outcome_left *listed(const char *name)
{
    for (size_t i = 0; i < left.left.shm_count; i++)
        if (strcmp(left.left.shm[i].name, name) == 0)
            return &left.left.shm[i];
    return NULL;
}

static struct outcome_left entry(const char *name)
{
    assert_non_null(listed(name));
    return listed(name) ? *listed(name) : (struct outcome_left){0};
}

static bool is_listed(const char *name)
{
    return end(false) > 0 && listed(name);
}

/* ---- files that a job creates ---- */

static void open_psm(void)
{
    make("psm_1");
}

static void leftover_file_that_the_job_had_open_is_listed_and_removed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    kid_end(&kid);
    assert_int_equal(end(false), 1);
    assert_true(exists("psm_1"));
    assert_false(entry("psm_1").removed);
    assert_int_equal(end(true), 1);
    assert_false(exists("psm_1"));
    assert_true(entry("psm_1").removed && !entry("psm_1").in_use);
    uint64_t bytes = entry("psm_1").bytes;
    assert_true(bytes > 0 && bytes <= 1 << 20);
}

/* Maps a file in the same way as sem_open(). */
static void map_sem(void)
{
    int fd = make("tmp.sem");
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ||
        linkat(at, "tmp.sem", at, "sem.a", 0) < 0 || unlinkat(at, "tmp.sem", 0) < 0)
        abort();
    close(fd);
}

static void leftover_file_that_the_job_mapped_and_closed_is_listed(void **state)
{
    (void)state;
    if (!is_on_tmpfs()) {
        print_message("maps name another device than stat where %s is\n", folder);
        skip();
    }
    begin();
    struct kid kid = kid_start(map_sem);
    SAMPLED_UNTIL(is_listed("sem.a"));
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_false(exists("sem.a"));
    assert_null(listed("tmp.sem"));
}

static void make_brief(void)
{
    make_closed("brief");
}

static void file_closed_before_the_first_sample_is_not_listed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(make_brief);
    kid_end(&kid); /* The process of the job exits before any sample is taken. */
    leftovers_sample(l, tree, clock_mono_ns());
    assert_int_equal(end(true), 0);
    assert_null(listed("brief"));
    assert_true(exists("brief"));
}

static void open_old(void)
{
    if (openat(at, "old", O_RDWR) < 0 || renameat(at, "old2", at, "older") < 0)
        abort();
    make("new");
}

static void file_older_than_the_job_is_not_listed_as_leftover(void **state)
{
    (void)state;
    make_closed("old");
    make_closed("old2");
    begin();
    struct kid kid = kid_start(open_old);
    SAMPLED_UNTIL(is_listed("new"));
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_null(listed("old"));
    assert_null(listed("older"));
    assert_true(exists("old") && exists("older"));
    assert_false(exists("new"));
}

static void rename_it(void)
{
    make("first");
    if (renameat(at, "first", at, "second") < 0)
        abort();
}

static void leftover_file_is_listed_under_its_latest_name(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(rename_it);
    SAMPLED_UNTIL(is_listed("second"));
    assert_int_equal(renameat(at, "second", at, "third"), 0);
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_true(entry("third").removed);
    assert_false(exists("third"));
}

static void new_file_of_a_process_outside_the_job_is_not_listed(void **state)
{
    (void)state;
    begin();
    make_closed("others");
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_null(listed("others"));
    assert_true(exists("others"));
    assert_false(exists("psm_1"));
}

static void read_cache(void)
{
    int fd = openat(at, "cache", O_RDONLY);
    if (fd < 0 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
        abort();
    make("psm_1");
}

static void new_file_that_the_job_only_read_is_not_a_leftover(void **state)
{
    (void)state;
    begin();
    make_closed("cache");
    struct kid kid = kid_start(read_cache);
    SAMPLED_UNTIL(is_listed("psm_1"));
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_null(listed("cache"));
    assert_true(exists("cache"));
}

static void new_file_with_the_name_of_a_leftover_file_is_not_removed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    kid_end(&kid);
    /* A hard link keeps the inode of the job's file in use, so the new file gets another inode
     * number. */
    assert_int_equal(linkat(at, "psm_1", at, "kept", 0), 0);
    assert_int_equal(unlinkat(at, "psm_1", 0), 0);
    make_closed("psm_1");
    assert_int_equal(end(true), 1);
    assert_true(entry("kept").removed);
    assert_null(listed("psm_1"));
    assert_true(exists("psm_1"));
}

static void leftover_file_open_in_another_process_is_not_removed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    int fd = openat(at, "psm_1", O_RDONLY | O_CLOEXEC);
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_true(entry("psm_1").in_use);
    assert_true(exists("psm_1"));
    close(fd);
    assert_int_equal(end(true), 1);
    assert_false(exists("psm_1"));
}

static void leftover_file_mapped_by_another_process_is_not_removed(void **state)
{
    (void)state;
    begin();
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    int fd = openat(at, "psm_1", O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    kid_end(&kid);
    assert_int_equal(end(true), 1);
    assert_int_equal(entry("psm_1").in_use, is_on_tmpfs());
    assert_int_equal(exists("psm_1"), is_on_tmpfs());
    munmap(map, 4096);
}

static void leftover_file_of_another_user_is_not_removed(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can give a file to another user\n");
        skip();
    }
    begin();
    struct kid kid = kid_start(open_psm);
    SAMPLED_UNTIL(is_listed("psm_1"));
    kid_end(&kid);
    if (fchownat(at, "psm_1", 65534, 65534, 0) < 0) {
        print_message("this root may not give files away\n");
        skip();
    }
    assert_int_equal(end(true), 1);
    assert_false(entry("psm_1").removed);
    assert_true(exists("psm_1"));
}

/* ---- file names that torch creates ---- */

static void make_torch(void)
{
    char name[64];
    snprintf(name, sizeof name, "torch_%d_77_0", (int)getpid());
    make_closed(name);
}

static void torch_file_named_after_a_dead_process_of_the_job_is_listed(void **state)
{
    char name[64];
    (void)state;
    begin();
    struct kid kid = kid_start(make_torch);
    kid_end(&kid);
    snprintf(name, sizeof name, "torch_%d_77_0", (int)kid.pid);
    assert_int_equal(end(true), 1);
    assert_true(entry(name).removed);
    assert_false(exists(name));
}

static void torch_file_named_after_a_pid_outside_the_job_is_not_listed(void **state)
{
    char name[64];
    (void)state;
    begin();
    struct kid stranger = kid_start_outside(make_torch);
    kid_go(&stranger);
    /* This pid belonged to the job earlier and belongs to a bystander now. */
    leftovers_process(l, (int32_t)getpid());
    make_torch();
    make_closed("torch_x_1");
    make_closed("torch_99999999999_1");
    leftovers_sample(l, tree, clock_mono_ns());
    assert_int_equal(end(true), 0);
    snprintf(name, sizeof name, "torch_%d_77_0", (int)getpid());
    assert_true(exists(name));
    assert_null(listed(name));
    snprintf(name, sizeof name, "torch_%d_77_0", (int)stranger.pid);
    assert_true(exists(name));
    assert_true(exists("torch_x_1") && exists("torch_99999999999_1"));
    kid_end(&stranger);
}

/* ---- the folder itself ---- */

static void leftover_search_fails_if_the_folder_is_missing(void **state)
{
    (void)state;
    assert_null(leftovers_new("/nowhere/at/all"));
}

enum { CANNOT_MOUNT = 50 };

static int fill_a_small_tmpfs(void)
{
    static char zeroes[1 << 20];
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", folder, "tmpfs", 0, "size=8m") < 0)
        return CANNOT_MOUNT;
    bool before = leftovers_folder_is_full(folder);
    int dir = open(folder, O_RDONLY | O_DIRECTORY);
    int fd = openat(dir, "big", O_RDWR | O_CREAT, 0600);
    while (write(fd, zeroes, sizeof zeroes) > 0)
        ;
    bool after = leftovers_folder_is_full(folder);
    close(fd);
    close(dir);
    return before ? 2 : !after ? 3 : 0;
}

static void shared_memory_folder_without_space_is_reported_as_full(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fill_a_small_tmpfs());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        print_message("no file system may be mounted here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(leftover_file_that_the_job_had_open_is_listed_and_removed),
        IN_FOLDER(leftover_file_that_the_job_mapped_and_closed_is_listed),
        IN_FOLDER(file_closed_before_the_first_sample_is_not_listed),
        IN_FOLDER(file_older_than_the_job_is_not_listed_as_leftover),
        IN_FOLDER(leftover_file_is_listed_under_its_latest_name),
        IN_FOLDER(new_file_of_a_process_outside_the_job_is_not_listed),
        IN_FOLDER(new_file_that_the_job_only_read_is_not_a_leftover),
        IN_FOLDER(new_file_with_the_name_of_a_leftover_file_is_not_removed),
        IN_FOLDER(leftover_file_open_in_another_process_is_not_removed),
        IN_FOLDER(leftover_file_mapped_by_another_process_is_not_removed),
        IN_FOLDER(leftover_file_of_another_user_is_not_removed),
        IN_FOLDER(torch_file_named_after_a_dead_process_of_the_job_is_listed),
        IN_FOLDER(torch_file_named_after_a_pid_outside_the_job_is_not_listed),
        IN_FOLDER(leftover_search_fails_if_the_folder_is_missing),
        IN_FOLDER(shared_memory_folder_without_space_is_reported_as_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
