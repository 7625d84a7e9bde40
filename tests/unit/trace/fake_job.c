/* Simulates a job with process starts and exits, gaps, marks and readings, all derived from a
 * seed. */
#include "trace/fake_job.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"

static uint64_t pick(struct fake_job *s, uint64_t n)
{
    s->seed = s->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = s->seed ^ s->seed >> 29;
    return (x * UINT64_C(0xBF58476D1CE4E5B9) >> 16) % n;
}

static void lines_add(struct lines *l, struct buf *b)
{
    if (l->count == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->line = realloc(l->line, l->cap * sizeof(char *));
        assert_non_null(l->line);
    }
    l->line[l->count] = strdup(buf_str(b));
    assert_non_null(l->line[l->count]);
    l->count++;
}

void lines_fini(struct lines *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->line[i]);
    free(l->line);
    *l = (struct lines){0};
}

void fake_job_fini(struct fake_job *s)
{
    lines_fini(&s->written);
}

/* ---- rendering ---- */

static void render_row(const struct trace_row *row, bool loose, struct buf *ret)
{
    const struct sample *s = &row->sample;
    uint32_t shown = loose ? s->read : s->known;
    buf_printf(ret,
               " | %d %" PRIu32 " pid %" PRId32 " '%s' read %x stale %x known %x:", (int)row->kind,
               row->id, row->process ? row->process->id.pid : -1, row->name, s->read, s->stale,
               loose ? 0 : s->known);
    for (unsigned f = 0; f < SAMPLE_FIELDS_MAX; f++)
        if (shown >> f & 1)
            buf_printf(ret, " %" PRIx64, s->v[f]);
}

static void render_process(const struct trace_item *item, struct buf *ret)
{
    const struct process_info *p = item->process.info;
    buf_printf(ret,
               " event %d slot %" PRIu32 " %" PRId32 "/%" PRIu64 " ppid %" PRId32 " uid %" PRIu32
               " role %d ",
               (int)item->process.event, item->process.slot, p->id.pid, p->id.start_ticks, p->ppid,
               p->uid, (int)p->role);
    for (unsigned i = 0; i < p->comm_len; i++)
        buf_printf(ret, "%02x", (uint8_t)p->comm[i]);
    buf_add_byte(ret, ' ');
    for (unsigned i = 0; i < p->cmdline_len; i++)
        buf_printf(ret, "%02x", (uint8_t)p->cmdline[i]);
}

void fake_job_render(const struct trace_item *item, bool loose, struct buf *ret)
{
    buf_printf(ret, "%d @%" PRIu64, (int)item->kind, item->t_ns);
    switch (item->kind) {
    case TRACE_TICK:
        for (size_t i = 0; i < item->tick.count; i++)
            render_row(&item->tick.rows[i], loose, ret);
        break;
    case TRACE_PROCESS:
        render_process(item, ret);
        break;
    case TRACE_MARK:
        buf_printf(ret, " pid %" PRId32 " kind %d step %" PRId64 " %" PRIu64 " ", item->mark.pid,
                   (int)item->mark.kind, item->mark.step, item->mark.t_ns);
        buf_add(ret, item->mark.text, item->mark.len);
        break;
    case TRACE_NOTE:
        assert_int_equal(strlen(item->note.text), item->note.len);
        buf_printf(ret, " %s %s", item->note.kind, item->note.text);
        break;
    case TRACE_ENTITY:
        buf_printf(ret, " %d %" PRIu32 " %s", (int)item->entity.kind, item->entity.id,
                   item->entity.name);
        break;
    }
}

static void note_written(struct fake_job *s, const struct trace_item *item)
{
    struct buf b = {0};
    fake_job_render(item, s->loose, &b);
    lines_add(&s->written, &b);
    buf_fini(&b);
}

/* ---- events ---- */

static void tell_process(struct fake_job *s, struct trace_writer *w, unsigned i,
                         enum process_event_kind event)
{
    struct trace_item item = {.kind = TRACE_PROCESS, .t_ns = s->t_ns};
    item.process.event = event;
    item.process.slot = s->process[i].slot;
    item.process.info = &s->process[i].info;
    note_written(s, &item);
    if (w)
        trace_writer_process(w, s->t_ns, event, s->process[i].slot, &s->process[i].info);
}

static void name_process(struct fake_job *s, struct process_info *p)
{
    p->comm_len = (uint16_t)pick(s, 16);
    p->cmdline_len = (uint16_t)pick(s, pick(s, 20) == 0 ? PROCESS_CMDLINE_MAX + 1 : 40);
    for (unsigned i = 0; i < p->comm_len; i++)
        p->comm[i] = (char)(uint8_t)pick(s, 256);
    for (unsigned i = 0; i < p->cmdline_len; i++)
        p->cmdline[i] = (char)(uint8_t)pick(s, 256);
}

static void be_born(struct fake_job *s, struct trace_writer *w, unsigned i)
{
    struct process_info *p = &s->process[i].info;
    s->process[i].alive = true;
    s->process[i].slot = s->next_slot++;
    s->process[i].sample = (struct sample){0};
    *p = (struct process_info){.id = {(int32_t)pick(s, 30000), pick(s, UINT64_MAX)}};
    p->ppid = (int32_t)pick(s, 30000);
    p->uid = (uint32_t)pick(s, UINT32_MAX);
    p->role = (enum process_role)pick(s, ROLE_COUNT);
    name_process(s, p);
    tell_process(s, w, i, PROCESS_BORN);
}

static void change_process(struct fake_job *s, struct trace_writer *w, unsigned i)
{
    struct process_info *p = &s->process[i].info;
    switch (pick(s, 4)) {
    case 0:
        s->process[i].alive = false;
        tell_process(s, w, i, PROCESS_DIED);
        break;
    case 1:
        name_process(s, p);
        tell_process(s, w, i, PROCESS_EXECED);
        break;
    case 2:
        p->ppid = 1;
        tell_process(s, w, i, PROCESS_REPARENTED);
        break;
    default:
        p->role = ROLE_MAIN;
        tell_process(s, w, i, PROCESS_ROLE);
    }
}

static void tell_mark(struct fake_job *s, struct trace_writer *w)
{
    char text[64];
    struct trace_item item = {.kind = TRACE_MARK, .t_ns = s->t_ns};
    struct mark *m = &item.mark;
    m->step = (int64_t)pick(s, 100000);
    m->len = (size_t)snprintf(text, sizeof text, "KIND=step\nSTEP=%" PRId64 "\n", m->step);
    m->text = text;
    m->kind = MARK_STEP;
    m->has = MARK_HAS_STEP;
    m->pid = (int32_t)pick(s, 1000);
    m->t_ns = s->t_ns;
    note_written(s, &item);
    if (w)
        trace_writer_mark(w, m);
}

static void tell_note(struct fake_job *s, struct trace_writer *w)
{
    char text[64];
    struct trace_item item = {.kind = TRACE_NOTE, .t_ns = s->t_ns};
    item.note.len = (size_t)snprintf(text, sizeof text, "{\"n\":%" PRIu64 "}", pick(s, 1000));
    item.note.kind = "limit";
    item.note.text = text;
    note_written(s, &item);
    if (w)
        trace_writer_note(w, s->t_ns, "limit", text);
}

static void tell_names(struct fake_job *s, struct trace_writer *w)
{
    struct trace_item item = {.kind = TRACE_ENTITY, .t_ns = s->t_ns};
    item.entity.kind = ENTITY_GPU;
    item.entity.name = "NVIDIA H200";
    note_written(s, &item);
    item.entity.kind = ENTITY_SERIES;
    item.entity.id = 7;
    item.entity.name = "loss\x1b[2J";
    note_written(s, &item);
    if (!w)
        return;
    trace_writer_entity(w, s->t_ns, ENTITY_GPU, 0, "NVIDIA H200");
    trace_writer_entity(w, s->t_ns, ENTITY_SERIES, 7, "loss\x1b[2J");
}

/* Most changes of a field are a few pages; some values are arbitrary. */
static void read_fields(struct fake_job *s, struct sample *x, unsigned fields)
{
    x->read = x->stale = 0;
    for (unsigned f = 0; f < fields; f++) {
        bool due = s->written.count % (f + 1) == 0;
        uint64_t chance = pick(s, 60), v = x->v[f];
        if (chance == 0)
            due = !due;
        if (chance == 1)
            x->stale |= 1u << f;
        if (!due || chance == 1)
            continue;
        if (pick(s, 4) == 0)
            v += 4096 * (pick(s, 64) - 32);
        if (pick(s, 2000) == 0)
            v = pick(s, 2) ? UINT64_MAX : pick(s, UINT64_MAX);
        sample_put(x, f, v);
    }
}

static void add_row(struct trace_row *rows, size_t *count, enum sample_entity_kind kind,
                    uint32_t id, const struct process_info *p, const char *name,
                    const struct sample *sample)
{
    if (sample->read == 0 && sample->stale == 0)
        return;
    rows[(*count)++] = (struct trace_row){kind, id, p, name, *sample};
}

static int by_id(const void *a, const void *b)
{
    const struct trace_row *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void tell_tick(struct fake_job *s, struct trace_writer *w)
{
    struct trace_row rows[STORY_PROCESSES + 3];
    struct trace_item item = {.kind = TRACE_TICK, .t_ns = s->t_ns};
    size_t n = 0;
    if (pick(s, 10) != 0) {
        read_fields(s, &s->machine, MACHINE_COUNT);
        add_row(rows, &n, ENTITY_MACHINE, 0, NULL, "", &s->machine);
    }
    size_t first = n;
    for (unsigned i = 0; i < STORY_PROCESSES; i++) {
        if (!s->process[i].alive || pick(s, 20) == 0)
            continue;
        read_fields(s, &s->process[i].sample, SAMPLE_FIELDS_MAX);
        add_row(rows, &n, ENTITY_PROCESS, s->process[i].slot, &s->process[i].info, "",
                &s->process[i].sample);
    }
    size_t processes = n - first;
    if (s->with_events) {
        read_fields(s, &s->gpu, GPU_COUNT);
        add_row(rows, &n, ENTITY_GPU, 0, NULL, "NVIDIA H200", &s->gpu);
        read_fields(s, &s->series, 1);
        add_row(rows, &n, ENTITY_SERIES, 7, NULL, "loss\x1b[2J", &s->series);
    }
    if (w)
        trace_writer_tick_begin(w, s->t_ns);
    /* The samples are passed in reverse order, because the result must not depend on the order. */
    for (size_t i = n; w && i-- > 0;)
        trace_writer_sample(w, rows[i].kind, rows[i].id, &rows[i].sample);
    if (w)
        trace_writer_tick_end(w);
    qsort(rows + first, processes, sizeof *rows, by_id);
    item.tick.rows = rows;
    item.tick.count = n;
    note_written(s, &item);
}

void fake_job_tick(struct fake_job *s, struct trace_writer *w)
{
    bool first = s->t_ns == 0;
    if (first)
        s->t_ns = 1000 * NS_PER_S;
    s->t_ns += pick(s, 50) == 0 ? pick(s, 3600 * NS_PER_S) : NS_PER_S + pick(s, 100000);
    if (first && s->with_events)
        tell_names(s, w);
    for (unsigned i = 0; i < STORY_PROCESSES; i++) {
        if (!s->process[i].alive && pick(s, s->with_events ? 10 : 1) == 0)
            be_born(s, w, i);
        else if (s->process[i].alive && s->with_events && pick(s, 60) == 0)
            change_process(s, w, i);
    }
    if (s->with_events && pick(s, 5) == 0)
        tell_mark(s, w);
    if (s->with_events && pick(s, 30) == 0)
        tell_note(s, w);
    tell_tick(s, w);
}

void fake_job_settle(struct trace_writer *w)
{
    struct trace_writer_status st;
    for (;;) {
        trace_writer_status(w, &st);
        if (st.bytes_waiting == 0)
            return;
        usleep(100);
    }
}

/* ---- reading ---- */

void fake_job_read(struct trace_reader *r, bool loose, struct lines *ret)
{
    struct trace_item item;
    struct buf b = {0};
    int rc;
    while ((rc = trace_reader_next(r, &item)) > 0) {
        buf_clear(&b);
        fake_job_render(&item, loose, &b);
        lines_add(ret, &b);
    }
    assert_int_equal(rc, 0);
    buf_fini(&b);
}

void fake_job_read_file(const char *path, struct lines *ret)
{
    struct trace_reader *r;
    struct err err = {0};
    if (trace_reader_open(path, &r, &err) < 0)
        fail_msg("%s", err.text);
    fake_job_read(r, false, ret);
    trace_reader_free(r);
}

void fake_job_check_same(const struct lines *written, const struct lines *read)
{
    for (size_t i = 0; i < written->count && i < read->count; i++)
        assert_string_equal(read->line[i], written->line[i]);
    assert_int_equal(read->count, written->count);
}

/* ---- files ---- */

static char folder[64];

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "%s was not removed\n", folder);
}

const char *fake_job_folder(void)
{
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/ebb-trace-XXXXXX");
        assert_non_null(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

char *fake_job_path(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", fake_job_folder(), name);
    return path;
}

void fake_job_write_file(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(io_write_all(fd, data, len), 0);
    close(fd);
}

void fake_job_read_bytes(const char *path, struct buf *ret)
{
    buf_clear(ret);
    assert_int_equal(io_read_all(AT_FDCWD, path, 1 << 28, ret), 0);
}

void fake_job_file_limit(rlim_t bytes)
{
    struct rlimit rl;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &rl), 0);
    rl.rlim_cur = bytes < rl.rlim_max ? bytes : rl.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
}
