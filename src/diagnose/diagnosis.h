/* The diagnosis of a run: its memory by category (the ledger), every hypothesis with its evidence,
 * and advice (docs/internals/diagnose.md). Names in the texts of a diagnosis are not escaped. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "diagnose/advice.h"
#include "diagnose/hypothesis.h"
#include "diagnose/ledger.h"

struct err;
struct recorded;

enum { DIAGNOSIS_ABSENT = 64, DIAGNOSIS_VERDICT = 256 };

struct diagnosis {
    struct facts *facts;             /* the other members point into it */
    char verdict[DIAGNOSIS_VERDICT]; /* one sentence */
    double growth;                   /* growth of the main process; NAN if unknown */
    bool has_grown;
    struct ledger ledger;
    struct hypothesis hypotheses[HYPOTHESIS_COUNT]; /* sorted, most likely first */
    size_t n_hypotheses;
    struct advice advice[ADVICE_MAX];
    size_t n_advice;
    const struct kept_list *kept_by;      /* containers that gain entries, or NULL */
    const char *absent[DIAGNOSIS_ABSENT]; /* sentences about missing measurements */
    size_t n_absent;
};

/* Returns 0, or -ENOMEM with a message. */
int diagnosis_new(const struct recorded *recorded, struct diagnosis **ret, struct err *err);
void diagnosis_free(struct diagnosis *d); /* D may be NULL */
/* Converts the diagnosis to JSON; returns NULL if out of memory. */
json_t *diagnosis_json(const struct diagnosis *d);
/* Returns the part of the diagnosis that is stored in run.json: the verdict sentence, the first
 * hypothesis and the advice. */
json_t *diagnosis_brief_json(const struct diagnosis *d);
