/* Reads the heap of the main process by call site, at the two moments that are compared. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "diagnose/facts_private.h"
#include "judge/recorded.h"
#include "profile/folder.h"

enum { SMALL_ALIGNMENT = 16 };
/* start_s and now_s are moved to the times of heap readings. Each may move by settled_share of the
 * time between them or, if there is no reading that near, by aligned_share. In a short run, the
 * heap is read only a few times, so each may move by short_s, but at most by short_share. */
static const double settled_share = 0.1, aligned_share = 0.25;
static const double short_share = 0.55, short_s = 4;
static const double much_less = 0.9;
static const double moved_bytes = 1 << 20;

static uint64_t moment_ns(const struct facts *f, double t_s)
{
    return f->start_ns + (t_s > 0 ? (uint64_t)llround(t_s * 1e9) : 0);
}

/* Returns the last reading at or before T_NS, or else the first one, among the readings that are
 * used to judge growth. */
static const struct profile_reading *reading_at(const struct profile *p, uint64_t t_ns)
{
    size_t n = profile_working(p), at = 0;
    while (at + 1 < n && p->readings[at + 1].t_ns <= t_ns)
        at++;
    return &p->readings[at];
}

static double seconds_of(const struct facts *f, const struct profile_reading *r)
{
    return ((double)r->t_ns - (double)f->start_ns) / 1e9;
}

static double rss_at(const struct facts *f, const struct profile_reading *r)
{
    return facts_at(&f->main->field[SAMPLE_RSS], seconds_of(f, r));
}

static double held_at(const struct facts *f, const struct profile_reading *r)
{
    return profile_live_at(r) + rss_at(f, r);
}

/* Returns the reading from FROM_S to TO_S that is nearest to NEAR_S, or NULL if there are no
 * readings. If live or resident memory was much lower at another of these readings, returns that
 * reading, because the nearest one includes temporary memory of a batch or an evaluation. */
static const struct profile_reading *settled_reading(const struct facts *f, const struct profile *p,
                                                     double from_s, double to_s, double near_s)
{
    const struct profile_reading *nearest = NULL, *least = NULL;
    for (size_t i = 0; i < profile_working(p); i++) {
        const struct profile_reading *r = &p->readings[i];
        double t_s = seconds_of(f, r);
        if (t_s < from_s || t_s > to_s)
            continue;
        if (!nearest || fabs(t_s - near_s) < fabs(seconds_of(f, nearest) - near_s))
            nearest = r;
        if (!least || held_at(f, r) < held_at(f, least))
            least = r;
    }
    bool is_much_less = nearest && (profile_live_at(least) < much_less * profile_live_at(nearest) ||
                                    rss_at(f, least) < much_less * rss_at(f, nearest));
    return is_much_less ? least : nearest;
}

/* Moves the two moments to heap readings, if there are readings nearby. The heap is read less often
 * than RSS, but always at the end of the first step, just before RSS. */
static void align_moments(struct facts *f, const struct profile *p)
{
    const struct profile_reading *start = NULL, *now = NULL;
    double span = f->now_s - f->start_s;
    const double parts[] = {settled_share, aligned_share,
                            fmin(short_share, short_s / fmax(span, short_s))};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double part = parts[i];
        if (!start)
            start = settled_reading(f, p, f->begun_s, f->start_s + part * span, f->begun_s);
        if (!now)
            now = settled_reading(f, p, f->now_s - part * span, f->now_s, f->now_s);
    }
    double start_s = start ? fmax(f->start_s, seconds_of(f, start)) : f->start_s;
    double now_s = now ? seconds_of(f, now) : f->now_s;
    if (now_s > start_s) {
        f->start_s = start_s;
        f->now_s = now_s;
    }
}

/* Adds up the live bytes of each row at reading R. */
static void sum_rows(const struct facts_heap *h, const struct profile_reading *r, double *ret)
{
    memset(ret, 0, h->growth.count * sizeof *ret);
    for (size_t i = 0; i < r->count; i++) {
        int32_t row = h->growth.row_of_site[r->held[i].site];
        if (row >= 0)
            ret[row] += r->held[i].live_bytes;
    }
}

/* Judges the rows of P up to UNTIL_NS (0: the whole run). OF is the verdict on the memory that P
 * profiles: host or GPU memory. */
static int judge_rows(const struct facts *f, const struct profile *p,
                      const struct facts_verdict *of, uint64_t until_ns, struct names **ret_names,
                      struct growth *ret, struct err *err)
{
    struct growth_options o = {.by = GROWTH_BY_LOCATION,
                               .minds_program = true,
                               .job_word = of->is_known ? of->word : VERDICT_UNDECIDED,
                               .until_ns = until_ns};
    const struct symbols_options symbols = {.debuginfod = false};
    size_t before = 0;
    while (before < f->n_all_marks && f->all_marks[before].t_ns < p->start_ns)
        before++;
    o.marks = f->all_marks + before;
    o.n_marks = f->n_all_marks - before;
    int r = names_new(p, &symbols, ret_names);
    return r < 0 ? r : growth_of(p, *ret_names, &o, ret, err);
}

/* Sampled bytes of one call site by kind. ROUNDING is what Python adds to small objects by rounding
 * their sizes up to 16 bytes. The kinds have the same shares at all times, because a call site
 * always allocates in the same way, so they are computed from all samples of the run. */
struct kinds {
    double all, of_malloc, of_python, rounding;
};

static void add_kind(struct kinds *k, const struct profile_sample *one)
{
    double bytes = profile_weight_bytes(one->size, one->interval);
    k->all += bytes;
    if (one->kind == HEAP_KIND_MALLOC || one->kind == HEAP_KIND_NEW)
        k->of_malloc += bytes;
    if (one->kind != HEAP_KIND_PYTHON)
        return;
    k->of_python += bytes;
    k->rounding +=
        profile_weight_objects(one->size, one->interval) * (double)(-one->size % SMALL_ALIGNMENT);
}

/* Returns an array indexed by call site, which the caller frees, or NULL if out of memory. */
static struct kinds *kinds_new(const struct profile *p)
{
    struct kinds *kinds = calloc(p->n_sites ? p->n_sites : 1, sizeof *kinds);
    for (size_t i = 0; kinds && i < p->n_snapshots; i++)
        for (size_t k = 0; k < p->snapshots[i].count; k++)
            if (p->snapshots[i].samples[k].site < p->n_sites)
                add_kind(&kinds[p->snapshots[i].samples[k].site], &p->snapshots[i].samples[k]);
    return kinds;
}

/* Returns the live bytes at R by kind. Memory of a call site without samples is treated as
 * allocated by malloc. */
static struct kinds kinds_at(const struct profile *p, const struct kinds *kinds,
                             const struct profile_reading *r)
{
    struct kinds sum = {0};
    for (size_t i = 0; i < r->count; i++) {
        double bytes = r->held[i].live_bytes;
        struct kinds k = r->held[i].site < p->n_sites ? kinds[r->held[i].site] : (struct kinds){0};
        double part = k.all > 0 ? bytes / k.all : 0;
        sum.all += bytes;
        sum.of_malloc += k.all > 0 ? part * k.of_malloc : bytes;
        sum.of_python += part * k.of_python;
        sum.rounding += part * k.rounding;
    }
    return sum;
}

/* Sets the mapped and the shared fraction of each row. ALL is a scratch buffer with one element per
 * row. */
static void measure_mapped(struct facts_heap *h, uint64_t t_ns, double *all)
{
    const struct profile_snapshot *s = profile_snapshot_at(h->profile, t_ns);
    memset(all, 0, h->growth.count * sizeof *all);
    for (size_t i = 0; s && i < s->count; i++) {
        const struct profile_sample *one = &s->samples[i];
        int32_t row = one->site < h->profile->n_sites ? h->growth.row_of_site[one->site] : -1;
        double bytes = profile_weight_bytes(one->size, one->interval);
        if (row < 0)
            continue;
        bool is_shared = one->kind == HEAP_KIND_SHARED;
        all[row] += bytes;
        h->sites[row].mapped_share += is_shared || one->kind == HEAP_KIND_MAP ? bytes : 0;
        h->sites[row].shared_share += is_shared ? bytes : 0;
    }
    for (size_t i = 0; i < h->growth.count; i++) {
        h->sites[i].mapped_share /= all[i] > 0 ? all[i] : 1;
        h->sites[i].shared_share /= all[i] > 0 ? all[i] : 1;
    }
}

static const struct profile_reading *reading_near(const struct facts *f, const struct profile *p,
                                                  double t_s)
{
    size_t best = 0;
    for (size_t i = 1; i < profile_working(p); i++)
        if (fabs(seconds_of(f, &p->readings[i]) - t_s) <
            fabs(seconds_of(f, &p->readings[best]) - t_s))
            best = i;
    return &p->readings[best];
}

/* Returns the estimated change of malloc's live bytes since the allocator's own count nearest to
 * T_S. That count may be old, because an allocator that is slow to answer is rarely queried.
 * OF_MALLOC is the estimate of malloc's live bytes at T_S. */
static double drift_of(const struct facts *f, const struct profile *p, const struct kinds *kinds,
                       double t_s, double of_malloc)
{
    const struct facts_figure *figure = facts_figure(f, "heap_live_bytes");
    double asked_s = figure ? facts_near_s(&figure->series, t_s) : (double)NAN;
    if (isnan(asked_s))
        return 0;
    return of_malloc - kinds_at(p, kinds, reading_near(f, p, asked_s)).of_malloc;
}

static int measure_rows(const struct facts *f, struct facts_heap *h, struct err *err)
{
    const struct profile *p = h->profile;
    uint64_t from_ns = moment_ns(f, (f->start_s + f->now_s) / 2), to_ns = moment_ns(f, f->now_s);
    AUTO_FREE double *live = calloc(h->growth.count + 1, sizeof *live);
    h->sites = calloc(h->growth.count + 1, sizeof *h->sites);
    if (!live || !h->sites)
        return err_set(err, -ENOMEM, "out of memory");
    sum_rows(h, reading_at(p, moment_ns(f, f->start_s)), live);
    for (size_t i = 0; i < h->growth.count; i++)
        h->sites[i] = (struct facts_site){.start_bytes = live[i],
                                          .floor_bytes = h->growth.rows[i].live_bytes};
    for (size_t k = 0; k < profile_working(p); k++) {
        if (p->readings[k].t_ns < from_ns || p->readings[k].t_ns > to_ns)
            continue;
        sum_rows(h, &p->readings[k], live);
        for (size_t i = 0; i < h->growth.count; i++)
            h->sites[i].floor_bytes = fmin(h->sites[i].floor_bytes, live[i]);
    }
    measure_mapped(h, to_ns, live);
    return 0;
}

static struct facts_moment moment_at(const struct facts *f, const struct profile *p,
                                     const struct kinds *kinds, double t_s)
{
    const struct profile_reading *r = reading_at(p, moment_ns(f, t_s));
    struct kinds k = kinds_at(p, kinds, r);
    double used = k.of_python + k.rounding;
    return (struct facts_moment){.live = profile_live_at(r),
                                 .malloc = k.of_malloc,
                                 .rounding = k.rounding,
                                 .spare = r->arena_bytes ? fmax(0, (double)r->arena_bytes - used)
                                                         : (double)NAN,
                                 .inside = r->inside_bytes ? (double)r->inside_bytes : (double)NAN,
                                 .drift = drift_of(f, p, kinds, t_s, k.of_malloc)};
}

static int measure_moments(const struct facts *f, struct facts_heap *h, struct err *err)
{
    const struct profile *p = h->profile;
    uint64_t now_ns = moment_ns(f, f->now_s);
    const struct profile_reading *now = reading_at(p, now_ns);
    double variance = 0;
    AUTO_FREE struct kinds *kinds = kinds_new(p);
    if (!kinds)
        return err_set(err, -ENOMEM, "out of memory");
    h->start = moment_at(f, p, kinds, f->start_s);
    h->now = moment_at(f, p, kinds, f->now_s);
    for (size_t i = 0; i < now->count; i++)
        variance += now->held[i].live_variance;
    h->sigma = sqrt(variance);
    for (size_t i = 0; i < p->n_readings && p->readings[i].t_ns <= now_ns; i++)
        h->most = fmax(h->most, profile_live_at(&p->readings[i]));
    return 0;
}

/* Returns true if both moments have the same heap reading although memory changed between them. */
static bool has_one_reading(const struct facts *f, const struct profile *p)
{
    const struct facts_series *rss = &f->main->field[SAMPLE_RSS];
    double moved = facts_at(rss, f->now_s) - facts_at(rss, f->start_s);
    return fabs(moved) > moved_bytes &&
           reading_at(p, moment_ns(f, f->start_s)) == reading_at(p, moment_ns(f, f->now_s));
}

/* Sets the reason for a missing profile, from run.json or else from the run folder. */
static void set_why_not(struct facts *f, const json_t *run_json, bool has_history,
                        const struct err *err)
{
    const json_t *heap = json_object_get(run_json, "heap");
    const char *trouble = json_string_value(json_object_get(heap, "trouble"));
    bool is_off = heap && !json_is_true(json_object_get(heap, "on"));
    f->heap.is_on = has_history || (heap && !is_off);
    f->heap.is_unavailable = trouble && !f->heap.is_on;
    snprintf(f->heap.why_not, sizeof f->heap.why_not, "%.250s",
             trouble  ? trouble
             : is_off ? "the heap profiler was off"
                      : err->text);
}

/* Reads reserved and allocated memory of the GPU on which reserved memory exceeds the peak of
 * allocated memory by the most. */
static void facts_read_reserved(const struct folder_heaps *heaps, struct facts_gpu *ret)
{
    double most_spare = -HUGE_VAL;
    ret->reserved_bytes = ret->most_allocated_bytes = (double)NAN;
    for (size_t i = 0; i < heaps->count; i++)
        for (size_t k = 0; k < HEAP_GPUS; k++) {
            const struct profile_gpu *g = &heaps->at[i].profile->gpus[k];
            double spare = (double)g->reserved_bytes - (double)g->allocated_peak_bytes;
            if (g->reports == 0 || spare <= most_spare)
                continue;
            most_spare = spare;
            ret->reserved_bytes = (double)g->reserved_bytes;
            ret->most_allocated_bytes = (double)g->allocated_peak_bytes;
        }
}

static int pick_profile(const struct recorded *recorded, int32_t pid, enum folder_memory memory,
                        struct profile **ret, struct err *err)
{
    struct folder_heap found = {0};
    int r = folder_heaps_pick(recorded_heaps(recorded), pid, memory, &found, err);
    *ret = found.profile;
    found.profile = NULL;
    folder_heap_fini(&found);
    return r;
}

void facts_read_gpu(const struct recorded *recorded, struct facts *f)
{
    struct facts_gpu *g = &f->gpu_heap;
    struct err err = {""};
    facts_read_reserved(recorded_heaps(recorded), g);
    if (pick_profile(recorded, 0, FOLDER_GPU, &g->profile, &err) < 0 ||
        judge_rows(f, g->profile, &f->gpu, 0, &g->names, &g->growth, &err) == 0)
        return;
    names_free(g->names);
    profile_free(g->profile);
    g->names = NULL;
    g->profile = NULL;
}

void facts_heap_fini(struct facts_heap *h)
{
    growth_fini(&h->growth);
    free(h->sites);
    names_free(h->names);
    profile_free(h->profile);
}

void facts_read_heap(const struct recorded *recorded, struct facts *f)
{
    struct facts_heap h = {0};
    struct err err = {"the recording is not in a run folder"};
    struct stat st;
    bool is_folder = stat(recorded->path, &st) == 0 && S_ISDIR(st.st_mode);
    int r = f->main && is_folder
                ? pick_profile(recorded, f->main->id.pid, FOLDER_HOST, &h.profile, &err)
                : -ENOENT;
    h.is_on = r == 0;
    if (r == 0) {
        align_moments(f, h.profile);
        r = has_one_reading(f, h.profile)
                ? err_set(&err, -ENODATA, "the heap was read only once while memory changed")
                : judge_rows(f, h.profile, &f->job, moment_ns(f, f->now_s), &h.names, &h.growth,
                             &err);
    }
    if (r == 0)
        r = measure_rows(f, &h, &err);
    if (r == 0)
        r = measure_moments(f, &h, &err);
    if (r == 0) {
        f->heap = h;
        return;
    }
    facts_heap_fini(&h);
    set_why_not(f, recorded->run_json, h.is_on, &err);
}
