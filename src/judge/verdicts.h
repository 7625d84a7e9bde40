/* The verdicts on one run as plain data: the job, its processes, GPUs and figures. Made by the
 * judge, or read back from JSON; views and the diagnosis take it. JSON: `ebb verdict --json`, and
 * "verdict" of run.json. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"
#include "verdict/verdict.h"

struct judge;

enum { VERDICTS_LISTED = 64 }; /* processes, the largest; the rest counts as not judged */

/* An entity with its verdict. Text is raw, as the job sent it, and owned. */
struct judged {
    struct verdict_result result; /* times in seconds since the run's start; evidence in REASONS */
    char **reasons;               /* its evidence, a sentence each */
    size_t n_reasons;
    char *name;    /* NULL: of the job, or of a table with one series */
    bool has_pid;  /* of a figure: of its process */
    bool has_role; /* false: of a table */
    bool alive;    /* at the end of what was read */
    bool has_rss, has_unique;
    int32_t pid;
    uint32_t gpu;         /* of a GPU: its index */
    uint64_t start_ticks; /* 0: not known */
    enum process_role role;
    uint64_t rss_bytes, unique_bytes; /* of a process, the newest */
    char *label;                      /* of a figure: its name for people; else NULL */
};

struct judged_list {
    struct judged *at;
    size_t count;
};

struct verdicts {
    bool has_job;   /* false: nothing was read, or the groups of a table are no one job's */
    bool is_series; /* a table with one group, which is JOB: its JSON is the verdict alone */
    struct judged job;
    bool has_grower;
    struct judged grower; /* the process that grows fastest: its pid, name and role alone */
    uint64_t growing;     /* processes that leak or fill */
    struct verdict_cost flat[VERDICT_TREE_ROLES]; /* large but flat: overhead; costliest first */
    size_t n_flat;
    struct judged_list processes, gpus, figures; /* processes by peak, the largest first */
    uint64_t not_judged, rows_not_judged;        /* processes; rows of a table */
    uint32_t segment; /* how often the job was started again: the verdicts are of this segment */
    bool has_earlier_leak;
    uint32_t earlier_segment;           /* the newest segment before this one that leaked */
    struct verdict_result earlier_leak; /* its word, confidence and rates */
};

/* What the judge found when it was last updated. 0 or -ENOMEM; *ret is to be freed by
 * verdicts_fini. */
int judge_verdicts(const struct judge *j, struct verdicts *ret);
void verdicts_fini(struct verdicts *v); /* zeroed is fine */

json_t *verdicts_json(const struct verdicts *v);     /* NULL: out of memory */
json_t *verdicts_job_json(const struct verdicts *v); /* "tree" of it alone, or null */
json_t *judge_json(const struct judge *j);           /* verdicts_json of its verdicts */
json_t *judge_tree_json(const struct judge *j);      /* verdicts_job_json of them */
/* Reads what verdicts_json wrote. What is missing or of another type is unknown. 0, -EINVAL for
 * what is no object, or -ENOMEM. */
int verdicts_read(const json_t *doc, struct verdicts *ret);

/* For those that fill one: the sentences of A's result, whose times are shifted by OFFSET_S. 0 or
 * -ENOMEM. */
int judged_set_result(struct judged *a, const struct verdict_result *result, double offset_s);
void judged_fini(struct judged *a);
/* Room for one more, zeroed; NULL: out of memory. */
struct judged *judged_list_add(struct judged_list *list);
