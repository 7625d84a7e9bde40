/* The diagnosis of a run as plain data for the views: where the memory is (the ledger), every
 * hypothesis with its evidence, and advice (docs/internals/diagnose.md). Strings are not
 * escaped. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnose/hypothesis.h"
#include "profile/view.h"

struct err;

/* The allocating line, and the innermost line of the program itself on the call path. */
struct diagnosis_site {
    struct profile_frame where;
    bool has_in_program;
    struct profile_frame in_program;
    bool has_place_count;
    uint64_t place_count; /* number of allocating lines, if more than one */
};

/* One part of the process's resident memory. */
struct diagnosis_part {
    char *kind, *what;
    bool has_site;
    struct diagnosis_site site;
    bool has_start_bytes, has_now_bytes, has_low_bytes, has_high_bytes, has_growth_bytes;
    int64_t start_bytes, now_bytes, low_bytes, high_bytes, growth_bytes;
};

struct diagnosis_ledger {
    bool has_start_s, has_now_s, has_rss_start_bytes, has_rss_now_bytes, has_named_growth_share;
    double start_s, now_s;
    int64_t rss_start_bytes, rss_now_bytes;
    double named_growth_share; /* fraction of the growth of RSS that is attributed, 0 to 1 */
    struct diagnosis_part *parts;
    size_t n_parts;
};

struct diagnosis_hypothesis {
    char *key, *code, *title;
    enum hypothesis_word word;
    bool has_log_odds, has_share, has_site;
    double log_odds, share;
    /* Sentences of evidence for and against, and on missing measurements. */
    char **pro, **contra, **absent;
    size_t n_pro, n_contra, n_absent;
    char *decide; /* measurement that would decide the hypothesis, or NULL if it is decided */
    struct diagnosis_site site;
};

struct diagnosis_advice {
    char *because; /* key of the hypothesis that the advice is for */
    char *what;
    char *effect; /* NULL if this run did not measure the effect */
};

/* A Python container that gains entries. */
struct diagnosis_container {
    char *name, *type, *text;
    uint64_t added, bytes;
    bool has_since_step, has_step;
    int64_t since_step, step;
};

struct diagnosis {
    uint32_t format;
    char *verdict; /* one sentence */
    bool has_process, is_running, has_grown, has_growth_bytes, has_ledger;
    struct diagnosis_process {
        int32_t pid;
        char *name, *role, *verdict;
        bool has_peak_bytes;
        int64_t peak_bytes;
    } process;
    int64_t growth_bytes;
    struct diagnosis_ledger ledger;
    struct diagnosis_hypothesis *hypotheses; /* ranked */
    size_t n_hypotheses;
    struct diagnosis_advice *advice;
    size_t n_advice;
    struct diagnosis_container *kept_by;
    size_t n_kept_by;
    char **absent; /* sentences on missing measurements */
    size_t n_absent;
};

/* Returns 0, or -ENOMEM with a message in ERR; on error RET is unchanged. */
int diagnosis_make(const struct facts *f, struct diagnosis *ret, struct err *err);
/* Frees the diagnosis; accepts a zeroed struct. */
void diagnosis_fini(struct diagnosis *d);
/* Converts the diagnosis to JSON; returns NULL if out of memory. */
json_t *diagnosis_json(const struct diagnosis *d);
/* Returns the part that run.json holds: the verdict sentence, the first hypothesis and the
 * advice. */
json_t *diagnosis_brief_json(const struct diagnosis *d);
/* Reads a document written by one of the two functions above; any part may be missing. Returns 0 or
 * -ENOMEM. */
int diagnosis_read(const json_t *doc, struct diagnosis *ret, struct err *err);
