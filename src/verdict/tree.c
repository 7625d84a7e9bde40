/* The verdict on a tree: who grows, and what the flat ones cost. */
#include "verdict/verdict.h"

#include <math.h>
#include <string.h>

/* How much a word says about growth; larger is worse. */
static int rank_of(enum verdict_word word)
{
    switch (word) {
    case VERDICT_LEAKING:
        return 5;
    case VERDICT_STEPPING:
        return 4;
    case VERDICT_FILLING:
        return 3;
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
        i--; /* the last takes what does not fit */
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

void verdict_tree_judge(const struct verdict_member *members, size_t n,
                        const struct verdict_result *whole, struct verdict_tree_result *ret)
{
    int worst = -1;
    double fastest = 0, total = 0;

    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < n; i++)
        if (members[i].alive)
            total += members[i].rss_bytes;
    for (size_t i = 0; i < n; i++) {
        const struct verdict_result *r = members[i].result;
        int rank = rank_of(r->word);

        if (!members[i].alive)
            continue;
        if (rank < 3)
            add_cost(ret, &members[i]);
        else
            ret->growers++;
        /* A small process that just started leaves the tree's verdict to the others. */
        if (r->word == VERDICT_UNDECIDED && worst >= 0 &&
            (!r->has_floor || r->floor_last_bytes - r->floor_first_bytes < 0.05 * total))
            continue;
        if (rank > worst || (rank == worst && growth_of(r) > fastest)) {
            worst = rank;
            fastest = growth_of(r);
            ret->word = r->word;
            ret->confidence = r->confidence;
            ret->grower = i;
            ret->has_grower = rank >= 3;
        }
    }
    sort_costs(ret);
    /* The whole may grow though no process does: shared memory, or ever more processes. */
    if (whole && rank_of(whole->word) > worst && whole->leak == VERDICT_LEAK_YES) {
        ret->word = whole->word;
        ret->confidence = whole->confidence;
        ret->has_grower = false;
    }
    ret->leak = verdict_word_leak(ret->word);
}
