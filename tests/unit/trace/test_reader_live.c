/* Tests the reader on a file that the writer changes between two of the reader's system calls. The
 * states of the file are captured from a real writer and replayed. */
#include "trace/reader.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "trace/fake_job.h"

struct file_state {
    char *data;
    size_t len;
};

/* The states of the file after each system call of the writer's disk thread. */
static struct {
    bool is_on, is_half;
    struct file_state *states;
    size_t count, cap;
} film;

/* Called before each pread of the reader. */
static void (*before_pread)(void);

ssize_t __real_pread(int fd, void *data, size_t len, off_t at); /* NOLINT: the linker's names */
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at); /* NOLINT */
ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at); /* NOLINT */
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at); /* NOLINT */
int __real_ftruncate(int fd, off_t len);                               /* NOLINT */
int __wrap_ftruncate(int fd, off_t len);                               /* NOLINT */

static void film_add(int fd)
{
    struct stat st;
    if (!film.is_on)
        return;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(ARRAY_ROOM(film.states, film.count, film.cap));
    struct file_state *s = &film.states[film.count++];
    s->len = (size_t)st.st_size;
    s->data = malloc(s->len + 1);
    assert_non_null(s->data);
    assert_int_equal(__real_pread(fd, s->data, s->len, 0), s->len);
}

ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
    if (before_pread)
        before_pread();
    return __real_pread(fd, data, len, at);
}

/* Writes the first half of the data at the first call, and the rest at the second. */
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    film.is_half = film.is_on && !film.is_half;
    ssize_t n = __real_pwrite(fd, data, film.is_half ? len - len / 2 : len, at);
    film_add(fd);
    return n;
}

int __wrap_ftruncate(int fd, off_t len)
{
    int r = __real_ftruncate(fd, len);
    film_add(fd);
    return r;
}

/* Records a job of several blocks. */
static void film_make(struct fake_job *s)
{
    char path[256];
    struct trace_writer_options options = {.block_cells = 300};
    struct trace_writer *w;
    unlink(fake_job_path(path, "film.ebb"));
    assert_int_equal(trace_writer_new(AT_FDCWD, path, NULL, &options, &w, NULL), 0);
    film.is_on = true;
    for (unsigned i = 0; i < 15; i++) {
        for (unsigned k = 0; k < 3; k++)
            fake_job_tick(s, w);
        trace_writer_flush(w, s->t_ns, true);
        fake_job_settle(w);
    }
    assert_int_equal(trace_writer_close(w, NULL, 120 * NS_PER_S), 0);
    film.is_on = false;
}

static void film_free(struct fake_job *s)
{
    for (size_t i = 0; i < film.count; i++)
        free(film.states[i].data);
    free(film.states);
    film.states = NULL;
    film.count = film.cap = 0;
    fake_job_fini(s);
}

/* ---- replaying ---- */

static struct {
    int fd;
    size_t at;
    size_t preads, jump_at, jump_to; /* the file changes before the pread with index jump_at */
    size_t jumps;
    uint64_t seed;
} play;

static void play_state(size_t i)
{
    const struct file_state *s = &film.states[i];
    /* a modification time of its own, as if the writer had needed time for each step */
    const struct timespec times[2] = {{.tv_sec = (time_t)i}, {.tv_sec = (time_t)i}};
    play.at = i;
    assert_int_equal(lseek(play.fd, 0, SEEK_SET), 0);
    assert_int_equal(io_write_all(play.fd, s->data, s->len), 0);
    assert_int_equal(ftruncate(play.fd, (off_t)s->len), 0);
    assert_int_equal(futimens(play.fd, times), 0);
}

static void jump_once(void)
{
    if (play.preads++ != play.jump_at)
        return;
    play_state(play.jump_to);
    play.jumps++;
}

/* Advances by up to three states before about every second pread. */
static void walk(void)
{
    play.seed = play.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    size_t steps = play.seed >> 40 & 7, to = play.at + (steps < 4 ? steps : 0);
    play_state(to < film.count ? to : film.count - 1);
}

/* Opens a recording in state FROM and reads it, calling STEP before each pread. Then reads the rest
 * from the final state. Returns true if all items were returned once and in order. */
static bool is_read_completely(const struct fake_job *s, size_t from, void (*step)(void))
{
    char path[256];
    struct lines read = {0};
    struct trace_reader *r;
    struct trace_reader_damage damage;
    play.fd = open(fake_job_path(path, "play.ebb"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(play.fd >= 0);
    play_state(from);
    assert_int_equal(trace_reader_open(path, &r, NULL), 0);
    fake_job_read(r, false, &read);
    play_state(from + 1 < film.count ? from + 1 : from);
    before_pread = step;
    fake_job_read(r, false, &read);
    before_pread = NULL;
    play_state(film.count - 1);
    fake_job_read(r, false, &read);
    trace_reader_damage(r, &damage);
    trace_reader_free(r);
    close(play.fd);
    bool is_same = read.count == s->written.count && damage.lost_blocks == 0;
    for (size_t i = 0; is_same && i < read.count; i++)
        is_same = strcmp(read.line[i], s->written.line[i]) == 0;
    lines_fini(&read);
    return is_same;
}

static void reader_returns_each_item_once_if_the_file_changes_between_two_reads(void **state)
{
    (void)state;
    struct fake_job s = {.seed = 9, .with_events = true};
    film_make(&s);
    for (size_t from = 0; from < film.count; from++) {
        for (play.jump_to = from + 2; play.jump_to < film.count; play.jump_to++) {
            for (play.jump_at = play.preads = 0; play.jump_at <= play.preads; play.jump_at++) {
                play.preads = 0;
                if (!is_read_completely(&s, from, jump_once))
                    fail_msg("from state %zu to %zu of %zu before pread %zu", from, play.jump_to,
                             film.count, play.jump_at);
            }
        }
    }
    assert_true(play.jumps > film.count);
    film_free(&s);
}

static void reader_returns_each_item_once_if_the_file_changes_before_each_read(void **state)
{
    (void)state;
    struct fake_job s = {.seed = 10, .with_events = true};
    film_make(&s);
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        play.seed = seed;
        if (!is_read_completely(&s, seed % film.count, walk))
            fail_msg("walk %d", (int)seed);
    }
    film_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_returns_each_item_once_if_the_file_changes_between_two_reads),
        cmocka_unit_test(reader_returns_each_item_once_if_the_file_changes_before_each_read),
    };
    fake_job_folder();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
