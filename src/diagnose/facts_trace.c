/* The recording: who lived, what was read of each, and the figures that the job sent. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/number.h"
#include "diagnose/facts_private.h"
#include "mark/mark.h"

/* ---- life ---- */

static void process_free(struct store_process *p)
{
    thin_fini(&p->thin);
    free(p);
}

static void store_clear(struct facts_store *s)
{
    for (size_t i = 0; i < s->count; i++)
        process_free(s->processes[i]);
    for (size_t i = 0; i < s->figure_count; i++) {
        thin_fini(&s->figures[i]->thin);
        free(s->figures[i]);
    }
    s->count = s->figure_count = s->hint = 0;
    thin_clear(&s->machine);
    thin_clear(&s->gpu);
}

void store_free(struct facts_store *s)
{
    if (!s)
        return;
    store_clear(s);
    thin_fini(&s->machine);
    thin_fini(&s->gpu);
    free(s);
}

/* ---- processes ---- */

static struct store_process *find(struct facts_store *s, uint32_t slot)
{
    for (size_t k = 0; k < s->count; k++) {
        size_t i = (s->hint + k) % s->count;
        if (s->processes[i]->slot == slot && !s->processes[i]->is_gone) {
            s->hint = i + 1;
            return s->processes[i];
        }
    }
    return NULL;
}

static void describe(struct facts_process *p, const struct process_info *info)
{
    size_t len = info->comm_len < PROCESS_COMM_MAX ? info->comm_len : PROCESS_COMM_MAX;
    p->id = info->id;
    p->role = info->role;
    memcpy(p->name, info->comm, len);
    p->name[len] = '\0';
}

/* Of too many the smallest that has gone makes room. */
static void forget_one(struct facts_store *s)
{
    size_t least = s->count;
    for (size_t i = 0; i < s->count; i++)
        if (s->processes[i]->is_gone &&
            (least == s->count ||
             !(s->processes[i]->facts.peak_bytes >= s->processes[least]->facts.peak_bytes)))
            least = i;
    if (least == s->count)
        return;
    process_free(s->processes[least]);
    s->processes[least] = s->processes[--s->count];
}

static void be_born(struct facts_store *s, double t_s, uint32_t slot,
                    const struct process_info *info)
{
    if (s->count == PROCESSES_MAX)
        forget_one(s);
    if (s->count == PROCESSES_MAX || find(s, slot))
        return;
    struct store_process *p = calloc(1, sizeof *p);
    if (!p)
        return;
    p->slot = slot;
    p->thin.fields = SAMPLE_PROCESS_COUNT;
    p->facts.born_s = t_s;
    p->facts.died_s = (double)INFINITY;
    p->facts.peak_bytes = (double)NAN;
    describe(&p->facts, info);
    s->processes[s->count++] = p;
}

static void take_event(struct facts_store *s, double t_s, const struct trace_item *item)
{
    if (item->process.event == PROCESS_BORN) {
        be_born(s, t_s, item->process.slot, item->process.info);
        return;
    }
    struct store_process *p = find(s, item->process.slot);
    if (!p)
        return;
    if (item->process.event == PROCESS_DIED) {
        p->is_gone = true;
        p->facts.died_s = t_s;
        return;
    }
    describe(&p->facts, item->process.info);
    if (item->process.event == PROCESS_EXECED) {
        thin_clear(&p->thin);
        p->facts.born_s = t_s;
        p->facts.peak_bytes = (double)NAN;
    }
}

/* ---- ticks ---- */

static void values_of(const struct sample *s, size_t fields, double ret[THIN_FIELDS])
{
    for (size_t i = 0; i < fields; i++)
        ret[i] = s->read >> i & 1u ? (double)s->v[i] : (double)NAN;
}

static void take_process(struct facts_store *s, double t_s, const struct trace_row *row)
{
    double v[THIN_FIELDS];
    struct store_process *p = find(s, row->id);
    if (!p)
        return;
    values_of(&row->sample, SAMPLE_PROCESS_COUNT, v);
    thin_add(&p->thin, t_s, v);
    p->facts.peak_bytes = fmax(p->facts.peak_bytes, v[SAMPLE_RSS]);
}

static struct store_figure *figure_of(struct facts_store *s, const struct trace_row *row)
{
    struct store_figure one = {.id = row->id, .thin = {.fields = 1}};
    for (size_t i = 0; i < s->figure_count; i++)
        if (s->figures[i]->id == row->id)
            return s->figures[i];
    if (s->figure_count == FIGURES_MAX || !row->name ||
        !mark_figure_parse(row->name, one.facts.name, sizeof one.facts.name, &one.facts.pid))
        return NULL;
    struct store_figure *f = malloc(sizeof *f);
    if (!f)
        return NULL;
    *f = one;
    s->figures[s->figure_count++] = f;
    return f;
}

static void take_tick(struct facts_store *s, double t_s, const struct trace_item *item)
{
    double v[THIN_FIELDS], gpu = (double)NAN;
    for (size_t i = 0; i < item->tick.count; i++) {
        const struct trace_row *row = &item->tick.rows[i];
        if (row->kind == ENTITY_PROCESS) {
            take_process(s, t_s, row);
        } else if (row->kind == ENTITY_MACHINE) {
            values_of(&row->sample, MACHINE_COUNT, v);
            thin_add(&s->machine, t_s, v);
        } else if (row->kind == ENTITY_GPU && sample_has(&row->sample, GPU_JOB)) {
            gpu = (isnan(gpu) ? 0 : gpu) + (double)row->sample.v[GPU_JOB];
        } else if (row->kind == ENTITY_SERIES) {
            struct store_figure *f = figure_of(s, row);
            values_of(&row->sample, 1, v);
            if (f)
                thin_add(&f->thin, t_s, v);
        }
    }
    if (!isnan(gpu))
        thin_add(&s->gpu, t_s, &gpu);
}

/* ---- marks that are figures ---- */

static double number_of(const struct mark *m, const char *key)
{
    size_t len;
    double v;
    const char *text = mark_get(m, key, &len);
    return text && number_parse_double(text, len, &v) == 0 ? v : (double)NAN;
}

static bool value_is(const struct mark *m, const char *key, const char *word)
{
    size_t len;
    const char *text = mark_get(m, key, &len);
    return text && len == strlen(word) && memcmp(text, word, len) == 0;
}

/* The total at the end says once more what was said before. */
static void take_mark(struct facts *f, const struct mark *m)
{
    kept_take(&f->kept, m);
    if (m->kind != MARK_OTHER || !value_is(m, "KIND", "cleanup") || value_is(m, "NAME", "total"))
        return;
    double freed = number_of(m, "FREED_BYTES"), cost = number_of(m, "SECONDS");
    if (isnan(freed) || isnan(cost))
        return;
    f->cleanup.count++;
    f->cleanup.freed_bytes += freed;
    f->cleanup.cost_s += cost;
}

/* ---- all of it ---- */

/* The job was started again: what was before is another story. */
static void take_note(struct facts *f, const struct trace_item *item)
{
    if (strcmp(item->note.kind, "segment") != 0)
        return;
    store_clear(f->store);
    f->cleanup = (struct facts_cleanup){0};
    f->kept = (struct kept_lists){0};
}

static void take_item(struct facts *f, const struct trace_item *item)
{
    struct facts_store *s = f->store;
    if (!s->start_ns)
        s->start_ns = item->t_ns;
    double t_s = ((double)item->t_ns - (double)s->start_ns) / 1e9;
    s->last_s = fmax(s->last_s, t_s);
    if (item->kind == TRACE_TICK)
        take_tick(s, t_s, item);
    else if (item->kind == TRACE_PROCESS)
        take_event(s, t_s, item);
    else if (item->kind == TRACE_MARK)
        take_mark(f, &item->mark);
    else if (item->kind == TRACE_NOTE)
        take_note(f, item);
}

static int publish(struct facts *f)
{
    struct facts_store *s = f->store;
    f->processes = calloc(s->count ? s->count : 1, sizeof *f->processes);
    f->figures = calloc(s->figure_count ? s->figure_count : 1, sizeof *f->figures);
    if (!f->processes || !f->figures)
        return -ENOMEM;
    for (size_t i = 0; i < s->count; i++) {
        f->processes[i] = s->processes[i]->facts;
        for (size_t k = 0; k < SAMPLE_PROCESS_COUNT; k++)
            f->processes[i].field[k] = thin_series(&s->processes[i]->thin, k);
    }
    f->n_processes = s->count;
    for (size_t i = 0; i < s->figure_count; i++) {
        f->figures[i] = s->figures[i]->facts;
        f->figures[i].series = thin_series(&s->figures[i]->thin, 0);
    }
    f->n_figures = s->figure_count;
    for (size_t i = 0; i < MACHINE_COUNT; i++)
        f->machine[i] = thin_series(&s->machine, i);
    f->gpu_job = thin_series(&s->gpu, 0);
    f->span_s = s->last_s;
    return 0;
}

static void take_header(struct facts *f, const struct trace_reader *reader)
{
    const char *thp;
    f->header = json_deep_copy(trace_reader_header(reader));
    f->is_table = json_object_get(f->header, "imported") != NULL;
    f->store->start_ns = trace_reader_start_mono_ns(reader);
    thp = json_string_value(json_object_get(f->header, "thp"));
    if (thp && strlen(thp) < sizeof f->thp)
        memcpy(f->thp, thp, strlen(thp) + 1);
}

int facts_read_trace(const char *path, struct facts *f, struct err *err)
{
    struct trace_reader_damage damage;
    struct trace_reader *reader;
    struct trace_item item;
    int r = trace_reader_open(path, &reader, err);
    if (r < 0)
        return r;
    f->store = calloc(1, sizeof *f->store);
    if (!f->store) {
        trace_reader_free(reader);
        return err_set(err, -ENOMEM, "out of memory");
    }
    f->store->machine.fields = MACHINE_COUNT;
    f->store->gpu.fields = 1;
    take_header(f, reader);
    while ((r = trace_reader_next(reader, &item)) > 0)
        take_item(f, &item);
    trace_reader_damage(reader, &damage);
    f->is_damaged =
        damage.bad_bytes || damage.cut_bytes || damage.lost_blocks || damage.unknown_blocks;
    trace_reader_free(reader);
    if (r == 0)
        r = publish(f);
    return r < 0 ? err_set(err, r, "cannot read %s: %s", path, strerror(-r)) : 0;
}
