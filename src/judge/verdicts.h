/* The verdicts on one run as plain data: on the job, its processes, GPUs and figures. Made by the
 * judge, or read from JSON (`ebb verdict --json`, or "verdict" in run.json); used by views and the
 * diagnosis. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"
#include "verdict/verdict.h"

struct judge;

enum { VERDICTS_LISTED = 64 }; /* the largest processes; others count as not judged */

/* An entity with its verdict. Strings are raw, as the job sent them, and owned. */
struct judged {
    struct verdict_result
        result;     /* times in seconds since the start of the run; evidence is in REASONS */
    char **reasons; /* sentences of evidence */
    size_t n_reasons;
    char *name;    /* NULL: the job, or the only series of a table */
    bool has_pid;  /* for a figure: the pid of its process */
    bool has_role; /* false: a table */
    bool alive;    /* at the last reading */
    bool has_rss, has_unique;
    int32_t pid;
    uint32_t gpu;         /* index of a GPU */
    uint64_t start_ticks; /* 0: unknown */
    enum process_role role;
    uint64_t rss_bytes, unique_bytes; /* newest readings of a process */
    char *label;                      /* display name of a figure; else NULL */
};

struct judged_list {
    struct judged *at;
    size_t count;
};

struct verdicts {
    bool has_job;   /* false: no readings, or a table whose groups are not processes of one job */
    bool is_series; /* a table with one group, which is JOB; the JSON is that verdict alone */
    struct judged job;
    bool has_grower;
    struct judged grower; /* the fastest-growing process: only its pid, name and role */
    uint64_t growing;     /* number of processes that leak or fill */
    struct verdict_cost flat[VERDICT_TREE_ROLES]; /* large but flat: overhead, largest first */
    size_t n_flat;
    struct judged_list processes, gpus, figures; /* processes by peak, largest first */
    uint64_t not_judged, rows_not_judged;        /* numbers of processes, and of rows of a table */
    uint32_t segment; /* number of restarts; the verdicts are on the last segment */
    bool has_earlier_leak;
    uint32_t earlier_segment;           /* the newest earlier segment that leaked */
    struct verdict_result earlier_leak; /* word, confidence and rates of that segment */
};

/* The verdicts of the judge's last update. 0 or -ENOMEM; free *ret with verdicts_fini. */
int judge_verdicts(const struct judge *j, struct verdicts *ret);
void verdicts_fini(struct verdicts *v); /* accepts a zeroed struct */

json_t *verdicts_json(const struct verdicts *v);     /* NULL: out of memory */
json_t *verdicts_job_json(const struct verdicts *v); /* only the "tree" member, or null */
json_t *judge_json(const struct judge *j);           /* verdicts_json of the last update */
json_t *judge_tree_json(const struct judge *j);      /* verdicts_job_json of the last update */
/* Reads a document written by verdicts_json. Missing and mistyped values are unknown. Returns 0,
 * -EINVAL if DOC is not an object, or -ENOMEM. */
int verdicts_read(const json_t *doc, struct verdicts *ret);

/* Appends a zeroed entry; NULL: out of memory. */
struct judged *judged_list_add(struct judged_list *list);
/* Of all GPUs: yes if one leaks, no if none does. */
enum verdict_leak verdicts_gpu_leak(const struct verdicts *v);
