/* Translates the marks of a job into the marks that verdicts use. */
#include "mark/mark_clock.h"

#include <math.h>

#include "base/clock.h"

enum { SAME_EVENT_S = 2 };

static uint64_t mark_value(const struct mark *m, enum mark_has has, int64_t value)
{
    return (m->has & (uint32_t)has) && value > 0 ? (uint64_t)value : 0;
}

/* Returns true if this mark ends a phase, and the phase's name stands for an evaluation or a
 * checkpoint. Sets *ret to the kind of mark that verdicts use for this phase. */
static bool map_phase(const struct mark *m, enum verdict_mark_kind *ret)
{
    static const struct {
        const char *name;
        enum verdict_mark_kind kind;
    } names[] = {
        {"eval", VERDICT_MARK_EVAL},       {"evaluate", VERDICT_MARK_EVAL},
        {"evaluation", VERDICT_MARK_EVAL}, {"validation", VERDICT_MARK_EVAL},
        {"save", VERDICT_MARK_SAVE},       {"checkpoint", VERDICT_MARK_SAVE},
    };
    if (!mark_is(m, "STATE", "end"))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mark_is(m, "NAME", names[i].name)) {
            *ret = names[i].kind;
            return true;
        }
    return false;
}

static bool map_kind(const struct mark *m, enum verdict_mark_kind *ret)
{
    static const enum verdict_mark_kind kinds[MARK_KIND_COUNT] = {
        [MARK_BEGIN] = VERDICT_MARK_BEGIN,     [MARK_STEP] = VERDICT_MARK_STEP,
        [MARK_SUBSTEP] = VERDICT_MARK_SUBSTEP, [MARK_EVAL] = VERDICT_MARK_EVAL,
        [MARK_SAVE] = VERDICT_MARK_SAVE,       [MARK_EPOCH] = VERDICT_MARK_EPOCH,
        [MARK_END] = VERDICT_MARK_END};
    if (m->kind == MARK_PHASE)
        return map_phase(m, ret);
    *ret = kinds[m->kind];
    return m->kind >= MARK_BEGIN && m->kind <= MARK_END;
}

bool mark_clock_map(const struct mark *m, struct verdict_mark *ret)
{
    enum verdict_mark_kind kind;
    if (!map_kind(m, &kind))
        return false;
    *ret = (struct verdict_mark){
        .kind = kind,
        .has_step = (m->has & MARK_HAS_STEP) && m->step >= 0,
        .step = m->step > 0 ? (uint64_t)m->step : 0,
        .steps_per_epoch = mark_value(m, MARK_HAS_STEPS_PER_EPOCH, m->steps_per_epoch),
        .examples = mark_value(m, MARK_HAS_EXAMPLES, m->examples),
        .batch = mark_value(m, MARK_HAS_EFFECTIVE_BATCH, m->effective_batch),
        .max_steps = mark_value(m, MARK_HAS_MAX_STEPS, m->max_steps)};
    return true;
}

static void keep_known(uint64_t *kept, uint64_t now)
{
    if (now)
        *kept = now;
}

static void keep_facts(struct mark_clock *c, const struct mark *m)
{
    keep_known(&c->steps_per_epoch, mark_value(m, MARK_HAS_STEPS_PER_EPOCH, m->steps_per_epoch));
    keep_known(&c->examples, mark_value(m, MARK_HAS_EXAMPLES, m->examples));
    keep_known(&c->batch, mark_value(m, MARK_HAS_EFFECTIVE_BATCH, m->effective_batch));
    keep_known(&c->max_steps, mark_value(m, MARK_HAS_MAX_STEPS, m->max_steps));
}

/* Derives the number of steps per epoch from a fractional EPOCH. For example, STEP=10
 * EPOCH=0.1204819 means 83 steps per epoch. The result is used once two marks in a row yield the
 * same number. */
static void guess_epoch(struct mark_clock *c, const struct mark *m)
{
    if (c->steps_per_epoch || m->step <= 0 || m->epoch <= 0 || m->epoch >= 1)
        return;
    double steps = (double)m->step / m->epoch;
    uint64_t whole = steps < 1e12 ? (uint64_t)llround(steps) : 0;
    if (whole < 2 || fabs(steps - (double)whole) > 0.01) {
        c->guessed_steps = 0;
        return;
    }
    if (c->guessed_steps == whole)
        c->steps_per_epoch = whole;
    c->guessed_steps = whole;
}

/* True if this mark shows that one more epoch is complete. Sets *ret_step to the step at which the
 * epoch ended. */
static bool epoch_ended(struct mark_clock *c, const struct mark *m, uint64_t *ret_step)
{
    /* If a job sends only integers, EPOCH=3 means that three epochs are complete, so the third
     * epoch ended at an earlier step. */
    bool is_number = floor(m->epoch) >= m->epoch;
    bool ended = c->has_epoch && !c->has_epoch_marks && floor(m->epoch) > floor(c->epoch);
    bool was_number = floor(c->epoch) >= c->epoch;
    *ret_step = is_number && was_number && c->has_step ? c->step
                : (m->has & MARK_HAS_STEP)             ? (uint64_t)m->step
                                                       : c->step;
    return ended;
}

/* True if the job has sent this event already in another form. A job may send one event both as the
 * end of a phase and as a mark of its own. */
static bool is_repeated(struct mark_clock *c, const struct verdict_mark *v, uint64_t t_ns)
{
    enum verdict_mark_kind k = v->kind;
    uint64_t step = v->has_step ? v->step : c->step;
    bool is_event = k == VERDICT_MARK_EVAL || k == VERDICT_MARK_SAVE || k == VERDICT_MARK_EPOCH;
    bool repeated = is_event && c->has_seen[k] && c->seen_step[k] == step &&
                    (k == VERDICT_MARK_EPOCH || t_ns - c->seen_ns[k] < SAME_EVENT_S * NS_PER_S);
    c->has_seen[k] = true;
    c->seen_ns[k] = t_ns;
    c->seen_step[k] = step;
    return repeated;
}

static void add_facts(const struct mark_clock *c, struct verdict_mark *v)
{
    v->steps_per_epoch = v->steps_per_epoch ? v->steps_per_epoch : c->steps_per_epoch;
    v->examples = v->examples ? v->examples : c->examples;
    v->batch = v->batch ? v->batch : c->batch;
    v->max_steps = v->max_steps ? v->max_steps : c->max_steps;
}

static void remember(struct mark_clock *c, const struct mark *m, const struct verdict_mark *v)
{
    if (v->kind == VERDICT_MARK_BEGIN) {
        c->has_begun = true;
        c->has_step = false; /* a restarted job may begin again at a lower step */
        c->has_epoch = false;
    }
    if (v->has_step && v->kind != VERDICT_MARK_END) {
        c->has_step = true;
        c->step = v->step;
    } else if (v->kind == VERDICT_MARK_STEP) {
        c->step += c->has_step;
        c->has_step = true;
    }
    if (m->has & MARK_HAS_EPOCH) {
        c->has_epoch = true;
        c->epoch = m->epoch;
    }
}

size_t mark_clock_add(struct mark_clock *c, const struct mark *m,
                      struct verdict_mark ret[MARK_CLOCK_MARKS])
{
    struct verdict_mark v;
    uint64_t step = 0;
    size_t count = 0;
    keep_facts(c, m);
    if (!mark_clock_map(m, &v))
        return 0;
    bool has_epoch = m->has & MARK_HAS_EPOCH;
    if (v.kind == VERDICT_MARK_STEP && has_epoch)
        guess_epoch(c, m);
    bool has_derived = v.kind != VERDICT_MARK_BEGIN && v.kind != VERDICT_MARK_END &&
                       v.kind != VERDICT_MARK_EPOCH && has_epoch && epoch_ended(c, m, &step);
    bool is_before = has_derived && c->has_step && step == c->step;
    struct verdict_mark derived = {.kind = VERDICT_MARK_EPOCH, .has_step = true, .step = step};
    has_derived = has_derived && !is_repeated(c, &derived, m->t_ns);
    if (v.kind == VERDICT_MARK_EPOCH)
        c->has_epoch_marks = true;
    bool repeated = is_repeated(c, &v, m->t_ns);
    add_facts(c, &v);
    add_facts(c, &derived);
    if (has_derived && is_before)
        ret[count++] = derived;
    if (!repeated)
        ret[count++] = v;
    if (has_derived && !is_before)
        ret[count++] = derived;
    remember(c, m, &v);
    return count;
}
