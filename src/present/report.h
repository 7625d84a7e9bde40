/* A report of one run, or of two side by side: a view of one JSON document, no more and no less.
 * docs/report.md has its form. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;

/* DOC of all of these:
 *   "ebb", "made"            who made the report, and when (local time)
 *   "title", "path"          of the run: its name, and where it was read from
 *   "run"                    run.json | null
 *   "header"                 of the recording | null
 *   "verdict"                as `ebb verdict --json` prints it | null
 *   "data"                   of report_data | null
 *   "heap"                   of profile_json, with "tree" | null, and then "heap_trouble"
 *   "diagnosis"              of diagnosis_json; may be missing
 *   "early"                  of the first of two runs that are compared, where the second is
 * shorter:
 *                            {"length": "80 steps", "verdict": as it was known by then}
 *   "trouble"                sentences about what could not be read */

/* One page that needs nothing else. NONCE: letters and digits that nobody could know before.
 * 0, -ENOMEM, or -EIO where what is built in cannot be unpacked. */
int report_html(struct buf *out, const json_t *doc, const char *nonce);
/* For a terminal, with plots of braille. WIDTH 0: 80 columns. */
void report_text(struct buf *out, const json_t *doc, bool colour, size_t width);
/* For a bug report to whom the memory belongs. */
void report_markdown(struct buf *out, const json_t *doc);

/* Two runs, before and after a change: {"answer": "fixed|less|same|worse|unknown", "sentence",
 * "reasons": […], "by": "step|minute|null", "before": {…}, "after": {…}, "sites": […]}. Whether it
 * helped is said by the intervals of both verdicts: where they overlap, nothing was shown. NULL:
 * out of memory. */
json_t *report_compare(const json_t *before, const json_t *after);
int report_compare_html(struct buf *out, const json_t *compared, const json_t *before,
                        const json_t *after, const char *nonce);
void report_compare_text(struct buf *out, const json_t *compared, const json_t *before,
                         const json_t *after, bool colour, size_t width);
void report_compare_markdown(struct buf *out, const json_t *compared);
