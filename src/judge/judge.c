/* Who is judged: a series for each process from birth to death, and the marks that it hears. */
#include "judge/judge_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { HOLD_S = 60 }; /* the tree's series rests so long when most of it has gone */

/* ---- one series ---- */

static bool seat_begin(const struct judge *j, struct judge_series *s, uint64_t step)
{
    *s = (struct judge_series){.has_ended = false};
    if (verdict_init(&s->series, &j->options.verdict) < 0)
        return false;
    if (j->clock.has_begun || j->clock.has_step) {
        const struct verdict_mark begin = {.kind = VERDICT_MARK_BEGIN,
                                           .has_step = j->clock.has_step,
                                           .step = step,
                                           .steps_per_epoch = j->clock.steps_per_epoch,
                                           .examples = j->clock.examples,
                                           .batch = j->clock.batch,
                                           .max_steps = j->clock.max_steps};
        verdict_mark(&s->series, (int64_t)j->tick_ns, &begin);
    }
    return true;
}

static struct judge_series *seat_new(const struct judge *j, uint64_t step)
{
    struct judge_series *s = malloc(sizeof *s);
    if (s && !seat_begin(j, s, step)) {
        free(s);
        s = NULL;
    }
    return s;
}

bool judge_series_restart(const struct judge *j, struct judge_series *s)
{
    return seat_begin(j, s, j->clock.step);
}

struct judge_series *judge_series_new(const struct judge *j)
{
    return seat_new(j, j->clock.step);
}

struct judge_series *judge_series_new_figure(const struct judge *j)
{
    const struct mark_clock *c = &j->clock;
    uint64_t begin = c->has_seen[VERDICT_MARK_BEGIN] ? c->seen_step[VERDICT_MARK_BEGIN] : c->step;
    bool is_first_pass = c->step >= begin && c->step - begin < c->steps_per_epoch;
    return seat_new(j, is_first_pass ? begin : c->step);
}

void judge_series_feed(const struct judge *j, struct judge_series *s, uint64_t bytes)
{
    if (bytes == 0) /* it holds nothing: gone, or not begun */
        return;
    if (!s->has_first) {
        s->has_first = true;
        s->first_ns = j->tick_ns;
    }
    s->last_ns = j->tick_ns;
    s->last_bytes = bytes;
    s->tail.is_table = j->options.is_table;
    if (j->options.by_step)
        verdict_update_step(&s->series, j->clock.step, bytes);
    else
        tail_update(&s->tail, &s->series, (int64_t)j->tick_ns, bytes);
}

void judge_series_exit(struct judge_series *s)
{
    if (s)
        tail_drop(&s->tail, &s->series);
}

/* Training that starts again in the same process is judged anew. */
static void seat_mark(const struct judge *j, struct judge_series *s, uint64_t t_ns,
                      const struct verdict_mark *mark)
{
    if (!s)
        return;
    if (mark->kind == VERDICT_MARK_BEGIN && s->has_ended) {
        *s = (struct judge_series){.has_ended = false};
        (void)verdict_init(&s->series, &j->options.verdict);
    }
    tail_release(&s->tail, &s->series);
    verdict_mark(&s->series, (int64_t)t_ns, mark);
    s->has_ended = s->has_ended || mark->kind == VERDICT_MARK_END;
}

void judge_series_judge(struct judge_series *s, const struct verdict_limit *limit)
{
    s->limit = *limit;
    verdict_judge(&s->series, limit, &s->result);
    s->is_judged = true;
}

/* ---- the limit ---- */

/* All that the job holds, as far as is known: of a table a plain sum. */
static uint64_t job_bytes(const struct judge *j)
{
    uint64_t sum = 0;
    if (j->has_low)
        return j->low_bytes;
    for (size_t i = 0; i < j->count; i++)
        sum += j->living[i]->rss_bytes;
    return sum;
}

struct verdict_limit judge_limit_for(const struct judge *j, uint64_t own_bytes)
{
    struct verdict_limit l = {.known = j->has_limit, .limit_bytes = j->limit_bytes};
    uint64_t used = j->has_used ? j->used_bytes : job_bytes(j);
    if (j->options.has_limit && !j->options.limit.is_percent) {
        /* the job's own: nobody else is charged to it */
        l = (struct verdict_limit){.known = true, .limit_bytes = j->options.limit.bytes};
        used = job_bytes(j);
    } else if (j->options.has_limit) {
        l.limit_bytes = quantity_bytes(&j->options.limit, l.limit_bytes);
    }
    l.other_bytes = used > own_bytes ? used - own_bytes : 0;
    return l;
}

void judge_limit(struct judge *j, uint64_t limit_bytes)
{
    j->has_limit = limit_bytes > 0;
    j->limit_bytes = limit_bytes;
}

/* ---- processes ---- */

/* The place of SLOT, or where it belongs. Samples come in the order of slots. */
static size_t place_of(struct judge *j, uint32_t slot)
{
    size_t low = 0, high = j->count;
    if (j->hint < j->count && j->living[j->hint]->slot == slot)
        return j->hint;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (j->living[mid]->slot < slot)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct judge_process *judge_find(struct judge *j, uint32_t slot)
{
    size_t at = place_of(j, slot);
    j->hint = at + 1;
    return at < j->count && j->living[at]->slot == slot ? j->living[at] : NULL;
}

static struct judge_process *find_pid(const struct judge *j, int32_t pid)
{
    for (size_t i = j->count; pid > 0 && i-- > 0;)
        if (j->living[i]->id.pid == pid)
            return j->living[i];
    return NULL;
}

static void process_free(struct judge_process *p)
{
    if (p)
        free(p->seat);
    free(p);
}

static void describe(struct judge_process *p, const struct process_info *info)
{
    p->id = info->id;
    p->role = info->role;
    p->name_len = info->comm_len < sizeof p->name ? info->comm_len : (uint16_t)sizeof p->name;
    memcpy(p->name, info->comm, p->name_len);
}

static void be_born(struct judge *j, uint64_t t_ns, uint32_t slot, const struct process_info *info)
{
    size_t at = place_of(j, slot);
    if (at < j->count && j->living[at]->slot == slot)
        return;
    if (j->count == j->cap) {
        size_t cap = j->cap ? j->cap * 2 : 16;
        struct judge_process **living =
            reallocarray(j->living, cap, sizeof(struct judge_process *));
        if (!living)
            return;
        j->living = living;
        j->cap = cap;
    }
    struct judge_process *p = calloc(1, sizeof *p);
    if (!p)
        return;
    *p = (struct judge_process){.slot = slot, .parent = info->ppid, .born_ns = t_ns};
    describe(p, info);
    memmove(j->living + at + 1, j->living + at, (j->count - at) * sizeof(struct judge_process *));
    j->living[at] = p;
    j->count++;
    j->seen++;
}

void judge_unlist(struct judge *j, const struct judge_process *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < j->listed_count; i++)
        if (j->listed[i] != p)
            j->listed[kept++] = j->listed[i];
    j->listed_count = kept;
    if (j->tree.grower == p)
        j->tree.grower = NULL;
}

static void discard(struct judge *j, struct judge_process *p)
{
    judge_unlist(j, p);
    process_free(p);
}

/* Long enough to be judged when it has gone; whoever was judged by chance while it lived is left
 * out too, since a recording does not tell when that was. */
static bool lived_long(const struct judge_process *p)
{
    return p->died_ns - p->born_ns >= JUDGE_SEAT_AGE_S * NS_PER_S;
}

/* Takes over P, keeping it if it is among the largest. */
static void bury(struct judge *j, struct judge_process *p)
{
    size_t least = 0;
    if (!p->seat || !p->seat->is_judged || !lived_long(p)) {
        discard(j, p);
        return;
    }
    if (j->gone_count < JUDGE_GONE) {
        j->gone[j->gone_count++] = p;
        return;
    }
    for (size_t i = 1; i < j->gone_count; i++)
        if (j->gone[i]->peak_bytes < j->gone[least]->peak_bytes)
            least = i;
    struct judge_process *other = p->peak_bytes > j->gone[least]->peak_bytes ? j->gone[least] : p;
    if (other != p)
        j->gone[least] = p;
    discard(j, other);
}

/* What the job as a whole held fell with the one that has gone. */
static void job_dies(struct judge *j)
{
    judge_series_exit(j->whole);
    judge_series_exit(j->apart);
    for (size_t i = 0; i < JUDGE_GPUS; i++)
        judge_series_exit(j->gpu[i].seat);
}

/* Was P, who has left the living, most of what the job was? Not if who started it lives on to do
 * the work: a worker may be as large as its parent, whose pages it shares, and the job goes on. */
static bool was_most_of_job(const struct judge *j, const struct judge_process *p)
{
    const struct judge_process *parent = find_pid(j, p->parent);
    if (parent && parent->role != ROLE_LAUNCHER)
        return false;
    return j->has_low && p->rss_bytes >= j->low_bytes / 2;
}

static void die(struct judge *j, uint64_t t_ns, uint32_t slot)
{
    struct judge_process *p = judge_find(j, slot);
    if (!p)
        return;
    size_t at = place_of(j, slot);
    memmove(j->living + at, j->living + at + 1,
            (j->count - at - 1) * sizeof(struct judge_process *));
    j->count--;
    p->died_ns = t_ns;
    if (j->has_leader && j->leader == slot)
        j->has_leader = false;
    bool was_most = was_most_of_job(j, p);
    if (was_most)
        j->hold_until_ns = t_ns + HOLD_S * NS_PER_S;
    if (was_most || j->count == 0)
        job_dies(j);
    judge_series_exit(p->seat);
    if (p->seat) {
        j->seats--;
        if (lived_long(p) && p->seat->has_first) {
            struct verdict_limit limit = judge_limit_for(j, p->seat->last_bytes);
            judge_series_judge(p->seat, &limit);
        }
    }
    judge_figure_die(j, p->id.pid);
    bury(j, p);
}

void judge_process_event(struct judge *j, uint64_t t_ns, enum process_event_kind kind,
                         uint32_t slot, const struct process_info *info)
{
    if (kind == PROCESS_BORN) {
        be_born(j, t_ns, slot, info);
        return;
    }
    if (kind == PROCESS_DIED) {
        die(j, t_ns, slot);
        return;
    }
    struct judge_process *p = judge_find(j, slot);
    if (!p)
        return;
    describe(p, info);
    if (kind != PROCESS_EXECED)
        return;
    p->has_status = false;
    p->born_ns = t_ns;
    if (p->seat && !judge_series_restart(j, p->seat)) {
        free(p->seat);
        p->seat = NULL;
        j->seats--;
    }
}

/* ---- marks ---- */

/* The figures of whoever does not speak for itself, and the sender's own. */
static void mark_series(struct judge *j, uint64_t t_ns, const struct judge_process *sender,
                        const struct verdict_mark *mark, bool is_senders_alone)
{
    for (size_t i = 0; i < JUDGE_FIGURES; i++) {
        const struct judge_figure *s = &j->series[i];
        const struct judge_process *owner = s->seat ? find_pid(j, s->pid) : NULL;
        if (s->seat && !s->is_gone &&
            (owner == sender || (!is_senders_alone && !(owner && owner->speaks))))
            seat_mark(j, s->seat, t_ns, mark);
    }
}

static void mark_all(struct judge *j, uint64_t t_ns, const struct judge_process *sender,
                     const struct verdict_mark *mark)
{
    for (size_t i = 0; i < j->count; i++)
        if (!j->living[i]->speaks || j->living[i] == sender)
            seat_mark(j, j->living[i]->seat, t_ns, mark);
    seat_mark(j, j->whole, t_ns, mark);
    seat_mark(j, j->apart, t_ns, mark);
    for (size_t i = 0; i < JUDGE_GPUS; i++)
        seat_mark(j, j->gpu[i].seat, t_ns, mark);
    mark_series(j, t_ns, sender, mark, false);
}

/* Of several ranks one is the job's clock; the others' marks are for themselves alone. */
void judge_mark(struct judge *j, const struct mark *mark)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    struct judge_process *sender = find_pid(j, mark->pid);
    if (j->options.no_marks)
        return;
    if (sender && j->has_leader && j->leader != sender->slot) {
        sender->speaks = sender->speaks || mark->kind == MARK_STEP;
        if (mark_clock_map(mark, marks)) {
            seat_mark(j, sender->seat, mark->t_ns, marks);
            mark_series(j, mark->t_ns, sender, marks, true);
        }
        return;
    }
    if (sender && mark->kind == MARK_STEP) {
        j->has_leader = true;
        j->leader = sender->slot;
        sender->speaks = true;
    }
    size_t count = mark_clock_add(&j->clock, mark, marks);
    for (size_t i = 0; i < count; i++)
        mark_all(j, mark->t_ns, sender, &marks[i]);
}

/* The same, live and from a recording: how often it was judged on the way does not matter. */
static void close_segment(struct judge *j)
{
    judge_update(j);
    if (j->has_tree && j->tree.result.leak == VERDICT_LEAK_YES)
        j->earlier_leak = (struct judge_earlier){true, j->segment, j->tree.result};
    j->segment++;
}

uint32_t judge_segment_now(const struct judge *j)
{
    return j->segment;
}

const struct judge_earlier *judge_earlier_leak(const struct judge *j)
{
    return j->earlier_leak.is_there ? &j->earlier_leak : NULL;
}

void judge_segment(struct judge *j)
{
    close_segment(j);
    for (size_t i = 0; i < j->gone_count; i++)
        process_free(j->gone[i]);
    for (size_t i = 0; i < JUDGE_GPUS; i++) {
        free(j->gpu[i].seat);
        j->gpu[i].seat = NULL;
    }
    judge_figure_clear(j);
    free(j->whole);
    free(j->apart);
    j->whole = j->apart = NULL;
    j->gone_count = j->listed_count = 0;
    j->tree = (struct judge_tree){.grower = NULL};
    j->clock = (struct mark_clock){.has_step = false};
    j->has_tree = j->has_leader = j->has_begun = j->was_signalled = false;
    j->has_ended = j->is_over = false;
    judge_hear_held(j, NULL, 0);
    j->told = VERDICT_UNDECIDED;
    j->tree_peak_bytes = j->hold_until_ns = 0;
}

/* ---- life ---- */

int judge_new(const struct judge_options *options, struct judge **ret)
{
    struct verdict_series *probe = malloc(sizeof *probe);
    struct judge *j = calloc(1, sizeof *j);
    int r = probe && j ? verdict_init(probe, &options->verdict) : -ENOMEM;
    free(probe);
    if (r < 0) {
        free(j);
        return r;
    }
    j->options = *options;
    *ret = j;
    return 0;
}

void judge_free(struct judge *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < j->count; i++)
        process_free(j->living[i]);
    for (size_t i = 0; i < j->gone_count; i++)
        process_free(j->gone[i]);
    for (size_t i = 0; i < JUDGE_GPUS; i++)
        free(j->gpu[i].seat);
    judge_figure_clear(j);
    free(j->held);
    free(j->living);
    free((void *)(uintptr_t)j->listed);
    free(j->whole);
    free(j->apart);
    free(j);
}
