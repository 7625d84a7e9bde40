/* Tests a log stored in pieces: which pieces are kept or removed, and reading by offset. */
#include "trace/logs.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "trace/fake_job.h"

enum { CAP = 64 << 10, PIECE = CAP / LOGS_PIECES, MEMORY = 4 << 20 };
#define LONG_NS (120 * NS_PER_S)

static int new_folder(const char *name)
{
    char path[256];
    assert_int_equal(mkdir(fake_job_path(path, name), 0777), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Returns the byte that the tests write at OFFSET of the log. It depends on OFFSET, so that
 * misplaced pieces are detected. */
static char byte_at(uint64_t offset)
{
    return (char)('a' + offset * 7 % 26 + offset / 26 % 3);
}

static void write_log(int dirfd, uint64_t cap, uint64_t bytes)
{
    struct logs *l = NULL;
    char part[1000];
    assert_int_equal(logs_open(dirfd, cap, MEMORY, &l), 0);
    for (uint64_t at = 0; at < bytes;) {
        size_t n = bytes - at < sizeof part ? (size_t)(bytes - at) : sizeof part;
        for (size_t i = 0; i < n; i++)
            part[i] = byte_at(at + i);
        assert_int_equal(logs_add(l, part, n), 0);
        at += n;
    }
    assert_int_equal(logs_bytes(l), bytes);
    assert_int_equal(logs_close(l, LONG_NS), 0);
}

/* Reads the log from OFFSET to its end and checks every byte. Returns the number of bytes, and the
 * offset of the first one in *ret_first. */
static uint64_t read_from(int dirfd, uint64_t offset, uint64_t *ret_first)
{
    char part[777];
    uint64_t at, total = 0;
    for (;;) {
        ssize_t n = logs_read(dirfd, offset, part, sizeof part, &at);
        assert_true(n >= 0 && at >= offset);
        if (n == 0)
            return total;
        if (total == 0)
            *ret_first = at;
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(part[i], byte_at(at + (uint64_t)i));
        total += (uint64_t)n;
        offset = at + (uint64_t)n;
    }
}

static uint64_t bytes_in_folder(int dirfd)
{
    uint64_t total = 0;
    struct stat st;
    DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));)
        if (fstatat(dirfd, e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            total += (uint64_t)st.st_size;
    closedir(dir);
    return total;
}

static void log_without_a_size_limit_is_one_file(void **state)
{
    (void)state;
    uint64_t first = 1;
    int dirfd = new_folder("plain");
    write_log(dirfd, 0, 300000);
    assert_int_equal(read_from(dirfd, 0, &first), 300000);
    assert_int_equal(first, 0);
    assert_int_equal(read_from(dirfd, 299990, &first), 10);
    assert_int_equal(first, 299990);
    assert_int_equal(read_from(dirfd, 300000, &first), 0);
    struct stat st;
    assert_int_equal(fstatat(dirfd, "log.txt", &st, 0), 0);
    assert_int_equal(st.st_size, 300000);
    close(dirfd);
}

static void log_with_a_size_limit_keeps_the_first_and_newest_pieces(void **state)
{
    (void)state;
    const uint64_t sizes[] = {0, 1, PIECE, PIECE + 1, CAP - 1, CAP, CAP + 1, 10 * CAP + 123};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[16];
        uint64_t first, total = sizes[i], end = 0;
        struct logs_piece piece;
        snprintf(name, sizeof name, "cap%zu", i);
        int dirfd = new_folder(name);
        write_log(dirfd, CAP, total);
        assert_true(bytes_in_folder(dirfd) <= CAP);
        uint64_t there = read_from(dirfd, 0, &first);
        assert_int_equal(there, bytes_in_folder(dirfd));
        if (total <= CAP)
            assert_int_equal(there, total);
        else
            assert_true(there > CAP - PIECE);
        if (logs_find(dirfd, 0, &piece, &end) == 0) {
            assert_int_equal(piece.start, 0); /* The first piece of a log is never removed. */
            close(piece.fd);
        }
        assert_int_equal(end, total);
        close(dirfd);
    }
}

static void reading_in_a_removed_log_piece_continues_at_the_next_piece(void **state)
{
    (void)state;
    uint64_t at = 0, first = 0;
    char byte;
    int dirfd = new_folder("dropped");
    write_log(dirfd, CAP, 20 * CAP);
    assert_int_equal(logs_read(dirfd, PIECE - 1, &byte, 1, &at), 1);
    assert_int_equal(at, PIECE - 1);
    assert_int_equal(logs_read(dirfd, PIECE, &byte, 1, &at), 1);
    assert_true(at > 19 * (uint64_t)CAP);
    assert_int_equal(byte, byte_at(at));
    assert_int_equal(read_from(dirfd, at - 1, &first), 20 * CAP - at);
    assert_int_equal(first, at);
    assert_int_equal(logs_read(dirfd, 99 * (uint64_t)CAP, &byte, 1, &at), 0);
    assert_int_equal(at, 99 * (uint64_t)CAP);
    close(dirfd);
}

static void foreign_files_in_the_run_folder_are_not_read_as_log_pieces(void **state)
{
    (void)state;
    char path[256], byte;
    uint64_t at = 7, first;
    int dirfd = new_folder("strange");
    write_log(dirfd, CAP, 100);
    fake_job_write_file(fake_job_path(path, "strange/log.0100.txt"), "x", 1);
    fake_job_write_file(fake_job_path(path, "strange/log.-5.txt"), "x", 1);
    fake_job_write_file(fake_job_path(path, "strange/log.99999999999999999999.txt"), "x", 1);
    fake_job_write_file(fake_job_path(path, "strange/log.5.txt.bak"), "x", 1);
    assert_int_equal(read_from(dirfd, 0, &first), 100);
    assert_int_equal(symlinkat("/etc/passwd", dirfd, "log.100.txt"), 0);
    assert_int_equal(logs_read(dirfd, 100, &byte, 1, &at), -ELOOP);
    assert_int_equal(unlinkat(dirfd, "log.100.txt", 0), 0);
    /* Opening the FIFO must not wait for a writer. */
    assert_int_equal(mkfifoat(dirfd, "log.100.txt", 0666), 0);
    assert_int_equal(logs_read(dirfd, 100, &byte, 1, &at), -EINVAL);
    close(dirfd);
}

/* The number of pieces is limited because each search for a piece lists the whole folder. */
static void folder_with_too_many_log_pieces_is_refused(void **state)
{
    (void)state;
    int dirfd = new_folder("crowd");
    struct logs_piece piece;
    uint64_t end = 0;
    write_log(dirfd, CAP, 3 * CAP);
    assert_int_equal(logs_find(dirfd, 0, &piece, &end), 0);
    close(piece.fd);
    for (unsigned i = 1; i < 1000; i++) {
        char name[40];
        snprintf(name, sizeof name, "log.%u.txt", i);
        int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(logs_find(dirfd, 0, &piece, &end), -EMFILE);
    close(dirfd);
}

static void reported_log_size_on_disk_never_exceeds_the_file_sizes(void **state)
{
    (void)state;
    struct logs *l = NULL;
    char part[5000];
    uint64_t end = 0;
    struct logs_piece piece;
    int dirfd = new_folder("behind");
    memset(part, 'x', sizeof part);
    assert_int_equal(logs_open(dirfd, CAP, MEMORY, &l), 0);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(logs_add(l, part, sizeof part), 0);
        uint64_t on_disk = logs_on_disk(l);
        if (logs_find(dirfd, 0, &piece, &end) == 0)
            close(piece.fd);
        assert_true(on_disk <= end);
    }
    while (logs_on_disk(l) < logs_bytes(l))
        usleep(1000);
    assert_int_equal(logs_close(l, LONG_NS), 0);
    close(dirfd);
}

static void log_size_limit_below_the_minimum_is_refused(void **state)
{
    (void)state;
    struct logs *l = NULL;
    int dirfd = new_folder("small");
    assert_int_equal(logs_open(dirfd, LOGS_CAP_MIN - 1, MEMORY, &l), -EINVAL);
    assert_null(l);
    assert_int_equal(logs_close(NULL, 0), 0);
    close(dirfd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_without_a_size_limit_is_one_file),
        cmocka_unit_test(log_with_a_size_limit_keeps_the_first_and_newest_pieces),
        cmocka_unit_test(reading_in_a_removed_log_piece_continues_at_the_next_piece),
        cmocka_unit_test(foreign_files_in_the_run_folder_are_not_read_as_log_pieces),
        cmocka_unit_test(folder_with_too_many_log_pieces_is_refused),
        cmocka_unit_test(reported_log_size_on_disk_never_exceeds_the_file_sizes),
        cmocka_unit_test(log_size_limit_below_the_minimum_is_refused),
    };
    fake_job_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
