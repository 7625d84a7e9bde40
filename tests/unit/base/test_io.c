/* Tests reading and replacing whole files, in a temporary folder. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

/* Temporary working directory of a test. PATH is used to remove the folder after the test. */
struct folder {
    char path[64];
    int fd;
};

static int setup(void **state)
{
    static struct folder f;
    strcpy(f.path, "/tmp/ebb-test-io.XXXXXX");
    if (!mkdtemp(f.path) || chdir(f.path) < 0)
        return -1;
    f.fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = &f;
    return f.fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", f->path);
    close(f->fd);
    return chdir("/") < 0 || system(command) != 0 ? -1 : 0;
}

static void make_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void file_holds(int dirfd, const char *path, const char *want)
{
    struct buf b = {0};
    assert_int_equal(io_read_all(dirfd, path, 1 << 20, &b), 0);
    assert_string_equal(buf_str(&b), want);
    buf_fini(&b);
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void small_file_is_read_with_a_terminating_nul(void **state)
{
    struct folder *f = *state;
    make_file("a", "hello");
    char buf[6];
    memset(buf, 'G', sizeof(buf));
    assert_int_equal(io_read_small(f->fd, "a", buf, sizeof(buf)), 5);
    assert_string_equal(buf, "hello");
    int fd = open("a", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 2; i++) { /* Both calls must read the file from its start. */
        memset(buf, 'G', sizeof(buf));
        assert_int_equal(io_pread_small(fd, buf, sizeof(buf)), 5);
        assert_string_equal(buf, "hello");
    }
    close(fd);
}

static void file_longer_than_the_buffer_is_truncated_when_read(void **state)
{
    struct folder *f = *state;
    make_file("a", "hello");
    char buf[4] = "GGG";
    assert_int_equal(io_read_small(f->fd, "a", buf, 3), 2);
    assert_memory_equal(buf, "he\0", 4);
    int fd = open("a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(io_pread_small(fd, buf, 4), 3);
    assert_string_equal(buf, "hel");
    close(fd);
    assert_int_equal(io_read_small(f->fd, "a", buf, 0), -EINVAL);
}

static void read_of_a_missing_file_returns_enoent(void **state)
{
    struct folder *f = *state;
    char buf[8];
    struct buf b = {0};
    assert_int_equal(io_read_small(f->fd, "none", buf, sizeof(buf)), -ENOENT);
    assert_int_equal(io_read_all(f->fd, "none", 10, &b), -ENOENT);
    assert_int_equal(io_read_all(f->fd, ".", 10, &b), -EISDIR);
    assert_int_equal(io_pread_small(-1, buf, sizeof(buf)), -EBADF);
    buf_fini(&b);
}

static void file_larger_than_the_maximum_size_is_refused(void **state)
{
    struct folder *f = *state;
    make_file("a", "12345");
    struct buf b = {0};
    buf_add_str(&b, "before:");
    assert_int_equal(io_read_all(f->fd, "a", 4, &b), -EFBIG);
    assert_string_equal(buf_str(&b), "before:");
    assert_int_equal(io_read_all(f->fd, "a", 5, &b), 0);
    assert_string_equal(buf_str(&b), "before:12345");
    assert_int_equal(io_read_all(f->fd, "a", SIZE_MAX, &b), 0);
    assert_string_equal(buf_str(&b), "before:1234512345");
    make_file("empty", "");
    assert_int_equal(io_read_all(f->fd, "empty", 0, &b), 0);
    buf_fini(&b);
}

static void *drain(void *arg)
{
    struct buf *got = arg;
    int fd = *(int *)(void *)got->data;
    char chunk[1000];
    got->len = 0;
    for (ssize_t n; (n = read(fd, chunk, sizeof(chunk))) > 0;)
        got->len += (size_t)n;
    return NULL;
}

static void data_larger_than_the_pipe_buffer_is_written_completely(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    struct buf got = {0};
    buf_add(&got, &p[0], sizeof(p[0]));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drain, &got), 0);
    const size_t len = 3 << 20;
    char *data = calloc(1, len);
    assert_int_equal(io_write_all(p[1], data, len), 0);
    close(p[1]);
    pthread_join(thread, NULL);
    assert_int_equal(got.len, len);
    close(p[0]);
    free(data);
    buf_fini(&got);
}

static void write_to_a_full_nonblocking_pipe_is_an_error(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe2(p, O_NONBLOCK), 0);
    char *data = calloc(1, 3 << 20);
    assert_int_equal(io_write_all(p[1], data, 3 << 20), -EAGAIN);
    free(data);
    close(p[0]);
    close(p[1]);
}

static void file_replacement_leaves_no_temporary_file(void **state)
{
    struct folder *f = *state;
    assert_int_equal(io_replace_file(f->fd, "run.json", "one", 3), 0);
    file_holds(f->fd, "run.json", "one");
    assert_int_equal(io_replace_file(f->fd, "run.json", "second", 6), 0);
    file_holds(f->fd, "run.json", "second");
    assert_int_equal(io_replace_file(AT_FDCWD, "run.json", "", 0), 0);
    file_holds(f->fd, "run.json", "");
    assert_int_equal(entries("."), 1);
}

static void replaced_file_has_the_default_mode(void **state)
{
    struct folder *f = *state;
    mode_t before = umask(027);
    assert_int_equal(io_replace_file(f->fd, "a", "x", 1), 0);
    umask(before);
    struct stat st;
    assert_int_equal(stat("a", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

static void file_can_be_replaced_by_relative_or_absolute_path(void **state)
{
    struct folder *f = *state;
    assert_int_equal(mkdir("sub", 0777), 0);
    assert_int_equal(io_replace_file(f->fd, "sub/a", "x", 1), 0);
    file_holds(f->fd, "sub/a", "x");
    char absolute[128];
    snprintf(absolute, sizeof(absolute), "%s/sub/b", f->path);
    assert_int_equal(io_replace_file(f->fd, absolute, "y", 1), 0);
    file_holds(f->fd, "sub/b", "y");
    assert_int_equal(entries("sub"), 2);
    assert_int_equal(entries("."), 1);
}

/* Hostile programs and crashed processes may leave files under the names of temporary files. */
static void file_replacement_skips_temporary_names_that_already_exist(void **state)
{
    struct folder *f = *state;
    for (int i = 0; i < 200; i++) {
        char stale[64];
        snprintf(stale, sizeof(stale), i ? ".a.tmp.%d.%d" : ".a.tmp.%d", (int)getpid(), i);
        assert_int_equal(symlink("/nowhere/else", stale), 0);
    }
    assert_int_equal(io_replace_file(f->fd, "a", "x", 1), 0);
    file_holds(f->fd, "a", "x");
    assert_int_equal(entries("."), 201);
}

static void only_files_named_like_temporary_files_are_removed(void **state)
{
    struct folder *f = *state;
    static const char *const kept[] = {"a",
                                       ".a.tmp.",
                                       ".a.tmp.12",
                                       ".a.tmp.0123456789abcdeg",
                                       ".b.tmp.0123456789abcdef",
                                       ".a.tmp.0123456789abcdef0"};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        make_file(kept[i], "");
    make_file(".a.tmp.0123456789abcdef", "");
    make_file(".a.tmp.fedcba9876543210", "");
    io_remove_temporaries(f->fd, "a");
    assert_int_equal(entries("."), sizeof(kept) / sizeof(kept[0]));
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        assert_int_equal(access(kept[i], F_OK), 0);
}

static void failed_file_replacement_leaves_no_temporary_file(void **state)
{
    struct folder *f = *state;
    /* A file cannot be renamed over a folder, so the replacement fails. */
    assert_int_equal(mkdir("a", 0777), 0);
    assert_int_equal(io_replace_file(f->fd, "a", "x", 1), -EISDIR);
    assert_int_equal(entries("."), 1);
    assert_int_equal(io_replace_file(f->fd, "none/a", "x", 1), -ENOENT);
    assert_int_equal(io_replace_file(f->fd, "a/", "x", 1), -EISDIR);
}

static void creating_a_folder_also_creates_its_missing_parents(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(io_mkdir_parents("a/b//c/"), 0);
    assert_int_equal(stat("a/b/c", &st), 0);
    assert_int_equal(io_mkdir_parents("a/b/c"), 0);
    assert_int_equal(io_mkdir_parents("a/b/d"), 0);
    assert_int_equal(io_mkdir_parents("/"), 0);
    assert_int_equal(io_mkdir_parents("."), 0);
    assert_int_equal(io_mkdir_parents(""), -ENOENT);
}

static void creating_a_folder_fails_if_part_of_its_path_is_a_file(void **state)
{
    (void)state;
    make_file("f", "");
    assert_int_equal(io_mkdir_parents("f"), -ENOTDIR);
    assert_int_equal(io_mkdir_parents("f/g"), -ENOTDIR);
}

static void creating_a_folder_accepts_a_link_to_a_folder(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir("real", 0777), 0);
    assert_int_equal(symlink("real", "link"), 0);
    assert_int_equal(io_mkdir_parents("link/below"), 0);
    assert_int_equal(stat("real/below", &st), 0);
}

static void pidfd_refers_to_a_live_process_and_closes_on_exec(void **state)
{
    (void)state;
    int fd = io_pidfd_open(getpid());
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(io_pidfd_open(pid), -ESRCH);
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(small_file_is_read_with_a_terminating_nul),
        IN_A_FOLDER(file_longer_than_the_buffer_is_truncated_when_read),
        IN_A_FOLDER(read_of_a_missing_file_returns_enoent),
        IN_A_FOLDER(file_larger_than_the_maximum_size_is_refused),
        cmocka_unit_test(data_larger_than_the_pipe_buffer_is_written_completely),
        cmocka_unit_test(write_to_a_full_nonblocking_pipe_is_an_error),
        IN_A_FOLDER(file_replacement_leaves_no_temporary_file),
        IN_A_FOLDER(replaced_file_has_the_default_mode),
        IN_A_FOLDER(file_can_be_replaced_by_relative_or_absolute_path),
        IN_A_FOLDER(file_replacement_skips_temporary_names_that_already_exist),
        IN_A_FOLDER(only_files_named_like_temporary_files_are_removed),
        IN_A_FOLDER(failed_file_replacement_leaves_no_temporary_file),
        IN_A_FOLDER(creating_a_folder_also_creates_its_missing_parents),
        IN_A_FOLDER(creating_a_folder_fails_if_part_of_its_path_is_a_file),
        IN_A_FOLDER(creating_a_folder_accepts_a_link_to_a_folder),
        cmocka_unit_test(pidfd_refers_to_a_live_process_and_closes_on_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
