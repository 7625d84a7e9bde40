/* Renders verdicts. */
#pragma once

#include <stdbool.h>

#include "present/document.h"

struct judged;
struct verdict_result;
struct verdicts;

/* Writes the verdict on ONE in one line, such as "leaking: +9.0 MiB/step, out of memory in about 7
 * min (97 % confident)". The time until out of memory is included only if FORECASTS. Returns the
 * length of the part to be coloured ("leaking"). OF is the set that ONE belongs to, or NULL. Names
 * in the text are not escaped. */
size_t verdict_headline(struct buf *out, const struct judged *one, const struct verdicts *of,
                        bool forecasts);
void verdict_put_headline(struct doc *d, const struct judged *one, const struct verdicts *of,
                          bool forecasts);
/* Returns true if ONE, a verdict from the set OF, is about a GPU. */
bool verdict_is_gpu(const struct judged *one, const struct verdicts *of);
/* Returns the worst verdict on the job's memory and the GPUs. Without a job, returns the worst
 * verdict on a process. Returns NULL if nothing was judged. V may be NULL. */
const struct judged *verdict_worst(const struct verdicts *v);
/* Appends the worst verdict in a few words, such as "leaking +98 MiB/min". */
void verdict_brief(struct buf *out, const struct verdicts *v);
/* Returns TONE_BAD for a leak, TONE_GOOD for no leak, and TONE_OPEN if this is undecided. */
enum doc_tone verdict_tone(const struct verdict_result *r);

/* Renders the output of `ebb verdict` below the headline: the evidence, the other verdicts, the
 * overhead of flat processes, the table of processes. If IS_BRIEF, renders only two reasons and no
 * processes. */
void verdict_details(struct doc *d, const struct verdicts *v, bool is_brief);
