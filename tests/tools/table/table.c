/* Converts a CSV table to a recording with known content, for tests. Rows and marks are merged by
 * time. Usage: table FILE.csv OUT.ebb [MARKS.jsonl] */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "trace/csv.h"
#include "trace/writer.h"

enum { GROUPS_MAX = 64, MARKS_MAX = 100000 };

struct group {
    char name[32];
    size_t len;
    uint64_t tick; /* newest tick that has a row of this group */
};

struct made {
    struct trace_writer *writer;
    struct group groups[GROUPS_MAX];
    uint32_t count;
    struct mark marks[MARKS_MAX];
    size_t mark_count, next_mark;
    bool has_tick, has_step;
    uint64_t t_ns, tick;
    int64_t step;
};

static void add_mark(struct made *m, const char *text, uint64_t t_ns)
{
    struct mark mark;
    if (mark_parse(text, strlen(text), &mark) < 0)
        abort();
    mark.t_ns = t_ns;
    trace_writer_mark(m->writer, &mark);
}

static void end_tick(struct made *m)
{
    if (m->has_tick) {
        trace_writer_tick_end(m->writer);
        trace_writer_flush(m->writer, m->t_ns, false);
    }
    m->has_tick = false;
}

static void write_marks(struct made *m, uint64_t until_ns)
{
    for (; m->next_mark < m->mark_count && m->marks[m->next_mark].t_ns <= until_ns; m->next_mark++)
        trace_writer_mark(m->writer, &m->marks[m->next_mark]);
}

static uint32_t find_group(struct made *m, const struct csv_row *row, uint64_t t_ns)
{
    struct process_info info = {.comm_len = (uint16_t)row->group_len};
    int64_t pid = 0;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->groups[i].len == row->group_len &&
            memcmp(m->groups[i].name, row->group, row->group_len) == 0)
            return i;
    if (m->count == GROUPS_MAX || row->group_len > sizeof m->groups->name)
        abort();
    memcpy(m->groups[m->count].name, row->group, row->group_len);
    m->groups[m->count].len = row->group_len;
    if (number_parse_i64(row->group, row->group_len, &pid) == 0)
        info.id.pid = (int32_t)pid;
    memcpy(info.comm, row->group, row->group_len);
    end_tick(m);
    trace_writer_process(m->writer, t_ns, PROCESS_BORN, m->count, &info);
    return m->count++;
}

static int take_mark(void *user, double t_s, const struct mark *mark)
{
    struct made *m = user;
    if (m->mark_count == MARKS_MAX)
        abort();
    struct mark *one = &m->marks[m->mark_count++];
    *one = *mark;
    char *text = malloc(mark->len + 1);
    if (!text)
        abort();
    memcpy(text, mark->text, mark->len);
    text[mark->len] = '\0';
    one->text = text;
    one->t_ns = (uint64_t)llround(t_s * 1e6) * NS_PER_US;
    return 0;
}

static int take_row(void *user, const struct csv_row *row)
{
    struct made *m = user;
    double t_s = row->has_t ? row->t_s : (double)row->step;
    uint64_t t_ns = (uint64_t)llround(t_s * 1e6) * NS_PER_US;
    struct sample sample = {0};
    char text[64];
    if (t_ns != m->t_ns)
        end_tick(m);
    write_marks(m, t_ns);
    uint32_t slot = find_group(m, row, t_ns);
    if (row->has_step && !m->mark_count && (!m->has_step || m->step != row->step)) {
        snprintf(text, sizeof text, "KIND=step\nSTEP=%lld\n", (long long)row->step);
        end_tick(m);
        add_mark(m, text, t_ns);
        m->has_step = true;
        m->step = row->step;
    }
    if (m->has_tick && m->groups[slot].tick == m->tick)
        end_tick(m);
    if (!m->has_tick) {
        trace_writer_tick_begin(m->writer, t_ns);
        m->tick++;
    }
    m->has_tick = true;
    m->t_ns = t_ns;
    m->groups[slot].tick = m->tick;
    sample_put(&sample, SAMPLE_RSS, row->value_bytes);
    trace_writer_sample(m->writer, ENTITY_PROCESS, slot, &sample);
    return 0;
}

static int find_time(void *user, const struct csv_row *row)
{
    *(bool *)user = row->has_t;
    return 1;
}

int main(int argc, char **argv)
{
    const struct trace_writer_options options = {.patient = true};
    struct made *m = calloc(1, sizeof *m);
    struct err err = {0};
    bool has_time = true;
    if (!m || argc < 3)
        return 2;
    int r = csv_read(argv[1], NULL, find_time, &has_time, &err);
    json_t *header =
        json_pack("{s:{s:s},s:i,s:i}", "imported", "time", has_time ? "seconds" : "steps",
                  "start_mono_ns", 0, "start_wall_ns", 0);
    if (r >= 0 && argc > 3)
        r = csv_read_marks(argv[3], take_mark, m, &err);
    if (r >= 0)
        r = trace_writer_new(AT_FDCWD, argv[2], header, &options, &m->writer, &err);
    if (r >= 0)
        r = csv_read(argv[1], NULL, take_row, m, &err);
    if (r < 0) {
        fprintf(stderr, "table: %s\n", err.text);
        return 2;
    }
    end_tick(m);
    write_marks(m, UINT64_MAX);
    json_decref(header);
    for (size_t i = 0; i < m->mark_count; i++)
        free((void *)(uintptr_t)m->marks[i].text);
    r = trace_writer_close(m->writer, NULL, 600 * NS_PER_S);
    free(m);
    return r < 0;
}
