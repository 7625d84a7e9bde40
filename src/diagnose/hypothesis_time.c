/* Hypotheses about when memory grew: before training, in the first epoch, or not at all. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* A jump begins when memory has risen by the fraction jump_begun of the jump's height, and is
 * complete at the fraction jump_done. Growth that takes more than JUMP_STEPS steps is gradual, not
 * a jump. */
static const double jump_begun = 0.1, jump_done = 0.8;
/* A jump explains the growth if it is at least this fraction of the growth. */
static const double jump_share = 0.7;
enum { JUMP_STEPS = 2 };
/* Memory that was first written to after the start explains the growth if it is at least this
 * fraction of the growth. */
static const double touched_least = 0.5;

/* ---- nothing grows ---- */

void test_no_growth(const struct question *q, struct hypothesis *h)
{
    if (isnan(q->growth)) {
        evidence_absent(h, "the process's memory was not sampled");
        return;
    }
    h->share = q->has_grown ? 0 : 1;
    if (q->has_grown) {
        evidence_against(h, DECIDES, "memory grew by %s, from %s to %s", SIZE(q->total),
                         SIZE(q->base), SIZE(q->base + q->growth));
        return;
    }
    double before = leakable_at(q, q->f->begun_s) - leakable_at(q, q->f->loaded_s);
    if (q->word == VERDICT_PLATEAUED && is_worth_diagnosing(q, before))
        evidence_for(h, FAIR, "the baseline went from %s to %s, after start-up had added %s",
                     SIZE(early_baseline(q)), SIZE(late_baseline(q)), SIZE(before));
    else
        evidence_for(
            h, facts_has_ended(q->word) ? STRONG : WEAK, "the baseline went from %s to %s: %s",
            SIZE(early_baseline(q)), SIZE(late_baseline(q)),
            !facts_has_ended(q->word)      ? "the change is within the noise"
            : q->word != VERDICT_PLATEAUED ? "the verdict found no growth"
            : has_grown_a_little(q)        ? "growth has stopped and was small"
                                    : "growth stopped early; the verdict found no later growth");
    if (q->word == VERDICT_UNDECIDED)
        decide_by(h, "run longer: the verdict is still undecided");
}

/* ---- loading the data ---- */

enum { POINTS = 41, WINDOW = 2 };

/* A rise of memory that was never released: all readings after it are above all readings before
 * it. */
struct jump {
    double bytes, from_s, to_s;
    int64_t steps;
    bool is_most;
};

/* Memory at points between the two compared moments, and the minimum from each point on. */
struct course {
    double t_s[POINTS], v[POINTS], after[POINTS];
};

static struct course course_of(const struct question *q)
{
    struct course c;
    double span = q->f->now_s - q->f->start_s;
    for (int i = 0; i < POINTS; i++) {
        c.t_s[i] = q->f->start_s + span * i / (POINTS - 1);
        c.v[i] = c.after[i] = leakable_at(q, c.t_s[i]);
    }
    for (int i = POINTS - 1; i-- > 0;)
        c.after[i] = fmin(c.v[i], c.after[i + 1]);
    return c;
}

static void rise_between(const struct question *q, const struct course *c, double from_s,
                         double to_s, struct jump *best)
{
    double before = leakable_at(q, from_s), after = leakable_at(q, to_s);
    int i = 0;
    for (; i < POINTS && c->t_s[i] <= from_s; i++)
        before = fmax(before, c->v[i]);
    while (i < POINTS && c->t_s[i] < to_s)
        i++;
    after = i < POINTS ? fmin(after, c->after[i]) : after;
    if (after - before > best->bytes)
        *best = (struct jump){.bytes = after - before, .from_s = from_s, .to_s = to_s};
}

/* Returns the largest jump within a twentieth of the compared time. A step that took longer than
 * that may contain the whole jump. */
static struct jump largest_jump(const struct question *q)
{
    struct course c = course_of(q);
    struct jump best = {0};
    double window_s = c.t_s[WINDOW] - c.t_s[0], last_s = (double)NAN;
    for (int i = 0; i + WINDOW < POINTS; i++)
        rise_between(q, &c, c.t_s[i], c.t_s[i + WINDOW], &best);
    for (size_t i = 0; i < q->f->n_marks; i++) {
        double t_s = q->f->marks[i].t_s;
        if (q->f->marks[i].kind != VERDICT_MARK_STEP || t_s < q->f->start_s || t_s > q->f->now_s)
            continue;
        if (t_s - last_s > window_s)
            rise_between(q, &c, last_s, t_s, &best);
        last_s = t_s;
    }
    return best;
}

/* Returns the number of steps that J took. A rise that is complete within two readings is treated
 * as immediate, even if many steps lie between the readings. */
static int64_t steps_of_jump(const struct question *q, const struct jump *j)
{
    const struct facts_series *rss = &q->f->main->field[SAMPLE_RSS];
    double before = leakable_at(q, j->from_s), from_s = j->from_s;
    int64_t readings = 0, steps = 0;
    for (size_t i = 0; i < rss->count && rss->t_s[i] <= j->to_s; i++) {
        double t_s = rss->t_s[i];
        double risen = t_s > j->from_s ? leakable_at(q, t_s) - before : 0;
        if (risen < jump_begun * j->bytes) {
            from_s = fmax(from_s, t_s);
            readings = 0;
            continue;
        }
        readings++;
        if (risen < jump_done * j->bytes)
            continue;
        for (size_t k = 0; k < q->f->n_marks; k++)
            steps += q->f->marks[k].kind == VERDICT_MARK_STEP && q->f->marks[k].t_s > from_s &&
                     q->f->marks[k].t_s <= t_s;
        return readings > 2 ? steps : 0;
    }
    return 0;
}

/* Adds evidence against H if the growth is free memory, because the memory of a cache or of loaded
 * data is live. */
static void test_is_live(const struct question *q, struct hypothesis *h)
{
    struct floors floors = baselines_of(q);
    double kept = q->l->knows_retained ? ledger_beside_growth(q->l) : 0;
    if (floors.is_freed)
        evidence_add_baselines(h, EVIDENCE_AGAINST, STRONG + FAIR, &floors);
    else if (kept > q->total / 2)
        evidence_against(h, STRONG + FAIR, "%s of the growth of %s is free memory", SIZE(kept),
                         SIZE(q->total));
    h->share = fmin(h->share, share_of(q, q->total - kept));
}

static struct jump jump_of(const struct question *q)
{
    struct jump j = largest_jump(q);
    j.steps = j.bytes > 0 ? steps_of_jump(q, &j) : 0;
    j.is_most = j.bytes > 0 && j.bytes >= jump_share * q->total;
    return j;
}

bool came_at_once(const struct question *q)
{
    struct jump j = jump_of(q);
    return j.is_most && j.steps <= JUMP_STEPS;
}

static void test_one_jump(const struct question *q, struct hypothesis *h)
{
    struct jump j = jump_of(q);
    double jump = j.bytes;
    if (j.is_most && j.steps > JUMP_STEPS) {
        evidence_against(h, STRONG,
                         "memory grew gradually: %s of the growth of %s took %" PRId64 " steps",
                         SIZE(jump), SIZE(q->total), j.steps);
    } else if (j.is_most) {
        h->share = share_of(q, jump);
        evidence_for(h, STRONG, "%s of the growth of %s came in one jump, %.0f s after the start",
                     SIZE(jump), SIZE(q->total), j.from_s);
        test_is_live(q, h);
    } else {
        evidence_against(h, STRONG,
                         "memory grew gradually: at most %s of the growth of %s came in any "
                         "twentieth of the run",
                         SIZE(jump), SIZE(q->total));
    }
}

void test_data_load(const struct question *q, struct hypothesis *h)
{
    if (isnan(q->growth)) {
        evidence_absent(h, "the process's memory was not sampled");
        return;
    }
    if (q->is_growing) {
        evidence_against(h, is_leak(q->word) ? DECIDES : STRONG, "memory kept growing after %s: %s",
                         q->f->n_marks ? "training began" : "start-up", CHANGE(q->growth));
        return;
    }
    if (q->has_grown) {
        test_one_jump(q, h);
        return;
    }
    double level = late_baseline(q);
    double before = fmin(level, q->base - leakable_at(q, q->f->main->born_s));
    h->share = level > 0 && before > 0 ? before / level : 0;
    if (before > level / 4)
        evidence_for(
            h, FAIR, "%s of the final %s was allocated before %s, and memory has been flat since",
            SIZE(before), SIZE(level), q->f->n_marks ? "training began" : "the end of start-up");
    else
        evidence_against(h, FAIR, "only %s of the final %s was allocated at the start",
                         SIZE(before), SIZE(level));
    if (q->f->n_marks == 0)
        evidence_absent(h, "no marks: the start of training is unknown");
}

/* ---- the first epoch ---- */

/* Returns the time at which the first epoch ended, or NAN if it has not ended or its length is
 * unknown. */
static double first_epoch_end(const struct facts *f)
{
    for (size_t i = 0; i < f->n_marks; i++) {
        const struct facts_mark *m = &f->marks[i];
        if (m->kind == VERDICT_MARK_EPOCH ||
            (m->kind == VERDICT_MARK_STEP && f->steps_per_epoch && m->step >= 0 &&
             (uint64_t)m->step >= f->steps_per_epoch))
            return m->t_s;
    }
    return (double)NAN;
}

/* Returns the time at which half of the steps from START_S to END_S were completed. This splits the
 * growth by steps, because growth per second also depends on the speed of the machine. */
static double half_of_steps(const struct facts *f, double start_s, double end_s)
{
    int64_t first = -1, last = -1;
    for (size_t i = 0; i < f->n_marks; i++) {
        const struct facts_mark *m = &f->marks[i];
        if (m->kind != VERDICT_MARK_STEP || m->step < 0 || m->t_s < start_s || m->t_s > end_s)
            continue;
        first = first < 0 ? m->step : first;
        last = m->step;
    }
    for (size_t i = 0; i < f->n_marks && first >= 0; i++)
        if (f->marks[i].kind == VERDICT_MARK_STEP &&
            f->marks[i].step >= first + (last - first) / 2 && f->marks[i].t_s >= start_s)
            return f->marks[i].t_s;
    return (start_s + end_s) / 2;
}

/* Tests whether growth is steady: a cache grows by the same amount for each example, a warm-up by
 * less and less. */
static void test_even_pace(const struct question *q, struct hypothesis *h, double end_s)
{
    double start_s = q->f->start_s, middle_s = half_of_steps(q->f, start_s, end_s);
    double first = leakable_at(q, middle_s) - leakable_at(q, start_s);
    double second = leakable_at(q, end_s) - leakable_at(q, middle_s);
    if (!(first > 0 && second > 0))
        return;
    bool is_even = second > 0.6 * first && second < 1.7 * first;
    bool has_examples = is_even && q->f->examples;
    /* at first, a filling cache uses memory that was already resident */
    double against = q->word == VERDICT_FILLING ? WEAK : FAIR + WEAK;
    evidence_add(
        h, is_even ? EVIDENCE_FOR : EVIDENCE_AGAINST, is_even ? FAIR : against,
        "memory changed by %s in the first half of the epoch and by %s in the second%s%s%s",
        CHANGE(first), CHANGE(second), has_examples ? ": about " : "",
        has_examples ? SIZE((first + second) / (double)q->f->examples) : "",
        has_examples ? " per example" : "");
}

static void name_filled_site(const struct question *q, struct hypothesis *h)
{
    const struct facts_heap *heap = &q->f->heap;
    for (size_t i = 0; i < heap->growth.count; i++) {
        const struct growth_row *row = &heap->growth.rows[i];
        double grown = ledger_row_growth(q->f, q->l, i);
        if (is_leak(row->verdict.word) || grown < 0.3 * q->total)
            continue;
        h->site = row;
        evidence_for(h, WEAK, "%s of the growth was allocated at %s (verdict: %s)", SIZE(grown),
                     PLACE(row), verdict_word_name(row->verdict.word));
        return;
    }
}

/* Returns the step at which the first epoch ended or will end, or -1 if unknown. */
static int64_t first_epoch_end_step(const struct facts *f, double end_s)
{
    int64_t last = -1;
    if (f->steps_per_epoch)
        return (int64_t)f->steps_per_epoch;
    for (size_t i = 0; i < f->n_marks && f->marks[i].t_s <= end_s; i++)
        if (f->marks[i].kind == VERDICT_MARK_STEP)
            last = f->marks[i].step;
    return last;
}

/* Tests whether growth ended with the first epoch. END_S is the end of that epoch, or NAN if
 * unknown. */
static void test_filled(const struct question *q, struct hypothesis *h, double end_s)
{
    const struct facts_verdict *v = &q->f->main->verdict;
    const int64_t epoch_end = first_epoch_end_step(q->f, end_s);
    double until_s = isnan(end_s) ? q->f->now_s : end_s;
    double until = leakable_at(q, until_s) - q->base;
    char at_step[32] = "";
    bool has_steps = v->ended_step >= 0 && epoch_end > 0;
    bool is_near = has_steps && llabs(v->ended_step - epoch_end) <= epoch_end / 10 + 1;
    if (v->ended_step >= 0)
        snprintf(at_step, sizeof at_step, " at step %" PRId64, v->ended_step);
    if (v->ended_at == VERDICT_AT_FIRST_EPOCH || is_near) {
        h->share = share_of(q, until);
        evidence_for(h, h->share > 0.6 ? STRONG : FAIR,
                     "memory grew by %s, and growth stopped when the first epoch ended%s%s",
                     SIZE(fmax(0, until)), *at_step ? "," : "", at_step);
        test_even_pace(q, h, until_s);
        name_filled_site(q, h);
        test_is_live(q, h);
    } else if (epoch_end <= 0) {
        evidence_against(h, STRONG, "growth ended%s, not at the end of the first epoch", at_step);
    } else {
        evidence_against(h, STRONG,
                         q->f->steps_per_epoch
                             ? "growth ended%s, but the first epoch has %" PRId64 " steps"
                             : "growth ended%s, but the first epoch ended at step %" PRId64,
                         at_step, epoch_end);
    }
}

static void test_grew_beyond(const struct question *q, struct hypothesis *h, double end_s)
{
    double beyond = q->base + q->growth - leakable_at(q, end_s);
    bool is_decided = is_leak(q->word) && q->f->now_s > end_s && beyond > 0.1 * q->growth;
    if (is_decided)
        evidence_against(h, DECIDES, "%s of the growth came after the first epoch", SIZE(beyond));
    else
        evidence_against(h, WEAK, "the verdict is \"%s\"", verdict_word_name(q->word));
}

/* Tests whether the job is now writing to memory that it allocated earlier. Such growth ends when
 * all of that memory has been written. */
static bool test_first_written(const struct question *q, struct hypothesis *h)
{
    double touched = ledger_growth(q->l, LEDGER_TOUCHED);
    if (!q->has_grown || touched < touched_least * q->total)
        return false;
    h->share = share_of(q, touched);
    h->site = ledger_site(q->l, LEDGER_TOUCHED);
    evidence_for(h, STRONG,
                 "the heap did not grow; at least %s of it was not resident at the start, and %s "
                 "has become resident since",
                 SIZE(q->l->untouched_bytes), SIZE(touched));
    if (h->site)
        evidence_for(h, WEAK, "%s was allocated at %s", SIZE(h->site->live_bytes), PLACE(h->site));
    return true;
}

/* Tests whether a container with a maximum number of entries is filling. The verdict has already
 * found out whether the container explains the growth of memory. */
static bool test_limited(const struct question *q, struct hypothesis *h)
{
    const struct kept_list *l = kept_of(&q->f->kept, q->f->main->id.pid);
    double grown;
    if (!q->f->main->verdict.is_limited)
        return false;
    h->share = 1;
    h->site = keeping_site(q, &grown);
    if (!h->site)
        h->site = ledger_site(q->l, LEDGER_TOUCHED);
    evidence_for(h, DECIDES,
                 "most of the growth is in a Python container with a maximum number of entries");
    for (size_t i = 0; l && i < l->count; i++)
        if (l->at[i].limit > 0)
            evidence_for(h, 0, "kept by %s", KEPT(l, i));
    return true;
}

void test_first_touch(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    double end_s = first_epoch_end(f);
    if ((f->main && test_limited(q, h)) || test_first_written(q, h)) {
        return;
    } else if (!f->main || !f->main->verdict.is_known) {
        evidence_absent(h, "there is no verdict on memory");
    } else if (!q->has_grown) {
        evidence_add_no_growth(q, h, DECIDES);
    } else if (!f->steps_per_epoch && isnan(end_s)) {
        evidence_absent(h, "no marks: the epoch length is unknown");
        if (q->word == VERDICT_PLATEAUED)
            evidence_for(h, WEAK, "memory grew by %s and then stopped growing", SIZE(q->growth));
        decide_by(
            h, "send marks, as the hooks of `ebb run` do, or run ebb verdict --steps-per-epoch N");
        h->share = q->word == VERDICT_PLATEAUED ? 1 : 0;
    } else if (q->word == VERDICT_PLATEAUED) {
        test_filled(q, h, end_s);
    } else if (q->word == VERDICT_FILLING && !isnan(end_s)) {
        h->share = 1;
        evidence_for(h, FAIR,
                     "memory grew by %s within the first epoch, and the run ended soon after",
                     SIZE(q->growth));
        test_even_pace(q, h, f->now_s);
        decide_by(h, "run more steps of the second epoch");
    } else if (isnan(end_s)) {
        h->share = 1;
        evidence_for(h, FAIR,
                     "memory grew by %s, and the first epoch has not ended: step %" PRId64
                     " of %" PRIu64,
                     SIZE(q->growth), f->last_step, f->steps_per_epoch);
        test_even_pace(q, h, f->now_s);
        decide_by(h, "run until the end of the first epoch, step %" PRIu64, f->steps_per_epoch);
    } else {
        test_grew_beyond(q, h, end_s);
    }
}
