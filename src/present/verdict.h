/* Verdicts in words. Like the summary a view of the JSON, no more and no less: what a program reads
 * and what a person reads cannot differ. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct page;

/* The verdict in one sentence without its word: "process 606 python (main) grows by 98.0 MiB a
 * step (96.1 – 99.9) …". ONE is a single series, or a tree. */
void verdict_headline(struct buf *out, const json_t *one);
/* The same in few words, for a line of many: "leaking +98.0 MiB/min, 606 python". */
void verdict_brief(struct buf *out, const json_t *one);

/* What `ebb verdict` prints: the headline and the evidence, who else there is, what the flat ones
 * cost. DOC is one series, or has `tree`, `processes` and `gpus`. WIDTH 0: 80 columns. */
void verdict_text(struct buf *out, const json_t *doc, bool colour, int width);
/* The fact "verdict" of a summary, with the first reasons. DOC has the key "verdict". */
void verdict_summary(struct page *p, const json_t *doc);
