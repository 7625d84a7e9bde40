/* A recorded run, read in one pass: its model, verdicts and marks, and run.json if it exists. Used
 * by `ebb verdict`, diagnose, report, heap and the summary of `ebb run`. */
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
    const char *path;    /* path of a run folder or of a single recording file; borrowed */
    struct run *run;     /* the run, or NULL if the recording could not be read */
    struct judge *judge; /* judges the run's entities; judge_result returns their verdicts */
    struct verdicts verdicts;
    struct marks marks;
    bool has_outcome;           /* true if run.json was read */
    struct outcome outcome;     /* contents of run.json, zeroed if it was not read */
    json_t *run_json;           /* the parsed run.json, or NULL */
    struct folder_heaps *heaps; /* see recorded_heaps */
    struct err trouble;         /* reason why run.json exists but could not be read, or "" */
};

/* Reads the run at PATH. SETTINGS and OPTIONS are copied and may be NULL; the default of SETTINGS
 * is run_settings_read. On failure, returns -errno with a message, and RET contains only run.json.
 * The caller frees RET in any case. */
int recorded_read(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, struct recorded *ret, struct err *err);
/* Returns the heap histories of the run folder, which are read on first use. */
const struct folder_heaps *recorded_heaps(const struct recorded *r);
void recorded_fini(struct recorded *r); /* frees the run; accepts a zeroed struct */
