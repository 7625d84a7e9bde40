/* The report of one run, or of two runs side by side: one document, written as a page, as text or
 * as Markdown. See docs/guide/report.md. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "present/summary.h"
#include "profile/view.h"

struct buf;
struct cluster;
struct doc;

enum {
    /* Maximum number of events drawn per kind. If there are more, only every Nth event is drawn. */
    REPORT_EVENTS = 400,
    REPORT_GUARD_EVENTS = 200, /* maximum number of guard actions listed, the newest first */
    REPORT_PROCESSES = 64,     /* maximum number of processes listed, the largest first */
};

/* The data of a run for its report. Any part may be missing; TROUBLE lists the errors. */
struct report {
    const char *path; /* path as the user entered it; borrowed */
    /* The job on several nodes, if this report is about its worst node; otherwise NULL. */
    const struct cluster *cluster;
    struct recorded recorded;
    bool has_verdicts, has_early;
    /* Set only in the first of two compared runs, and only if the second run is shorter: the
     * verdict on the first run when it was as long as the second. */
    enum verdict_word early_word;
    bool is_early_leak;
    char early_length[TEXT_TIME_MAX]; /* "80 steps" */
    /* if false and a heap profile was requested, HEAP_TROUBLE explains why it is missing */
    bool has_heap;
    struct profile_view heap;
    char *heap_trouble;
    bool has_gpu; /* true if GPU memory by call site is known */
    struct profile_view gpu;
    /* Profile of the process in which a GPU request failed first. */
    struct profile_view gpu_failed;
    uint64_t gpu_failures; /* number of failed GPU requests in all processes */
    /* Why the lines that allocated GPU memory are unknown; NULL if no GPU was used. */
    const char *gpu_trouble;
    struct diagnosis *diagnosis; /* NULL if the run could not be diagnosed */
    char **trouble;
    size_t trouble_count;
};
void report_fini(struct report *r);
void report_add_trouble(struct report *r, const char *sentence);
/* Appends text such as "1.20 KiB in the middle, 2 lost blocks", or nothing if the recording is
 * intact. */
void report_add_damage(struct buf *out, const struct trace_reader_damage *damage);
/* Returns the name of the run, or its path. */
const char *report_title(const struct report *r);
/* Returns the verdict on the job, or on the first process of a recording without a job, or NULL. */
const struct judged *report_verdict(const struct report *r);
/* Returns the peak of the whole run (a verdict covers only the last segment), or 0 if unknown. */
uint64_t report_peak(const struct report *r);
/* Returns the folder in which the job was started, or NULL if unknown. */
const char *report_cwd(const struct report *r);

/* Returns the call sites of host memory or of GPU memory, whichever the headline is about. */
const struct profile_view *report_worst_heap(const struct report *r);
/* Returns the input for the lead. */
struct summary report_summary(const struct report *r);
void report_document(struct doc *d, const struct report *r);
/* Returns the document of `ebb report --json`, or NULL if out of memory. */
json_t *report_json(const struct report *r);

/* The answer to whether a change helped. The answer follows from the confidence intervals of both
 * rates: if the intervals overlap, no difference is proven. */
enum report_answer { ANSWER_UNKNOWN, ANSWER_FIXED, ANSWER_LESS, ANSWER_SAME, ANSWER_WORSE };
enum { COMPARISON_REASON = 160 };
struct comparison {
    enum report_answer answer;
    char sentence[400];
    /* Unit of the rates, "step" or "minute", or NULL if the runs have no rate in common. */
    const char *by;
    char reasons[3][COMPARISON_REASON];
    size_t reason_count;
};
void report_compare(const struct report *before, const struct report *after,
                    struct comparison *ret);
void report_compare_document(struct doc *d, const struct comparison *c, const struct report *before,
                             const struct report *after);
json_t *report_compare_json(const struct comparison *c, const struct report *before,
                            const struct report *after);

/* Writes a self-contained page with DOC and, for the page's script, the data of the run or of both
 * runs (AFTER may be NULL). NONCE is a random string of letters and digits. Returns 0, -ENOMEM, or
 * -EIO if the embedded files cannot be decompressed. */
int report_page(struct buf *out, const char *title, const struct doc *doc,
                const struct report *before, const struct report *after, const char *nonce);
