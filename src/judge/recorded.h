/* A recorded run, read in one pass: its model, its verdicts, its marks, and run.json where there is
 * one. What `ebb verdict`, diagnose, report, heap and the end of `ebb run` begin with. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "judge/judge.h"
#include "judge/verdicts.h"
#include "profile/marks.h"
#include "run/outcome.h"
#include "run/run.h"

struct recorded {
    const char *path;    /* borrowed: a run folder, or a recording alone */
    struct run *run;     /* NULL: the recording could not be read */
    struct judge *judge; /* of the run: judge_result of its entities */
    struct verdicts verdicts;
    struct marks marks;
    bool has_outcome;       /* run.json could be read */
    struct outcome outcome; /* zeroed where it could not */
    json_t *run_json;       /* the same as it is in the file; NULL: none */
    struct err trouble;     /* why run.json, which exists, could not be read; "": it could */
};

/* SETTINGS (NULL: run_settings_read) and OPTIONS (NULL: none given) are copied. -errno with a
 * sentence; RET, which is to be freed all the same, then has run.json alone. */
int recorded_read(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, struct recorded *ret, struct err *err);
void recorded_fini(struct recorded *r); /* accepts a zeroed one */
