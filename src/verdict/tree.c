/* Judges a process tree: finds the growing process, and adds up the memory of flat processes. */
#include "verdict/verdict.h"

#include <math.h>
#include <string.h>

enum { RANK_GROWS = 3 };

/* A process's growth rate is added to the rate of the fastest-growing process only if at least this
 * fraction of the process's growth is unshared. Shared pages would be counted twice. */
static const double OWN_PART = 0.5;
/* Growth below this fraction of all memory, or of the process's own memory, is ignored. */
static const double LITTLE = 0.05;

int verdict_word_severity(enum verdict_word word)
{
    switch (word) {
    case VERDICT_LEAKING:
        return 5;
    case VERDICT_STEPPING:
        return 4;
    case VERDICT_FILLING:
        return RANK_GROWS;
    case VERDICT_UNDECIDED:
        return 2;
    case VERDICT_PLATEAUED:
        return 1;
    case VERDICT_STABLE:
    case VERDICT_SPIKING:
    case VERDICT_WORDS:
        break;
    }
    return 0;
}

static double growth_of(const struct verdict_result *r)
{
    if (r->rate_bytes_per_min.known)
        return r->rate_bytes_per_min.value;
    if (r->rate_bytes_per_step.known)
        return r->rate_bytes_per_step.value;
    return r->has_floor ? r->floor_last_bytes - r->floor_first_bytes : 0;
}

static void add_cost(struct verdict_tree_result *t, const struct verdict_member *m)
{
    size_t i = 0;
    while (i < t->n_flat && t->flat[i].role != m->role)
        i++;
    if (i == VERDICT_TREE_ROLES)
        i--; /* if there are too many roles, the last entry includes the remaining ones */
    if (i == t->n_flat) {
        t->n_flat++;
        t->flat[i].role = m->role;
    }
    t->flat[i].count++;
    t->flat[i].rss_bytes += m->rss_bytes;
    if (m->has_unique) {
        t->flat[i].unique_bytes += m->unique_bytes;
        t->flat[i].unique_known++;
    }
}

static void sort_costs(struct verdict_tree_result *t)
{
    for (size_t i = 1; i < t->n_flat; i++)
        for (size_t k = i; k > 0 && t->flat[k].rss_bytes > t->flat[k - 1].rss_bytes; k--) {
            struct verdict_cost swap = t->flat[k];
            t->flat[k] = t->flat[k - 1];
            t->flat[k - 1] = swap;
        }
}

/* Returns the growth of the baseline of an undecided process. */
static double open_growth(const struct verdict_member *m)
{
    const struct verdict_result *r = m->result;
    return m->alive && !m->is_replacement && r->word == VERDICT_UNDECIDED && r->has_floor
               ? fmax(0, r->floor_last_bytes - r->floor_first_bytes)
               : 0;
}

/* Returns true if all undecided processes together grow too little to matter. */
static bool is_little_open(const struct verdict_member *members, size_t n, double total)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += open_growth(&members[i]);
    return sum < LITTLE * total;
}

/* Returns true if a process is excluded from the tree's verdict: a small undecided process, or a
 * worker that will be replaced and will then release its memory. */
static bool is_left_out(const struct verdict_member *m, bool is_little)
{
    return m->is_replacement ||
           (m->result->word == VERDICT_UNDECIDED && (is_little || !(open_growth(m) > 0)));
}

/* Returns true if A is worse than B: by word, then by growth, then by size, so that the order of
 * the processes does not matter. */
static bool is_worse(const struct verdict_member *a, const struct verdict_member *b)
{
    int rank_a = verdict_word_severity(a->result->word),
        rank_b = verdict_word_severity(b->result->word);
    double growth_a = growth_of(a->result), growth_b = growth_of(b->result);
    if (rank_a != rank_b)
        return rank_a > rank_b;
    if (growth_a > growth_b || growth_a < growth_b)
        return growth_a > growth_b;
    if (a->rss_bytes > b->rss_bytes || a->rss_bytes < b->rss_bytes)
        return a->rss_bytes > b->rss_bytes;
    return a->result->confidence > b->result->confidence;
}

/* Returns the index of the process that decides the verdict. This is the worst living process that
 * is not excluded. If all are excluded, it is the worst living process. Returns N if no process is
 * alive. */
static size_t find_worst(const struct verdict_member *members, size_t n, double total)
{
    size_t counted = n, any = n;
    bool is_little = is_little_open(members, n, total);
    for (size_t i = 0; i < n; i++) {
        if (!members[i].alive)
            continue;
        if (any == n || is_worse(&members[i], &members[any]))
            any = i;
        if (!is_left_out(&members[i], is_little) &&
            (counted == n || is_worse(&members[i], &members[counted])))
            counted = i;
    }
    return counted < n ? counted : any;
}

void verdict_tree_judge(const struct verdict_member *members, size_t n,
                        const struct verdict_result *whole, struct verdict_tree_result *ret)
{
    double total = 0;
    size_t worst;
    int rank = -1;
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < n; i++) {
        if (!members[i].alive)
            continue;
        total += members[i].rss_bytes;
        if (!members[i].is_replacement &&
            verdict_word_severity(members[i].result->word) >= RANK_GROWS)
            ret->growers++;
        else if (!(open_growth(&members[i]) > LITTLE * members[i].result->floor_first_bytes))
            add_cost(ret, &members[i]);
    }
    worst = find_worst(members, n, total);
    if (worst < n) {
        rank = verdict_word_severity(members[worst].result->word);
        ret->word = members[worst].result->word;
        ret->confidence = members[worst].result->confidence;
        ret->grower = worst;
        ret->has_grower = rank >= RANK_GROWS;
    }
    sort_costs(ret);
    /* The whole tree may leak although no process does, because of shared memory or a growing
     * number of processes. If a process leaks, its own verdict is used, because it shows best
     * whether growth occurs at events. */
    if (whole && verdict_word_severity(whole->word) > rank && whole->leak == VERDICT_LEAK_YES &&
        verdict_word_leak(ret->word) != VERDICT_LEAK_YES) {
        ret->word = whole->word;
        ret->confidence = whole->confidence;
        ret->has_grower = false;
    }
    ret->leak = verdict_word_leak(ret->word);
}

static bool leaks_too(const struct verdict_member *m)
{
    const struct verdict_result *r = m->result;
    return m->alive && !m->is_replacement && r->leak == VERDICT_LEAK_YES && r->has_floor &&
           m->has_unique &&
           m->unique_bytes >= OWN_PART * (r->floor_last_bytes - r->floor_first_bytes);
}

static void add_rate(struct verdict_interval *sum, const struct verdict_interval *rate)
{
    if (!sum->known || !rate->known || !(rate->value > 0))
        return;
    sum->value += rate->value;
    sum->low += rate->low;
    sum->high += rate->high;
}

/* Returns the growth rate ONE as a fraction of the rate ALL. */
static double part_of(const struct verdict_interval *one, const struct verdict_interval *all)
{
    return one->known && all->value > 0 && one->value > 0 ? one->value / all->value : 1;
}

void verdict_tree_sum(const struct verdict_member *members, size_t n, size_t grower,
                      struct verdict_result *r)
{
    const struct verdict_result *one = members[grower].result;
    double by_min, by_step;
    for (size_t i = 0; i < n; i++)
        if (i != grower && leaks_too(&members[i])) {
            add_rate(&r->rate_bytes_per_min, &members[i].result->rate_bytes_per_min);
            add_rate(&r->rate_bytes_per_step, &members[i].result->rate_bytes_per_step);
        }
    by_min = part_of(&one->rate_bytes_per_min, &r->rate_bytes_per_min);
    by_step = part_of(&one->rate_bytes_per_step, &r->rate_bytes_per_step);
    r->oom.eta_s_low *= by_min;
    r->oom.eta_s_high *= by_min;
    r->oom.eta_step_low *= by_step;
    r->oom.eta_step_high *= by_step;
    for (size_t i = 0; i < r->n_evidence; i++)
        if (r->evidence[i].code == VERDICT_SAID_PEAK_OOM) {
            r->evidence[i].value[1] *= r->evidence[i].value[3] > 0 ? by_step : by_min;
            r->evidence[i].value[2] *= r->evidence[i].value[3] > 0 ? by_step : by_min;
        }
}
