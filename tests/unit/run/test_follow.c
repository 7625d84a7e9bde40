/* Tests reading a recording while it is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "run/run.h"
#include "trace/writer.h"

enum { TICKS = 400, PAUSE = 7 };

struct growing {
    char folder[64];
    int fd;
    struct trace_writer *w;
};

static void growing_begin(struct growing *g, size_t block_cells)
{
    const struct trace_writer_options options = {.block_cells = block_cells};
    json_t *header = json_pack("{s:i}", "start_mono_ns", 1);
    strcpy(g->folder, "/tmp/ebb-follow.XXXXXX");
    assert_non_null(mkdtemp(g->folder));
    g->fd = open(g->folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(trace_writer_new(g->fd, "trace.ebb", header, &options, &g->w, NULL), 0);
    json_decref(header);
}

static void growing_end(struct growing *g)
{
    unlinkat(g->fd, "trace.ebb", 0);
    close(g->fd);
    rmdir(g->folder);
}

static void add_tick(struct growing *g, unsigned i)
{
    struct sample s = {0};
    sample_put(&s, MACHINE_TOTAL, 1000 + i);
    sample_put(&s, MACHINE_AVAILABLE, 7 * i);
    trace_writer_tick_begin(g->w, (i + 1) * NS_PER_S);
    trace_writer_sample(g->w, ENTITY_MACHINE, 0, &s);
    trace_writer_tick_end(g->w);
    trace_writer_flush(g->w, (i + 1) * NS_PER_S, true);
}

/* Each tick is read once, although sealed blocks replace raw parts while the recording is read. */
static void followed_recording_returns_each_tick_once(void **state)
{
    struct growing g = {.fd = -1};
    struct run_follower f = {0};
    struct trace_writer_status status;
    (void)state;
    growing_begin(&g, 64);
    for (unsigned i = 0; i < TICKS; i++) {
        add_tick(&g, i);
        if (i % PAUSE)
            continue;
        do
            trace_writer_status(g.w, &status);
        while (status.bytes_waiting);
        if (!f.run)
            assert_int_equal(run_follow(g.folder, &run_settings_live, NULL, &f, NULL), 0);
        assert_int_equal(run_follow_more(&f, NULL), 0);
        assert_true(f.run->ticks <= i + 1);
    }
    assert_int_equal(trace_writer_close(g.w, NULL, 10 * NS_PER_S), 0);
    assert_int_equal(run_follow_more(&f, NULL), 0);
    assert_int_equal(f.run->ticks, TICKS);
    assert_int_equal(f.run->machine.last.v[MACHINE_TOTAL], 1000 + TICKS - 1);
    assert_int_equal(f.run->damage.lost_blocks, 0);
    run_follow_end(&f);
    run_free(f.run);
    growing_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followed_recording_returns_each_tick_once),
    };
    return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
