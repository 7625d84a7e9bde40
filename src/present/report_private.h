/* What report*.c share. */
#pragma once

#include "present/document.h"
#include "present/report.h"

/* ---- numbers; "–" where there is none ---- */

const char *report_size(char out[TEXT_SIZE_MAX], bool has, double bytes);
const char *report_change(char out[TEXT_SIZE_MAX], bool has, double bytes);
const char *report_time(char out[TEXT_TIME_MAX], double s);
/* "+9.0 MiB (+8.9 MiB to +9.1 MiB)" into the block or cell under way, the range in its own tone. */
void report_add_rate(struct doc *d, const struct verdict_interval *rate, enum doc_tone range);

double report_span_s(const struct report *r);

/* ---- sections ---- */

/* A curve of S with the events of the run, up to MOST at least. */
void report_add_plot(struct doc *d, const struct run *run, const struct series *s,
                     const char *title, uint64_t most);
/* A JSON string that the page shows as it is: what would turn text around is made visible. */
json_t *report_harmless(const char *raw);

/* Series, steps, events, phases and segments: for programs, or packed into few bytes for the page's
 * script. NULL: out of memory. */
json_t *report_data(const struct run *run, bool is_packed);
/* The marks of KIND that the first rank sent, each once, thinned to REPORT_EVENTS: how many, at
 * RET, which has room for all of that kind. */
size_t report_events(const struct run *run, enum mark_kind kind, const struct run_mark **ret);
