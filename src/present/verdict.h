/* Renders verdicts. */
#pragma once

#include <stdbool.h>

#include "present/document.h"

struct judged;
struct verdict_result;
struct verdicts;

/* Writes the verdict on ONE in one line: "leaking: +9.0 MiB/step, out of memory in about 7 min (97
 * % confident)". Returns the length of the part to be coloured, "leaking". OF is the set that ONE
 * belongs to, or NULL. Names in the text are not escaped. */
size_t verdict_headline(struct buf *out, const struct judged *one, const struct verdicts *of);
/* Adds the headline to D. FORECASTS: include when memory runs out. */
void verdict_put_headline(struct doc *d, const struct judged *one, const struct verdicts *of,
                          bool forecasts);
/* Returns whether ONE of the verdicts OF a run is on a GPU. */
bool verdict_is_gpu(const struct judged *one, const struct verdicts *of);
/* The most serious verdict: the worst of the job's memory and of each GPU or, if there is no job,
 * of the processes. NULL: nothing was judged. */
const struct judged *verdict_worst(const struct verdicts *v);
/* Appends the worst verdict in a few words: "leaking +98 MiB/min". */
void verdict_brief(struct buf *out, const struct verdicts *v);
enum doc_tone verdict_tone(const struct verdict_result *r); /* bad: a leak, good: no leak */

/* The output of `ebb verdict` below the headline: the evidence, the other verdicts, the overhead
 * of flat processes, the table of processes. IS_BRIEF: two reasons, and no processes. */
void verdict_details(struct doc *d, const struct verdicts *v, bool is_brief);
