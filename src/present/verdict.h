/* Verdicts in words. */
#pragma once

#include <stdbool.h>

#include "present/document.h"

struct judged;
struct verdict_result;
struct verdicts;

/* The verdict on ONE in one sentence without its word: "process 606 python (main) grows by 98.0 MiB
 * a step (96.1 – 99.9) …". OF: the verdicts whose job ONE is, else NULL. Names in it are raw. */
void verdict_headline(struct buf *out, const struct judged *one, const struct verdicts *of);
/* That on the job in few words, for a line of many: "leaking +98.0 MiB/min, 606 python". */
void verdict_brief(struct buf *out, const struct verdicts *v);
enum doc_tone verdict_tone(const struct verdict_result *r); /* bad: a leak, good: none */

/* What `ebb verdict` prints: the headline and the evidence, who else there is, what the flat ones
 * cost. */
void verdict_doc(struct doc *d, const struct verdicts *v);
/* The fact "verdict" of a summary, with the first reasons. */
void verdict_summary(struct doc *d, const struct verdicts *v);
