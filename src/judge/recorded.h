/* A recorded run, read in one pass: its model, its verdicts, its marks, and run.json if it exists.
 * The input of `ebb verdict`, diagnose, report, heap and of the summary of `ebb run`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "judge/judge.h"
#include "judge/verdicts.h"
#include "profile/marks.h"
#include "run/outcome.h"
#include "run/run.h"

struct folder_heaps;

struct recorded {
    const char *path;    /* borrowed: a run folder, or a recording alone */
    struct run *run;     /* NULL: the recording could not be read */
    struct judge *judge; /* judge_result gives the verdicts on the entities of the run */
    struct verdicts verdicts;
    struct marks marks;
    bool has_outcome;           /* run.json was read */
    struct outcome outcome;     /* zeroed if run.json was not read */
    json_t *run_json;           /* the document itself; NULL: none */
    struct folder_heaps *heaps; /* see recorded_heaps */
    struct err trouble;         /* why an existing run.json could not be read, or "" */
};

/* SETTINGS (NULL: run_settings_read) and OPTIONS (NULL: defaults) are copied. Returns -errno with a
 * sentence on failure; RET then has run.json alone, and must be freed in any case. */
int recorded_read(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, struct recorded *ret, struct err *err);
/* The heap histories of the run folder, read on first use. */
const struct folder_heaps *recorded_heaps(const struct recorded *r);
void recorded_fini(struct recorded *r); /* accepts a zeroed struct */
