/* Combines all evidence on a job into the probability that it leaks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "judge/judge_model.h"
#include "profile/held.h"

/* Longest time from the creation of a program's heap table until ebb notices that the program has
 * started. */
enum { FIRST_SAMPLE_S = 10 };
/* A process is treated as growing outside the heap if more than this fraction of its growth is
 * outside the heap. */
static const double OUTSIDE = 0.5;
/* A process with more than this fraction of the growth of all processes represents the job. */
static const double MAIN_PART = 0.5;
/* Minimum probability at which a running job past its first epoch is judged as leaking, if the
 * shape of its resident memory also shows a leak. */
static const double SHAPE_LEAK_FROM = 0.8;
/* If no epoch is known, a running job is judged as leaking once the probability of a leak has been
 * at least LASTING_LEAK_FROM for JUDGE_LASTING_S, or is at least SINGLE_LEAK_FROM after
 * SINGLE_AFTER_S. A single high value before that is not enough, because a cache that starts to
 * fill often looks nearly as probable. */
static const double LASTING_LEAK_FROM = 0.6, SINGLE_LEAK_FROM = 0.98;
enum { SINGLE_AFTER_S = 25 };

/* A job that was killed has HAS_ENDED set, but not IS_OVER, because it did not end by itself. */
static bool is_running(const struct judge *j)
{
    return !j->is_over && !j->has_ended;
}

const struct held *judge_held_of(const struct judge *j, const struct run_entity *p)
{
    const struct held *found = NULL;
    for (size_t i = 0; i < j->held_count; i++) {
        const struct held *h = &j->held[i];
        if (h->pid == p->info.id.pid && h->start_ns + FIRST_SAMPLE_S * NS_PER_S >= p->execed_ns &&
            (!p->is_dead || h->start_ns <= p->died_ns) && (!found || h->start_ns > found->start_ns))
            found = h;
    }
    return found;
}

/* Ends each series at the time at which its process finished its work, because later readings are
 * part of the exit. */
static void end_work(struct judge *j)
{
    struct run_entity *e;
    uint64_t last_ns = 0;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        struct judge_series *s = judge_known(e)->series;
        const struct held *found = s && s->series.is_over ? judge_held_of(j, e) : NULL;
        if (!found)
            continue;
        verdict_work_ended(&s->series, (int64_t)found->worked_ns);
        if (e->is_dead &&
            s->is_judged) /* the process was judged at its exit, but there is more evidence now */
            judge_series_judge(s, &s->limit);
        last_ns = found->worked_ns > last_ns ? found->worked_ns : last_ns;
    }
    if (last_ns && j->whole)
        verdict_work_ended(&j->whole->series, (int64_t)last_ns);
}

static uint64_t since_start(const struct judge *j, uint64_t mono_ns)
{
    return mono_ns > j->run->start_mono_ns ? mono_ns - j->run->start_mono_ns : 0;
}

void judge_set_held(struct judge *j, const struct held *list, size_t count)
{
    free(j->held);
    j->held = count && j->run ? calloc(count, sizeof *j->held) : NULL;
    j->held_count = j->held ? count : 0;
    for (size_t i = 0; i < j->held_count; i++) {
        j->held[i] = list[i];
        j->held[i].start_ns = since_start(j, list[i].start_ns);
        j->held[i].worked_ns = since_start(j, list[i].worked_ns);
    }
    if (j->held && j->is_over && !j->clock.has_begun && !j->clock.has_step)
        end_work(j);
}

struct held_window judge_held_window(const struct judge *j, uint64_t until_ns)
{
    struct held_window w = {.until_ns = until_ns};
    const struct verdict_series *v = j->whole ? &j->whole->series : NULL;
    if (v && v->has_step && v->steps_per_epoch) {
        w.epoch_start = v->begin_step;
        w.epoch_end = v->begin_step + (double)v->steps_per_epoch;
    }
    return w;
}

void judge_read_held(struct judge *j, const char *path, uint64_t until_ns)
{
    size_t count;
    const struct held_window w = judge_held_window(j, until_ns);
    AUTO_FREE struct held *list = held_read(path, &w, &count);
    judge_set_held(j, list, count);
}

/* Finds the container of P that gained the most bytes. RET->known is false if P reports none. */
static void find_container(const struct judge *j, const struct run_entity *p, struct trend *ret)
{
    struct verdict_container c;
    *ret = (struct trend){.known = false};
    for (size_t at = 0; judge_next_container(j, p, &at, &c);) {
        struct trend one;
        trend_of(c.bytes, &one);
        if (one.known && (!ret->known || one.growth > ret->growth))
            *ret = one;
    }
}

bool judge_evidence(const struct judge *j, const struct run_entity *p, struct model_evidence *ret)
{
    const struct judge_series *s = p ? judge_known(p)->series : j->whole;
    const struct judge_series *live = p ? judge_live_heap(j, p) : NULL;
    const struct held *found = p ? judge_held_of(j, p) : NULL;
    *ret = (struct model_evidence){.is_whole = !p};
    if (!s || !s->has_first)
        return false;
    ret->moment = s->series.is_over                       ? MODEL_OVER
                  : judge_held_window(j, 0).epoch_end > 0 ? MODEL_PAST_EPOCH
                                                          : MODEL_RUNNING;
    ret->is_worker = p && (p->info.role == ROLE_DATA_WORKER || p->info.role == ROLE_COMPILE_WORKER);
    trend_of(&s->series, &ret->resident);
    if (live)
        trend_of(&live->series, &ret->live);
    if (p)
        find_container(j, p, &ret->container);
    if (found)
        ret->sites = found->sites;
    return ret->resident.known;
}

/* Returns the growth rate at call sites in the later half of the run, in bytes/s. */
static double sites_pace(const struct model_evidence *e)
{
    return e->sites.known && e->sites.kept.seconds > 0
               ? e->sites.grown / (e->sites.kept.seconds / 2)
               : 0;
}

/* Returns true if most of the growth of P is outside the heap: it is explained neither by malloc's
 * statistics nor by the profiler, which also counts small Python objects. */
static bool is_outside_heap(const struct judge *j, const struct run_entity *p)
{
    struct model_evidence e;
    return judge_known(p)->series && judge_evidence(j, p, &e) &&
           judge_outside_heap(j, p) > OUTSIDE &&
           !(e.sites.settled.known && e.sites.settled.growth > (1 - OUTSIDE) * e.resident.growth);
}

/* Returns true if the job has a process with most of its growth outside the heap. */
static bool is_job_outside_heap(const struct judge *j)
{
    struct run_entity *e;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        if (is_outside_heap(j, e))
            return true;
    return false;
}

/* Sets in S the probability that P, or the job, leaks. For a running job whose epochs are unknown,
 * the probability is computed twice: from the call sites as they are now, and as they were
 * HELD_EARLIER_S ago. The lower result is used. A filling cache may seem to grow steadily at one of
 * these times, but rarely at both. */
static void weigh_evidence(const struct judge *j, const struct run_entity *p,
                           struct model_evidence *e, struct judge_series *s)
{
    struct verdict_result *r = &s->result;
    const struct held *found = p ? judge_held_of(j, p) : NULL;
    double features[MODEL_COUNT], contributions[MODEL_COUNT];
    bool is_compared = e->moment == MODEL_RUNNING && found;
    if ((is_compared && found->sites.known && !found->earlier.known) ||
        !model_features(e, features))
        return;
    r->has_probability = true;
    r->probability = model_probability(features, e->moment, r->contributions);
    if (!is_compared)
        return;
    e->sites = found->earlier;
    model_features(e, features);
    double earlier = model_probability(features, e->moment, contributions);
    e->sites = found->sites;
    if (earlier >= r->probability)
        return;
    r->probability = earlier;
    memcpy(r->contributions, contributions, sizeof r->contributions);
}

/* Updates the time in S since which a leak has been probable. */
static void note_probability(const struct judge *j, struct judge_series *s)
{
    if (!s->result.has_probability || s->result.probability < LASTING_LEAK_FROM)
        s->probable_since_ns = 0;
    else if (!s->probable_since_ns)
        s->probable_since_ns = j->run->tick_ns;
}

/* Returns true if the evidence E is sufficient to judge a running job as leaking. The verdict in S
 * is still the one from the shape of memory alone. */
static bool is_running_leak(const struct judge *j, const struct model_evidence *e,
                            const struct judge_series *s)
{
    const struct verdict_result *r = &s->result;
    if (!r->has_probability)
        return false;
    if (e->moment == MODEL_RUNNING)
        return (s->probable_since_ns &&
                j->run->tick_ns - s->probable_since_ns >= JUDGE_LASTING_S * NS_PER_S) ||
               (r->probability >= SINGLE_LEAK_FROM &&
                j->run->tick_ns - j->begun_ns >= SINGLE_AFTER_S * NS_PER_S);
    return verdict_leak_of(r->probability, false) == VERDICT_LEAK_YES ||
           (r->leak == VERDICT_LEAK_YES && r->probability >= SHAPE_LEAK_FROM);
}

static bool is_awaited(const struct judge *j, const struct judge_series *s)
{
    return s && s->probable_since_ns == j->run->tick_ns;
}

bool judge_awaits_confirmation(const struct judge *j)
{
    struct run_entity *e;
    if (!j->run || !is_running(j))
        return false;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        if (is_awaited(j, judge_known(e)->series))
            return true;
    return is_awaited(j, j->whole);
}

static void confirm(struct judge_series *s, const struct judge_series *before)
{
    if (s && before && before->probable_since_ns && s->probable_since_ns)
        s->probable_since_ns = before->probable_since_ns;
}

void judge_confirm(struct judge *j, const struct judge *before)
{
    struct run_entity *e, *b;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));)
        for (size_t k = 0; (b = judge_next(before, RUN_PROCESS, &k));)
            if (e->info.id.pid == b->info.id.pid &&
                e->info.id.start_ticks == b->info.id.start_ticks)
                confirm(judge_known(e)->series, judge_known(b)->series);
    confirm(j->whole, before->whole);
}

/* Returns the process whose baseline grew most, or NULL if its growth is not most of the job's
 * growth. */
static const struct run_entity *main_grower(const struct judge *j)
{
    const struct run_entity *most = NULL;
    double largest = 0, all = 0;
    struct run_entity *e;
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        const struct judge_series *s = judge_series_of(e);
        double growth = s && s->is_judged && s->result.has_floor
                            ? s->result.floor_last_bytes - s->result.floor_first_bytes
                            : 0;
        all += fmax(0, growth);
        if (growth > largest) {
            largest = growth;
            most = e;
        }
    }
    return largest > MAIN_PART * all ? most : NULL;
}

/* Returns true if P has another container that grows at the same time as C and has no maximum
 * number of entries. That container may keep alive what C drops. */
static bool grows_beside(const struct judge *j, const struct run_entity *p,
                         const struct verdict_container *c)
{
    struct verdict_container other;
    for (size_t at = 0; judge_next_container(j, p, &at, &other);)
        if (!(other.most > 0) && verdict_grows_beside(c, &other))
            return true;
    return false;
}

/* OF is the series of P's memory or of the job's memory. Returns true, and sets RET, if a container
 * of P with a maximum number of entries explains most of the growth of OF. */
static bool find_limited(const struct judge *j, const struct run_entity *p,
                         const struct judge_series *of, struct verdict_limited *ret)
{
    const struct judge_series *live = judge_live_heap(j, p);
    struct verdict_container c;
    struct verdict_limited one;
    bool is_outside = false, is_first = true;
    *ret = (struct verdict_limited){.share = 0};
    for (size_t at = 0; judge_next_container(j, p, &at, &c);) {
        if (!(c.most > 0))
            continue;
        if (is_first)
            is_outside = is_outside_heap(j, p);
        is_first = false;
        /* an array is part of the live heap with its full size from the beginning, so the live heap
         * does not show how it fills */
        bool is_live = live && !is_outside && !c.is_array;
        if (!(c.is_array && of == live) &&
            verdict_find_limited(&of->series, is_live ? &live->series : NULL, &c, &one) &&
            one.share > ret->share && !grows_beside(j, p, &c))
            *ret = one;
    }
    return ret->share > 0;
}

/* Revises the verdict on P, or on the job if P is NULL, using the probability of a leak. */
static void settle_by_model(const struct judge *j, const struct run_entity *p,
                            struct judge_series *s)
{
    struct model_evidence e;
    if (!judge_evidence(j, p, &e) || verdict_may_be_first_epoch(&e.resident))
        return;
    struct verdict_result *r = &s->result;
    weigh_evidence(j, p, &e, s);
    note_probability(j, s);
    if (is_running(j) && !is_running_leak(j, &e, s))
        verdict_leave_open(r);
    else if (r->has_probability)
        verdict_settle(r, &s->series, &s->limit,
                       is_running(j) ? VERDICT_LEAK_YES
                                     : verdict_leak_of(r->probability, s->series.is_over),
                       sites_pace(&e), p ? is_outside_heap(j, p) : is_job_outside_heap(j));
}

/* Revises the verdict on P, or on the job if P is NULL. If a container with a maximum number of
 * entries explains the growth, the verdict is filling as long as the container grows. After that,
 * it is not a leak unless other memory grows. */
static void settle_one(const struct judge *j, const struct run_entity *p, struct judge_series *s,
                       bool has_profile)
{
    struct verdict_limited limited = {.share = 0};
    if (!s || !s->is_judged || s->series.is_over != j->is_over)
        return;
    const struct run_entity *grower = p ? p : main_grower(j);
    bool is_limited = grower && find_limited(j, grower, s, &limited) &&
                      verdict_limited_fits(&s->result, &s->limit, &limited);
    if (has_profile && !(is_limited && limited.is_growing))
        settle_by_model(j, p, s);
    if (is_limited && (limited.is_growing || s->result.leak == VERDICT_LEAK_YES))
        verdict_set_limited(&s->result, &s->series, &s->limit, &limited);
}

/* Returns true if the job has a heap profile with enough readings. For a running job, returns true
 * for any heap profile, because more readings may follow. */
static bool has_profile(const struct judge *j)
{
    for (size_t i = 0; i < j->held_count; i++)
        if (is_running(j) || j->held[i].sites.known)
            return true;
    return false;
}

void judge_settle(struct judge *j)
{
    struct run_entity *e;
    bool is_profiled = has_profile(j);
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        settle_one(j, e, judge_known(e)->series, is_profiled);
        settle_one(j, e, judge_live_heap(j, e), false);
    }
}

void judge_settle_whole(struct judge *j)
{
    settle_one(j, NULL, j->whole, has_profile(j));
}

/* Returns true if ONE, and not OTHER, decides the verdict on the job. OTHER may be NULL. The higher
 * probability decides. In a running job, a process that was judged as leaking comes before all
 * others, even if another leak is more probable at the moment. */
static bool is_graver(const struct judge *j, const struct verdict_result *one,
                      const struct verdict_result *other)
{
    if (!other)
        return true;
    if (is_running(j) && (one->leak == VERDICT_LEAK_YES) != (other->leak == VERDICT_LEAK_YES))
        return one->leak == VERDICT_LEAK_YES;
    return one->probability > other->probability;
}

/* Replaced workers are left out, because they will release their memory. */
void judge_settle_job(struct judge *j, const struct verdict_member *members, size_t n)
{
    struct verdict_result *r = &j->tree.result;
    const struct verdict_result *most =
        j->whole && j->whole->is_judged && j->whole->result.has_probability ? &j->whole->result
                                                                            : NULL;
    /* The model does not judge a filling process, which therefore has no probability. */
    bool has_filling = false;
    for (size_t i = 0; i < n; i++) {
        const struct verdict_result *one = members[i].result;
        has_filling |= one->word == VERDICT_FILLING && !members[i].is_replacement;
        if (one->has_probability && !members[i].is_replacement && is_graver(j, one, most))
            most = one;
    }
    r->has_probability =
        most && !(has_filling && verdict_leak_of(most->probability, true) == VERDICT_LEAK_NO);
    if (!r->has_probability)
        return;
    r->probability = most->probability;
    memcpy(r->contributions, most->contributions, sizeof r->contributions);
    for (size_t i = 0; i < r->n_evidence; i++)
        if (r->evidence[i].code == VERDICT_SAID_WEIGHED)
            /* the first evidence of MOST has this code, because verdict_settle put it there */
            r->evidence[i] = most->evidence[0];
    enum verdict_leak leak = !is_running(j) ? verdict_leak_of(most->probability, j->is_over)
                             : most->leak == VERDICT_LEAK_YES ? VERDICT_LEAK_YES
                                                              : VERDICT_LEAK_UNKNOWN;
    r->confidence = fmin(r->confidence, most->confidence);
    if (leak == VERDICT_LEAK_UNKNOWN || r->leak == leak || r->leak == VERDICT_LEAK_YES)
        return;
    r->confidence = most->confidence;
    r->word = most->word;
    r->leak = most->leak;
    r->event = most->event;
    j->tree.of.word = r->word;
    j->tree.of.leak = r->leak;
}
