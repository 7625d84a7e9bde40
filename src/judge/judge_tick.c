/* On which readings: what of a process's memory can leak, and what the whole tree holds. */
#include "judge/judge_private.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

enum {
    SEATS_AT_ONCE = 32,     /* so many get a series at birth, those beyond later */
    UNIQUE_AGE_S = 2,       /* a process older than this should have its unique memory known … */
    UNIQUE_PATIENCE_S = 30, /* … and after this long the tree's memory counts without */
};

void judge_tick_begin(struct judge *j, uint64_t t_ns)
{
    j->tick_ns = t_ns;
    if (!j->is_ticked)
        j->first_tick_ns = t_ns;
    if (!j->has_begun)
        j->begun_ns = t_ns;
    j->has_begun = true;
    j->is_ticked = true;
    j->has_low = j->has_charge = false;
    j->hint = 0;
}

static bool was_read(const struct sample *s, unsigned field)
{
    return s->read >> field & 1u;
}

/* Of what can leak: so much may come and go without being looked into. */
static const double FILE_MOVES = 0.025;

/* Files are being mapped in or let go, and resident memory has moved since these were read: by
 * them, or by what can leak? To take the old figure off would say the latter. While a job starts it
 * maps its libraries, and there every reading helps to tell where that ended. */
static bool is_mapping(const struct judge *j, const struct judge_process *p)
{
    double most = FILE_MOVES * fabs((double)p->then_bytes - (double)p->file_bytes);
    return (j->clock.has_begun || j->clock.has_step) && p->has_status &&
           (double)p->file_moved_bytes > most &&
           fabs((double)p->rss_bytes - (double)p->then_bytes) > most;
}

/* Resident memory that can leak: page cache mapped in is none, and what was swapped out still is
 * (facts of the kernel: RssFile, VmSwap). 0: not known now. */
static uint64_t value_of(const struct judge *j, const struct judge_process *p)
{
    if (!p->has_rss || is_mapping(j, p))
        return 0;
    if (p->has_status)
        return (p->rss_bytes > p->file_bytes ? p->rss_bytes - p->file_bytes : 0) + p->swap_bytes;
    if (j->options.is_table || j->tick_ns - p->born_ns >= JUDGE_STATUS_PATIENCE_S * NS_PER_S)
        return p->rss_bytes;
    return 0;
}

static bool may_sit(const struct judge *j, const struct judge_process *p)
{
    if (j->seats >= JUDGE_LIVING)
        return false;
    return j->seats < SEATS_AT_ONCE || j->options.is_table ||
           j->tick_ns - p->born_ns >= JUDGE_SEAT_AGE_S * NS_PER_S;
}

static void sample_process(struct judge *j, uint32_t slot, const struct sample *s)
{
    struct judge_process *p = judge_find(j, slot);
    if (!p)
        return;
    bool is_read = was_read(s, SAMPLE_FILE) || was_read(s, SAMPLE_SWAP);
    if (is_read) {
        uint64_t file = sample_has(s, SAMPLE_FILE) ? s->v[SAMPLE_FILE] : 0;
        if (p->has_status)
            p->file_moved_bytes =
                file > p->file_bytes ? file - p->file_bytes : p->file_bytes - file;
        p->has_status = true;
        p->file_bytes = file;
        p->swap_bytes = sample_has(s, SAMPLE_SWAP) ? s->v[SAMPLE_SWAP] : 0;
    }
    if (was_read(s, SAMPLE_UNIQUE)) {
        p->has_unique = true;
        p->unique_bytes = s->v[SAMPLE_UNIQUE];
    }
    if (!was_read(s, SAMPLE_RSS))
        return;
    p->has_rss = true;
    p->rss_bytes = s->v[SAMPLE_RSS];
    if (is_read)
        p->then_bytes = p->rss_bytes;
    if (p->rss_bytes > p->peak_bytes)
        p->peak_bytes = p->rss_bytes;
    uint64_t value = value_of(j, p);
    if (!p->seat && value > 0 && may_sit(j, p)) {
        p->seat = judge_series_new(j);
        j->seats += p->seat != NULL;
    }
    if (p->seat)
        judge_series_feed(j, p->seat, value);
}

static void sample_machine(struct judge *j, const struct sample *s)
{
    if (was_read(s, MACHINE_TREE_LOW)) {
        j->has_low = true;
        j->low_bytes = s->v[MACHINE_TREE_LOW];
    }
    if (was_read(s, MACHINE_CHARGE)) {
        j->has_charge = true;
        j->charge_bytes = s->v[MACHINE_CHARGE];
    }
    if (j->count == 0) /* what was charged for the job is given back: no longer its limit */
        return;
    if (was_read(s, MACHINE_LIMIT)) {
        j->has_limit = true;
        j->limit_bytes = s->v[MACHINE_LIMIT];
    }
    if (was_read(s, MACHINE_LIMIT_USED)) {
        j->has_used = true;
        j->used_bytes = s->v[MACHINE_LIMIT_USED];
    }
}

static void sample_gpu(struct judge *j, uint32_t id, const char *name, const struct sample *s)
{
    if (id >= JUDGE_GPUS || !was_read(s, GPU_JOB))
        return;
    struct judge_gpu *g = &j->gpu[id];
    g->id = id;
    size_t len = name ? strnlen(name, sizeof g->name - 1) : 0;
    memcpy(g->name, name ? name : "", len);
    g->name[len] = '\0';
    g->total_bytes = sample_has(s, GPU_TOTAL) ? s->v[GPU_TOTAL] : 0;
    g->used_bytes = sample_has(s, GPU_USED) ? s->v[GPU_USED] : 0;
    if (!g->seat && s->v[GPU_JOB] > 0)
        g->seat = judge_series_new(j);
    if (g->seat)
        judge_series_feed(j, g->seat, s->v[GPU_JOB]);
}

void judge_sample(struct judge *j, enum sample_entity_kind kind, uint32_t id, const char *name,
                  const struct sample *sample)
{
    if (kind == ENTITY_PROCESS)
        sample_process(j, id, sample);
    else if (kind == ENTITY_MACHINE)
        sample_machine(j, sample);
    else if (kind == ENTITY_GPU)
        sample_gpu(j, id, name, sample);
    else if (kind == ENTITY_SERIES && !j->options.no_marks)
        judge_figure_sample(j, id, name, sample);
}

/* Until the unique memory of those that have been there for a while is known, the lower bound is
 * the largest process alone, and its rise to the truth would look like growth. */
static bool low_is_meant(const struct judge *j)
{
    if (j->has_charge || j->whole || j->count == 1 ||
        j->tick_ns - j->first_tick_ns >= UNIQUE_PATIENCE_S * NS_PER_S)
        return true;
    for (size_t i = 0; i < j->count; i++)
        if (!j->living[i]->has_unique &&
            j->tick_ns - j->living[i]->born_ns >= UNIQUE_AGE_S * NS_PER_S)
            return false;
    return true;
}

/* What the processes have that can leak. Libraries and data files that several map are the same
 * pages: the largest such part counts for all. */
static uint64_t once_value(const struct judge *j)
{
    uint64_t file = 0, swap = 0;
    for (size_t i = 0; i < j->count; i++) {
        const struct judge_process *p = j->living[i];
        if (p->has_status && p->file_bytes > file)
            file = p->file_bytes;
        swap += p->has_status ? p->swap_bytes : 0;
    }
    return (j->low_bytes > file ? j->low_bytes - file : 0) + swap;
}

/* The tree's memory that can leak: what the kernel charges the job's own cgroup with, where it has
 * one. */
static uint64_t tree_value(const struct judge *j)
{
    return j->has_charge ? j->charge_bytes : once_value(j);
}

/* The same with what is shared counted in each that has it, and with what the kernel charges beyond
 * the processes. */
static uint64_t apart_value(const struct judge *j)
{
    uint64_t sum = 0, once = once_value(j);
    for (size_t i = 0; i < j->count; i++) {
        const struct judge_process *p = j->living[i];
        uint64_t file = p->has_status ? p->file_bytes : 0;
        sum +=
            (p->rss_bytes > file ? p->rss_bytes - file : 0) + (p->has_status ? p->swap_bytes : 0);
    }
    return sum + (j->has_charge && j->charge_bytes > once ? j->charge_bytes - once : 0);
}

static void feed_whole(struct judge *j)
{
    if (!j->has_low || j->count == 0 || j->tick_ns < j->hold_until_ns || !low_is_meant(j))
        return;
    for (size_t i = 0; i < j->count; i++)
        if (!j->living[i]->has_status &&
            j->tick_ns - j->living[i]->born_ns < JUDGE_STATUS_PATIENCE_S * NS_PER_S && !j->whole)
            return;
    for (size_t i = 0; i < j->count && !j->has_charge; i++)
        if (is_mapping(j, j->living[i]))
            return;
    if (!j->whole)
        j->whole = judge_series_new(j);
    if (!j->whole)
        return;
    if (!j->apart)
        j->apart = judge_series_new(j);
    if (j->apart)
        judge_series_feed(j, j->apart, apart_value(j));
    judge_series_feed(j, j->whole, tree_value(j));
    j->whole_limit = judge_limit_for(j, j->whole->last_bytes);
    if (j->whole->last_bytes > j->tree_peak_bytes)
        j->tree_peak_bytes = j->whole->last_bytes;
}

/* All seats are taken: the smallest gives way to one twice its size. */
static void reseat(struct judge *j)
{
    struct judge_process *least = NULL, *largest = NULL;
    if (j->seats < JUDGE_LIVING || j->count <= JUDGE_LIVING)
        return;
    for (size_t i = 0; i < j->count; i++) {
        struct judge_process *p = j->living[i];
        if (p->seat && (!least || p->rss_bytes < least->rss_bytes))
            least = p;
        if (!p->seat && (!largest || p->rss_bytes > largest->rss_bytes))
            largest = p;
    }
    if (!least || !largest || largest->rss_bytes / 2 <= least->rss_bytes)
        return;
    judge_unlist(j, least);
    if (judge_series_restart(j, least->seat)) {
        largest->seat = least->seat;
        least->seat = NULL;
        least->told = VERDICT_UNDECIDED;
    }
}

void judge_tick_end(struct judge *j)
{
    feed_whole(j);
    reseat(j);
}
