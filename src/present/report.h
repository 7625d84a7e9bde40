/* The report of one run, or of two side by side: one document, written as a page, as text or as
 * Markdown. docs/report.md. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "profile/view.h"

struct buf;
struct doc;

enum {
    REPORT_EVENTS = 400,       /* of one kind; of more, only every Nth is drawn */
    REPORT_GUARD_EVENTS = 200, /* listed: the newest */
    REPORT_PROCESSES = 64,     /* listed: the largest */
};

/* What was read of a run. Any part may be missing: what could not be read is in TROUBLE. */
struct report {
    const char *path; /* as the user gave it; borrowed */
    struct recorded recorded;
    bool has_verdicts, has_early;
    /* Of the first of two runs that are compared, where the second is shorter: the verdict by then.
     */
    enum verdict_word early_word;
    bool is_early_leak;
    char early_length[TEXT_TIME_MAX]; /* "80 steps" */
    bool has_heap;                    /* else HEAP_TROUBLE, where it was asked for */
    struct profile_view heap;
    char *heap_trouble;
    bool has_diagnosis;
    struct diagnosis diagnosis;
    char **trouble;
    size_t trouble_count;
};
void report_fini(struct report *r);
void report_add_trouble(struct report *r, const char *sentence);
/* "1.20 KiB in the middle, 2 lost blocks"; nothing for what is whole. */
void report_add_damage(struct buf *out, const struct trace_reader_damage *damage);
/* Of the run: its name, or its path. */
const char *report_title(const struct report *r);
/* The verdict on the job, or on the first process of what is no job's; NULL: none. */
const struct judged *report_verdict(const struct report *r);
/* Of the whole run; a verdict is on the last segment. 0: unknown. */
uint64_t report_peak(const struct report *r);
/* Where the job was started; NULL: unknown. */
const char *report_cwd(const struct report *r);

void report_document(struct doc *d, const struct report *r);
/* What `ebb report --json` prints; NULL: out of memory. */
json_t *report_json(const struct report *r);

/* Whether a change helped, by the intervals of the rates of both runs: where they overlap, nothing
 * was shown. */
enum report_answer { ANSWER_UNKNOWN, ANSWER_FIXED, ANSWER_LESS, ANSWER_SAME, ANSWER_WORSE };
enum { COMPARISON_REASON = 160 };
struct comparison {
    enum report_answer answer;
    char sentence[400];
    const char *by; /* "step", "minute"; NULL: no rate is known of both */
    char reasons[3][COMPARISON_REASON];
    size_t reason_count;
};
void report_compare(const struct report *before, const struct report *after,
                    struct comparison *ret);
void report_compare_document(struct doc *d, const struct comparison *c, const struct report *before,
                             const struct report *after);
json_t *report_compare_json(const struct comparison *c, const struct report *before,
                            const struct report *after);

/* One page that needs nothing else: DOC, and what its script draws of the run, or of both (AFTER
 * may be NULL). NONCE: letters and digits that nobody could know before. 0, -ENOMEM, or -EIO where
 * what is built in cannot be unpacked. */
int report_page(struct buf *out, const char *title, const struct doc *doc,
                const struct report *before, const struct report *after, const char *nonce);
