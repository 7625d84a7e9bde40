/* Adds the readings that are judged: the leakable memory of each process, and the memory of the
 * whole job. */
#include "judge/judge_private.h"

#include <stdlib.h>

#include <math.h>

#include "base/clock.h"

enum {
    /* Number of processes that get a series at birth; further processes get one later. */
    SERIES_AT_ONCE = 32,
    /* Age in seconds at which the unique memory of a process should be known. */
    UNIQUE_AGE_S = 2,
    /* Age in seconds at which the job's memory is judged even if the unique memory of a process is
     * unknown. */
    UNIQUE_PATIENCE_S = 30,
};

/* Changes of file memory below this fraction of the memory that can leak are ignored. */
static const double FILE_CHANGE = 0.025;

/* Returns true if files are being mapped or unmapped, and resident memory has changed since RssFile
 * was last read. Memory that can leak would then be computed from an outdated RssFile, and would
 * seem to grow. Returns false during start-up although libraries are mapped, because every reading
 * helps to find the end of start-up. */
static bool is_mapping(const struct judge *j, const struct judge_entity *p)
{
    double most = FILE_CHANGE * fabs((double)p->status_rss_bytes - (double)p->file_bytes);
    return (j->clock.has_begun || j->clock.has_step) && p->has_status &&
           (double)p->file_moved_bytes > most &&
           fabs((double)p->rss_bytes - (double)p->status_rss_bytes) > most;
}

/* Returns the memory that can leak: resident memory without mapped page cache (RssFile), plus
 * swapped-out memory (VmSwap). */
static uint64_t leakable(const struct judge_entity *p)
{
    uint64_t file = p->has_status ? p->file_bytes : 0;
    return (p->rss_bytes > file ? p->rss_bytes - file : 0) + (p->has_status ? p->swap_bytes : 0);
}

static bool is_older(const struct judge *j, const struct run_entity *e, uint64_t age_s)
{
    return j->run->tick_ns - e->execed_ns >= age_s * NS_PER_S;
}

static bool may_have_series(const struct judge *j, const struct run_entity *e)
{
    return j->series_count < JUDGE_LIVING &&
           (j->series_count < SERIES_AT_ONCE || j->run->table.is_imported ||
            is_older(j, e, JUDGE_AGE_S));
}

static void sample_process(struct judge *j, struct run_entity *e)
{
    const struct sample *s = &e->last;
    bool is_status = run_was_read(j->run, e, SAMPLE_FILE) || run_was_read(j->run, e, SAMPLE_SWAP);
    struct judge_entity *p = judge_entity(e);
    if (!p)
        return;
    if (is_status) {
        uint64_t file = sample_has(s, SAMPLE_FILE) ? s->v[SAMPLE_FILE] : 0;
        if (p->has_status)
            p->file_moved_bytes =
                file > p->file_bytes ? file - p->file_bytes : p->file_bytes - file;
        p->has_status = true;
        p->file_bytes = file;
        p->swap_bytes = sample_has(s, SAMPLE_SWAP) ? s->v[SAMPLE_SWAP] : 0;
    }
    if (run_was_read(j->run, e, SAMPLE_UNIQUE)) {
        p->has_unique = true;
        p->unique_bytes = s->v[SAMPLE_UNIQUE];
    }
    if (!run_was_read(j->run, e, SAMPLE_RSS))
        return;
    p->has_rss = true;
    p->rss_bytes = s->v[SAMPLE_RSS];
    if (is_status)
        p->status_rss_bytes = p->rss_bytes;
    if (p->rss_bytes > p->peak_bytes)
        p->peak_bytes = p->rss_bytes;
    bool is_known = !is_mapping(j, p) && (p->has_status || j->run->table.is_imported ||
                                          is_older(j, e, JUDGE_STATUS_PATIENCE_S));
    uint64_t value = is_known ? leakable(p) : 0;
    if (!p->series && value > 0 && may_have_series(j, e)) {
        p->series = judge_series_new(j);
        j->series_count += p->series ? 1 : 0;
    }
    if (p->series)
        judge_series_feed(j, p->series, value);
}

static void sample_limit(struct judge *j)
{
    const struct run_entity *job = &j->run->job;
    if (run_was_read(j->run, job, JOB_LIMIT)) {
        j->has_limit = true;
        j->limit_bytes = job->last.v[JOB_LIMIT];
    }
    if (run_was_read(j->run, job, JOB_LIMIT_USED)) {
        j->has_used = true;
        j->used_bytes = job->last.v[JOB_LIMIT_USED];
    }
}

static void sample_gpu(struct judge *j, struct run_entity *e)
{
    unsigned field = run_gpu_field(e);
    struct judge_entity *a = run_was_read(j->run, e, field) ? judge_entity(e) : NULL;
    if (!a)
        return;
    if (a->series && a->gpu_field != field && !judge_series_restart(j, a->series)) {
        free(a->series);
        a->series = NULL;
    }
    a->gpu_field = field;
    if (!a->series && e->last.v[field] > 0)
        a->series = judge_series_new(j);
    if (a->series)
        judge_series_feed(j, a->series, e->last.v[field]);
}

/* ---- the job ---- */

/* Returns true if the lower bound of the job's memory can be used. As long as the unique memory of
 * older processes is unknown, the bound includes only the largest process. It rises once their
 * unique memory is known, which would look like growth. */
static bool is_lower_bound_usable(const struct judge *j, struct run_entity *const *living, size_t n)
{
    if (run_was_read(j->run, &j->run->job, JOB_CHARGE) || j->whole || n == 1 ||
        j->run->tick_ns - j->run->first_tick_ns >= UNIQUE_PATIENCE_S * NS_PER_S)
        return true;
    for (size_t i = 0; i < n; i++)
        if (!(living[i]->observed && judge_known(living[i])->has_unique) &&
            is_older(j, living[i], UNIQUE_AGE_S))
            return false;
    return true;
}

/* Returns the leakable memory of all processes, with shared pages counted once. The processes
 * usually map the same libraries and data files. File pages are therefore subtracted once: those of
 * the process that has the most. */
static uint64_t bytes_counted_once(const struct judge *j, struct run_entity *const *living,
                                   size_t n)
{
    uint64_t file = 0, swap = 0, low = j->run->job.last.v[JOB_TREE];
    for (size_t i = 0; i < n; i++) {
        const struct judge_entity *p = judge_known(living[i]);
        if (!p || !p->has_status)
            continue;
        if (p->file_bytes > file)
            file = p->file_bytes;
        swap += p->swap_bytes;
    }
    return (low > file ? low - file : 0) + swap;
}

/* Returns true if the job's memory is known at this tick. */
static bool is_whole_known(const struct judge *j, struct run_entity *const *living, size_t n)
{
    bool has_charge = run_was_read(j->run, &j->run->job, JOB_CHARGE);
    if (!run_was_read(j->run, &j->run->job, JOB_TREE) || n == 0 ||
        j->run->tick_ns < j->hold_until_ns || !is_lower_bound_usable(j, living, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct judge_entity *p = judge_known(living[i]);
        if (!j->whole && !(p && p->has_status) && !is_older(j, living[i], JUDGE_STATUS_PATIENCE_S))
            return false;
        if (!has_charge && p && is_mapping(j, p))
            return false;
    }
    return true;
}

/* Adds a reading to two series of the job. WHOLE is the memory charged to the job's cgroup or,
 * without a cgroup, the memory of all processes with shared pages counted once. SUMMED is the sum
 * over the processes, plus memory that is charged to the job but that no process maps. */
static void feed_whole(struct judge *j)
{
    struct run_entity *const *living;
    size_t n = judge_living(j, &living);
    if (!is_whole_known(j, living, n))
        return;
    bool has_charge = run_was_read(j->run, &j->run->job, JOB_CHARGE);
    uint64_t once = bytes_counted_once(j, living, n), sum = 0;
    uint64_t charge = has_charge ? j->run->job.last.v[JOB_CHARGE] : 0;
    if (!j->whole)
        j->whole = judge_series_new(j);
    if (!j->whole)
        return;
    if (!j->summed)
        j->summed = judge_series_new(j);
    for (size_t i = 0; i < n; i++)
        sum += living[i]->observed ? leakable(judge_known(living[i])) : 0;
    if (j->summed)
        judge_series_feed(j, j->summed, sum + (charge > once ? charge - once : 0));
    judge_series_feed(j, j->whole, has_charge ? charge : once);
    j->whole_limit = judge_limit_for(j, j->whole->last_bytes);
    if (j->whole->last_bytes > j->tree_peak_bytes)
        j->tree_peak_bytes = j->whole->last_bytes;
}

/* If too many processes are alive to judge all, the largest one without a series takes over the
 * series of the smallest one, provided that it is more than twice as large. */
static void replace_smallest(struct judge *j)
{
    struct run_entity *const *living, *least = NULL, *largest = NULL;
    size_t n = judge_living(j, &living);
    if (j->series_count < JUDGE_LIVING || n <= JUDGE_LIVING)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct judge_entity *p = judge_known(living[i]);
        if (!p)
            continue;
        if (p->series && (!least || p->rss_bytes < judge_known(least)->rss_bytes))
            least = living[i];
        if (!p->series && (!largest || p->rss_bytes > judge_known(largest)->rss_bytes))
            largest = living[i];
    }
    if (!least || !largest || judge_known(largest)->rss_bytes / 2 <= judge_known(least)->rss_bytes)
        return;
    judge_unlist(j, least);
    if (judge_series_restart(j, judge_known(least)->series)) {
        judge_known(largest)->series = judge_known(least)->series;
        judge_known(least)->series = NULL;
        judge_known(least)->noted = VERDICT_UNDECIDED;
    }
}

void judge_tick(struct judge *j)
{
    struct run_entity *const *list;
    size_t n = judge_living(j, &list);
    if (!j->has_begun)
        j->begun_ns = j->run->tick_ns;
    j->has_begun = true;
    /* A limit that is read after the last process has exited does not apply, because the memory of
     * the job is no longer charged. */
    if (n)
        sample_limit(j);
    for (size_t i = 0; i < n; i++)
        if (list[i]->last_ns == j->run->tick_ns)
            sample_process(j, list[i]);
    n = run_living(j->run, RUN_GPU, &list);
    for (size_t i = 0; i < n; i++)
        sample_gpu(j, list[i]);
    n = j->options.no_marks ? 0 : run_living(j->run, RUN_FIGURE, &list);
    for (size_t i = 0; i < n; i++)
        if (run_was_read(j->run, list[i], 0))
            judge_figure_sample(j, list[i]);
    feed_whole(j);
    replace_smallest(j);
}
