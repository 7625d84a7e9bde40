/* The verdicts on one run as plain data: on the job, its processes, GPUs and figures. They come
 * from the judge or from JSON (`ebb verdict --json`, or "verdict" in run.json). Views and the
 * diagnosis use them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"
#include "verdict/verdict.h"

struct judge;

/* Maximum number of processes listed. The largest are listed, and the others are counted as not
 * judged. */
enum { VERDICTS_LISTED = 64 };

/* An entity with its verdict. The strings belong to this struct and are not escaped. */
struct judged {
    struct verdict_result
        /* times are seconds since the start of the run; evidence is in REASONS */
        result;
    char **reasons; /* the evidence as sentences */
    size_t n_reasons;
    char *name;    /* name of the entity; NULL for the job and for the only series of a table */
    bool has_pid;  /* true if PID is known; the pid of a figure is that of its process */
    bool has_role; /* false if the entity comes from a table */
    bool alive;    /* true if the process was alive at the last reading */
    bool has_rss, has_unique;
    int32_t pid;
    uint32_t gpu;         /* index of a GPU */
    uint64_t start_ticks; /* 0 if unknown */
    enum process_role role;
    uint64_t rss_bytes, unique_bytes; /* newest readings of a process */
    char *label;                      /* display name of a figure, otherwise NULL */
    /* Part of the job that the verdict is about, such as "rank 5"; NULL if it is the whole run. */
    char *where;
};

struct judged_list {
    struct judged *at;
    size_t count;
};

struct verdicts {
    /* False if there are no readings, or if the groups of a table are not processes of one job. */
    bool has_job;
    /* True for a table with one group. JOB is then the verdict on this group, and the JSON contains
     * nothing else. */
    bool is_series;
    struct judged job;
    bool has_grower;
    /* the fastest-growing process, of which only pid, name and role are set */
    struct judged grower;
    uint64_t growing; /* number of processes that leak or fill */
    /* Memory of flat processes by role, largest first. */
    struct verdict_cost flat[VERDICT_TREE_ROLES];
    size_t n_flat;
    struct judged_list processes, gpus, figures; /* PROCESSES is sorted by peak, largest first */
    /* Numbers of processes and of table rows that are not judged. */
    uint64_t not_judged, rows_not_judged;
    uint32_t segment; /* number of restarts; the verdicts are about the last segment */
    bool has_earlier_leak;
    uint32_t earlier_segment; /* number of the newest earlier segment that leaked */
    /* Word, confidence and rates of the earlier segment that leaked. */
    struct verdict_result earlier_leak;
};

/* Copies the verdicts of the judge's last update. Returns 0 or -ENOMEM; free *ret with
 * verdicts_fini. */
int judge_verdicts(const struct judge *j, struct verdicts *ret);
void verdicts_fini(struct verdicts *v); /* frees the verdicts; accepts a zeroed struct */

/* Converts the verdicts to JSON; returns NULL if out of memory. */
json_t *verdicts_json(const struct verdicts *v);
/* Converts only the verdict on the job (member "tree") to JSON. Returns JSON null if there is no
 * verdict. */
json_t *verdicts_job_json(const struct verdicts *v);
/* Returns verdicts_json for the judge's last update. */
json_t *judge_json(const struct judge *j);
/* Returns verdicts_job_json for the judge's last update. */
json_t *judge_tree_json(const struct judge *j);
/* Reads a document that verdicts_json wrote. Members that are missing or have another type become
 * unknown. Returns 0, -EINVAL if DOC is not an object, or -ENOMEM. */
int verdicts_read(const json_t *doc, struct verdicts *ret);

/* Sets the result of A, with its reasons as sentences. Times are shifted by OFFSET_S. Returns 0 or
 * -ENOMEM. */
int judged_set_result(struct judged *a, const struct verdict_result *result, double offset_s);
void judged_fini(struct judged *a); /* accepts a zeroed struct */
/* Adds the verdict and its evidence to O. */
void judged_json_add(json_t *o, const struct judged *a);
/* Appends a zeroed entry. Returns NULL if out of memory. */
struct judged *judged_list_add(struct judged_list *list);
/* Returns the worst verdict word of all GPUs, or undecided if there are none. */
enum verdict_word verdicts_gpu_word(const struct verdicts *v);
