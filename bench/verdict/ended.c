/* Truncates labelled series at a random time, as if the job had ended by itself at that time. */
#include "ended.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shapes.h"

static const double SHORTEST_S = 30;

static struct shapes_run run; /* about 2 MB, too large for a stack */

/* Counters of one family: all runs, runs judged a leak before their end, and runs judged a leak
 * after it. */
struct count {
    unsigned runs, before, after;
};

/* A hash of the run's values selects the time of truncation, so that it is the same in each call.
 * */
static double part_of(size_t family, uint64_t seed)
{
    uint64_t z = (seed << 8 | family) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Judges the run R as if its job had ended at END_S. Returns whether R was called a leak before its
 * end, and whether it was called a leak after it. */
static void judge(const struct shapes_run *r, double end_s, bool steps, bool *ret_before,
                  bool *ret_after)
{
    static struct verdict_series v;
    struct verdict_result result;
    size_t m = 0;

    verdict_init(&v, NULL);
    for (size_t i = 0; i < r->n && r->t[i] <= end_s; i++) {
        for (; m < r->n_marks && r->marks[m].t <= r->t[i]; m++) {
            struct verdict_mark mark = r->marks[m].m;

            mark.steps_per_epoch = mark.examples = mark.batch = mark.max_steps = 0;
            if (steps && (mark.kind == VERDICT_MARK_STEP || mark.kind == VERDICT_MARK_BEGIN))
                verdict_mark(&v, (int64_t)(r->marks[m].t * 1e9), &mark);
        }
        verdict_update(&v, (int64_t)(r->t[i] * 1e9), (uint64_t)r->y[i]);
    }
    verdict_judge(&v, NULL, &result);
    *ret_before = result.leak == VERDICT_LEAK_YES;
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &result);
    *ret_after = result.leak == VERDICT_LEAK_YES;
}

static void add(struct count *c, bool before, bool after)
{
    c->runs++;
    c->before += before;
    c->after += after;
}

static void print(const char *name, const struct count *c)
{
    printf("  %-24s %5u runs, called a leak while it ran %4u, when it was over %4u (%.1f %%)\n",
           name, c->runs, c->before, c->after, c->runs ? 100.0 * c->after / c->runs : 0);
}

static void bench(uint64_t seed0, unsigned seeds, const char *family, bool steps)
{
    struct count in_fill = {0}, sum[2][2] = {{{0}}};

    printf("\nJobs that ended by themselves, %s\n", steps ? "steps marked" : "no marks");
    for (size_t f = 0; f < shapes_count(); f++) {
        struct count all = {0};

        if (family && strcmp(family, shapes_name(f)) != 0)
            continue;
        for (uint64_t seed = seed0; seed < seed0 + seeds; seed++) {
            bool before, after;
            double end_s;

            shapes_draw(f, seed, &run);
            if (steps && !run.marked)
                continue;
            end_s = SHORTEST_S * pow(run.t[run.n - 1] / SHORTEST_S, part_of(f, seed));
            if (run.leak && end_s < run.onset_s)
                continue;
            judge(&run, end_s, steps, &before, &after);
            if (end_s < run.fill_end_s)
                add(&in_fill, before, after);
            else
                add(&all, before, after);
            if (end_s >= run.fill_end_s)
                add(&sum[run.leak][run.test], before, after);
        }
        print(shapes_name(f), &all);
    }
    print("inside a first epoch", &in_fill);
    print("no leak, tune", &sum[0][0]);
    print("no leak, test", &sum[0][1]);
    print("leaks, tune", &sum[1][0]);
    print("leaks, test", &sum[1][1]);
}

void ended_bench(uint64_t seed0, unsigned seeds, const char *family)
{
    bench(seed0, seeds, family, false);
    bench(seed0, seeds, family, true);
}
