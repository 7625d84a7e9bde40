/* Shared by report*.c. */
#pragma once

#include "present/document.h"
#include "present/report.h"

/* ---- formatted numbers, "–" if missing ---- */

const char *report_time(char out[TEXT_TIME_MAX], double s);
/* Adds text such as "+9.0 MiB (+8.9 MiB to +9.1 MiB)" to the current block or cell, with the
 * range in a tone of its own. */
void report_add_rate(struct doc *d, const struct verdict_interval *rate, enum doc_tone range);

double report_span_s(const struct report *r);

/* ---- sections ---- */

/* Adds a plot of S with the events of the run. The axis extends at least to MOST. */
void report_add_plot(struct doc *d, const struct run *run, const struct series *s,
                     const char *title, uint64_t most);
/* Returns the series, steps, events, phases and segments as JSON. If IS_PACKED, they are in the
 * compact form for the page's script. Returns NULL if out of memory. */
json_t *report_data(const struct run *run, bool is_packed);
/* Stores the marks of KIND that the first rank sent, without repetitions. If there are more than
 * REPORT_EVENTS marks, stores only every Nth mark. Returns the number of stored marks. RET must
 * have room for all marks of the kind. */
size_t report_events(const struct run *run, enum mark_kind kind, const struct run_mark **ret);
