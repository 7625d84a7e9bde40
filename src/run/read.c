/* Reads a run from a recording in one pass. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/err.h"
#include "run/run.h"

static void run_read_tick(struct run *run, const struct trace_item *item)
{
    run_tick_begin(run, item->t_ns);
    for (size_t i = 0; i < item->tick.count; i++) {
        const struct trace_row *row = &item->tick.rows[i];
        run_sample(run, row->kind, row->id, row->name, &row->sample);
    }
    run_tick_end(run);
}

static void run_read_item(struct run *run, const struct trace_item *item)
{
    switch (item->kind) {
    case TRACE_TICK:
        run_read_tick(run, item);
        break;
    case TRACE_PROCESS:
        run_process(run, item->t_ns, item->process.event, item->process.slot, item->process.info);
        break;
    case TRACE_MARK:
        run_add_mark(run, &item->mark);
        break;
    case TRACE_NOTE:
        run_add_note(run, item->t_ns, item->note.kind, item->note.text, item->note.len);
        break;
    case TRACE_ENTITY:
        break;
    }
}

bool run_is_recording(const char *path)
{
    size_t len = strlen(path);
    struct trace_reader *reader;
    struct stat st;
    if (len >= 4 && strcmp(path + len - 4, ".ebb") == 0)
        return true;
    if (stat(path, &st) < 0 || (len >= 4 && strcmp(path + len - 4, ".csv") == 0))
        return false;
    if (S_ISDIR(st.st_mode))
        return true;
    if (!S_ISREG(st.st_mode) || trace_reader_open(path, &reader, NULL) < 0)
        return false;
    trace_reader_free(reader);
    return true;
}

/* Finds the time, on the recording's clock, at which step N ended. Marks that directly follow a
 * step belong to that step. */
static int find_step(const char *path, uint64_t n, uint64_t *ret_ns, struct err *err)
{
    struct trace_reader *reader;
    struct trace_item item;
    bool has_steps = false, is_past = false;
    uint64_t cut = 0;
    int r = trace_reader_open(path, &reader, err);
    if (r < 0)
        return r;
    while (!is_past && (r = trace_reader_next(reader, &item)) > 0) {
        const struct mark *m = &item.mark;
        if (item.kind != TRACE_MARK || !(m->has & MARK_HAS_STEP) || m->kind == MARK_BEGIN ||
            m->kind == MARK_END)
            continue;
        has_steps = has_steps || m->kind == MARK_STEP;
        if ((uint64_t)m->step <= n)
            cut = item.t_ns;
        is_past = m->kind == MARK_STEP && (uint64_t)m->step > n;
    }
    trace_reader_free(reader);
    if (r < 0)
        return err_set(err, r, "cannot read %s: %s", path, strerror(-r));
    if (!has_steps)
        return err_set(err, -EINVAL, "--until-step %" PRIu64 ": %s has no steps", n, path);
    *ret_ns = cut;
    return 0;
}

static int find_end(const char *path, const struct run_settings *options, uint64_t start_ns,
                    uint64_t *ret_ns, struct err *err)
{
    *ret_ns = UINT64_MAX;
    int r = options->has_until_step ? find_step(path, options->until_step, ret_ns, err) : 0;
    if (r == 0 && options->has_until && start_ns + options->until_ns < *ret_ns)
        *ret_ns = start_ns + options->until_ns;
    return r;
}

/* Returns the job's start on the recording's clock. If the wall clock was set in the meantime, the
 * job's start is far from the start of the recording and is ignored. */
static uint64_t job_start_ns(const struct trace_reader *reader, const struct run_settings *options)
{
    uint64_t mono_ns = trace_reader_start_mono_ns(reader);
    uint64_t wall_ns = trace_reader_start_wall_ns(reader);
    if (wall_ns && options->start_wall_ns > wall_ns &&
        options->start_wall_ns - wall_ns < 60 * NS_PER_S)
        mono_ns += options->start_wall_ns - wall_ns;
    return mono_ns;
}

static void run_take_header(struct run *run, const struct trace_reader *reader)
{
    const json_t *imported = json_object_get(trace_reader_header(reader), "imported");
    const char *time = json_string_value(json_object_get(imported, "time"));
    run->header = json_deep_copy(trace_reader_header(reader));
    run->table.is_imported = imported;
    run->table.is_by_step = time && strcmp(time, "steps") == 0;
    run->start_wall_ns = run->options.start_wall_ns ? run->options.start_wall_ns
                                                    : trace_reader_start_wall_ns(reader);
}

/* Reads all further items from the reader. */
static int run_read_more(struct run *run, struct trace_reader *reader, uint64_t until_ns)
{
    struct trace_item item;
    int r;
    while ((r = trace_reader_next(reader, &item)) > 0) {
        /* a header without a start time is damaged */
        if (!run->start_mono_ns && !run->table.is_imported)
            run->start_mono_ns = item.t_ns;
        if (item.t_ns > until_ns) {
            run->is_cut = true;
            r = 0;
            break;
        }
        run_read_item(run, &item);
    }
    for (size_t i = 0; i < run->phase_count; i++)
        if (run->phases[i].is_open)
            run->phases[i].until_ns = run->now_ns;
    trace_reader_damage(reader, &run->damage);
    return r < 0 ? r : run->has_failed ? -ENOMEM : 0;
}

int run_follow(const char *path, const struct run_settings *options, struct run_observer *observers,
               struct run_follower *ret, struct err *err)
{
    struct run_follower f = {.path = path};
    int r = trace_reader_open(path, &f.reader, err);
    if (r < 0)
        return r;
    r = find_end(path, options, trace_reader_start_mono_ns(f.reader), &f.until_ns, err);
    if (r == 0 && (r = run_new(options, job_start_ns(f.reader, options), &f.run)) < 0)
        err_set(err, r, "cannot read %s: %s", path, strerror(-r));
    if (r < 0) {
        trace_reader_free(f.reader);
        return r;
    }
    f.run->observers = observers;
    run_take_header(f.run, f.reader);
    *ret = f;
    return 0;
}

int run_follow_more(struct run_follower *f, struct err *err)
{
    int r = run_read_more(f->run, f->reader, f->until_ns);
    return r < 0 ? err_set(err, r, "cannot read %s: %s", f->path, strerror(-r)) : 0;
}

void run_follow_end(struct run_follower *f)
{
    trace_reader_free(f->reader);
    f->reader = NULL;
}

int run_read(const char *path, const struct run_settings *options, struct run_observer *observers,
             struct run **ret, struct err *err)
{
    struct run_follower f;
    if (!run_is_recording(path))
        return run_read_csv(path, options, observers, ret, err);
    int r = run_follow(path, options, observers, &f, err);
    if (r < 0)
        return r;
    r = run_follow_more(&f, err);
    run_follow_end(&f);
    if (r < 0) {
        run_free(f.run);
        return r;
    }
    *ret = f.run;
    return 0;
}
