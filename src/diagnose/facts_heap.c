/* The heap of main at the two moments, by call site. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "diagnose/facts_private.h"
#include "profile/folder.h"
#include "profile/marks.h"

static const double aligned_share = 0.25;

static uint64_t moment_ns(const struct facts *f, double t_s)
{
    return f->store->start_ns + (t_s > 0 ? (uint64_t)(t_s * 1e9) : 0);
}

/* The reading at or before T_NS, else the first. */
static const struct profile_reading *reading_at(const struct profile *p, uint64_t t_ns)
{
    const struct profile_reading *r = profile_reading_at(p, t_ns);
    return r ? r : p->readings;
}

/* The heap is read less often than RSS: the moments become those at which both were, where that
 * does not lose much of the time between them. */
static void align_moments(struct facts *f, const struct profile *p)
{
    double most_s = aligned_share * (f->now_s - f->start_s), start_s = (double)NAN,
           now_s = (double)NAN;
    for (size_t i = 0; i < p->n_readings; i++) {
        double t_s = ((double)p->readings[i].t_ns - (double)f->store->start_ns) / 1e9;
        if (t_s >= f->start_s && isnan(start_s))
            start_s = t_s;
        if (t_s <= f->now_s)
            now_s = t_s;
    }
    if (start_s - f->start_s <= most_s)
        f->start_s = start_s;
    if (f->now_s - now_s <= most_s && now_s > f->start_s)
        f->now_s = now_s;
}

static double live_of(const struct profile_reading *r, double *ret_variance)
{
    double sum = 0;
    for (size_t i = 0; i < r->count; i++) {
        sum += r->held[i].live_bytes;
        *ret_variance += r->held[i].live_variance;
    }
    return sum;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_place(const struct name *a, const struct name *b)
{
    return a == b || (a->line == b->line && same_text(a->function, b->function) &&
                      same_text(a->file, b->file) && same_text(a->lib, b->lib));
}

/* Rows are by place; a site belongs to the row of its place. */
static void put_starts(struct facts_heap *h, const struct profile_reading *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct name *name = names_of_site(h->names, r->held[i].site);
        size_t row = 0;
        while (row < h->growth.count && !same_place(h->growth.rows[row].name, name))
            row++;
        if (row < h->growth.count)
            h->start_bytes[row] += r->held[i].live_bytes;
    }
}

static int judge(const char *folder, const struct facts *f, struct facts_heap *h, struct err *err)
{
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options o = {.by = GROWTH_BY_LOCATION, .until_ns = moment_ns(f, f->now_s)};
    const struct symbols_options symbols = {.debuginfod = false};
    int r = marks_read(folder, h->profile->pid, h->profile->start_ns, &marks, &o.n_marks, err);
    if (r == 0)
        r = names_new(h->profile, &symbols, &h->names);
    o.marks = marks;
    if (r == 0)
        r = growth_of(h->profile, h->names, &o, &h->growth, err);
    if (r == 0) {
        h->start_bytes = calloc(h->growth.count ? h->growth.count : 1, sizeof *h->start_bytes);
        r = h->start_bytes ? 0 : err_set(err, -1, "out of memory");
    }
    return r;
}

static void measure(const struct facts *f, struct facts_heap *h)
{
    const struct profile *p = h->profile;
    uint64_t now_ns = moment_ns(f, f->now_s);
    double ignored = 0, variance = 0;
    const struct profile_reading *start = reading_at(p, moment_ns(f, f->start_s));
    put_starts(h, start);
    h->start = live_of(start, &ignored);
    h->now = live_of(reading_at(p, now_ns), &variance);
    h->sigma = sqrt(variance);
    for (size_t i = 0; i < p->n_readings && p->readings[i].t_ns <= now_ns; i++)
        h->most = fmax(h->most, live_of(&p->readings[i], &ignored));
}

/* Why there is none: as the run itself says it, else as its folder does. */
static void say_why(struct facts *f, const struct err *err)
{
    const json_t *heap = json_object_get(f->run, "heap");
    const char *trouble = json_string_value(json_object_get(heap, "trouble"));
    snprintf(f->heap.why_not, sizeof f->heap.why_not, "%.250s",
             trouble                                              ? trouble
             : heap && !json_is_true(json_object_get(heap, "on")) ? "the profiler was off"
                                                                  : err->text);
}

void facts_read_heap(const char *folder, struct facts *f)
{
    struct folder_heap found = {0};
    struct facts_heap h = {0};
    struct err err = {"the recording is a trace alone"};
    struct stat st;
    bool is_folder = stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
    int r = f->main && is_folder ? folder_heap_read(folder, f->main->id.pid, &found, &err) : -1;
    if (r == 0) {
        h.profile = found.profile;
        found.profile = NULL;
        align_moments(f, h.profile);
        r = judge(folder, f, &h, &err);
    }
    folder_heap_fini(&found);
    if (r == 0) {
        measure(f, &h);
        f->heap = h;
        return;
    }
    growth_fini(&h.growth);
    free(h.start_bytes);
    names_free(h.names);
    profile_free(h.profile);
    say_why(f, &err);
}
