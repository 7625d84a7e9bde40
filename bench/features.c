/* Prints the features that the verdict's model weighs, for every process of a recorded run and for
 * the job as a whole, as JSON lines: research/fit.py fits the weights to them.
 *
 *   features [--no-marks] RUN [SECONDS...]
 *
 * SECONDS: also prints the features at these times after the start of the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "judge/judge_model.h"
#include "judge/recorded.h"

static void put(const struct judge *j, const struct run_entity *p, double at_s)
{
    struct model_evidence e;
    double features[MODEL_COUNT];
    const struct judge_series *s = p ? judge_known(p)->series : j->whole;
    if (!judge_evidence(j, p, &e) || !model_features(&e, features))
        return;
    printf("{\"at\": %g, \"pid\": %d, \"is_over\": %d, \"stands\": %d, \"has_sites\": %d, "
           "\"outside\": %.3f, \"epochs\": %g, \"job\": \"%s\", \"word\": \"%s\", \"features\": {",
           at_s, p ? p->info.id.pid : 0, e.is_over, !p || !judge_was_replaced(j, p), e.sites.known,
           p ? judge_outside_heap(j, p) : 0, e.resident.epochs,
           verdict_word_name(j->tree.result.word),
           s->is_judged ? verdict_word_name(s->result.word) : "");
    for (unsigned i = 0; i < MODEL_COUNT; i++)
        printf("%s\"%s\": %.6g", i ? ", " : "", model_feature_name((enum model_feature)i),
               features[i]);
    printf("}}\n");
}

/* AT_S is 0 for the end of the run. */
static int put_run(const char *path, bool no_marks, double at_s)
{
    struct recorded r;
    struct err err = {0};
    struct run_settings reading = {.dead = RUN_DEAD_READ,
                                   .has_until = at_s > 0,
                                   .until_ns = (uint64_t)(at_s * (double)NS_PER_S)};
    const struct judge_options options = {.no_marks = no_marks};
    if (recorded_read(path, &reading, &options, &r, &err) < 0) {
        fprintf(stderr, "features: %s\n", err.text);
        return 1;
    }
    struct run_entity *e;
    for (size_t at = 0; (e = judge_next(r.judge, RUN_PROCESS, &at));)
        put(r.judge, e, at_s);
    put(r.judge, NULL, at_s);
    recorded_fini(&r);
    return 0;
}

int main(int argc, char **argv)
{
    bool no_marks = argc > 1 && strcmp(argv[1], "--no-marks") == 0;
    int first = no_marks ? 2 : 1, status = 0;
    if (argc <= first) {
        fputs("features: missing run folder\n", stderr);
        return 2;
    }
    for (int i = first + 1; i < argc && status == 0; i++)
        status = put_run(argv[first], no_marks, atof(argv[i]));
    return status ? status : put_run(argv[first], no_marks, 0);
}
