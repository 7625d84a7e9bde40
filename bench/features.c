/* Prints the inputs of the verdict's model, for every process of a recorded run and for the job as
 * a whole, as JSON lines. research/fit.py fits the model's weights to them.
 *
 *   features [--no-marks] RUN [MOMENT...]
 *
 * MOMENT: also prints the features at this moment: seconds after the start of the run, or the
 * number of a step as step=N. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "judge/judge_model.h"
#include "judge/recorded.h"
#include "profile/held.h"

static void put_features(const char *name, const struct model_evidence *e)
{
    double features[MODEL_COUNT];
    model_features(e, features);
    printf(", \"%s\": {", name);
    for (unsigned i = 0; i < MODEL_COUNT; i++)
        printf("%s\"%s\": %.6g", i ? ", " : "", model_feature_name((enum model_feature)i),
               features[i]);
    printf("}");
}

/* Returns true if a series shows a leak by the shape of its curve, without the model. P is the
 * entity of the series. */
static bool leaks_by_shape(const struct judge *j, const struct run_entity *p,
                           struct judge_series *s)
{
    const struct verdict_result kept = s->result;
    judge_series_judge(s, &s->limit);
    if (p)
        judge_figures_apply(j, p);
    bool leaks = s->result.leak == VERDICT_LEAK_YES;
    s->result = kept;
    return leaks;
}

static void put(const struct judge *j, const struct run_entity *p, double at_s)
{
    struct model_evidence e;
    struct judge_series *s = p ? judge_known(p)->series : j->whole;
    const struct held *held = p ? judge_held_of(j, p) : NULL;
    if (!judge_evidence(j, p, &e))
        return;
    printf("{\"at\": %.3f, \"pid\": %d, \"moment\": %d, \"stands\": %d, \"has_sites\": %d, "
           "\"outside\": %.3f, \"epochs\": %g, \"job\": \"%s\", \"word\": \"%s\", \"shape\": %d",
           at_s, p ? p->info.id.pid : 0, e.moment, !p || !judge_was_replaced(j, p), e.sites.known,
           p ? judge_outside_heap(j, p) : 0, e.resident.epochs,
           verdict_word_name(j->tree.result.word),
           s->is_judged ? verdict_word_name(s->result.word) : "",
           s->is_judged && leaks_by_shape(j, p, s));
    put_features("features", &e);
    if (e.moment == MODEL_RUNNING && held && held->earlier.known) {
        e.sites = held->earlier;
        put_features("earlier", &e);
    }
    printf("}\n");
}

/* Prints the features of a recording at MOMENT, or at the end of the run if MOMENT is NULL. */
static int put_run(const char *path, bool no_marks, const char *moment)
{
    static const char STEP[] = "step=";
    struct recorded r;
    struct err err = {0};
    struct run_settings reading = run_settings_read;
    const struct judge_options options = {.no_marks = no_marks};
    if (moment && strncmp(moment, STEP, sizeof STEP - 1) == 0) {
        reading.has_until_step = true;
        reading.until_step = strtoull(moment + sizeof STEP - 1, NULL, 10);
    } else if (moment) {
        reading.has_until = true;
        reading.until_ns = (uint64_t)(atof(moment) * (double)NS_PER_S);
    }
    if (recorded_read(path, &reading, &options, &r, &err) < 0) {
        fprintf(stderr, "features: %s\n", err.text);
        return 1;
    }
    struct run_entity *e;
    double at_s = moment ? (double)r.run->tick_ns / (double)NS_PER_S : 0;
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
        status = put_run(argv[first], no_marks, argv[i]);
    return status ? status : put_run(argv[first], no_marks, NULL);
}
