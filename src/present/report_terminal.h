/* What the terminal's reports share, for report_text.c and report_compare_view.c alone. */
#pragma once

#include <jansson.h>

#include "present/page.h"

/* Memory over time, of braille, with what happened below it; up to MOST at least, so that two can
 * be compared. Nothing for fewer than two readings. */
void report_plot_text(struct page *p, const json_t *data, const json_t *series, const char *title,
                      double most);
double report_most(const json_t *series); /* its greatest value; 0: none */
/* "label      text of any length, broken at its spaces"; RAW may be another program's. */
void report_sentence(struct page *p, const char *label, enum style style, const char *raw);
