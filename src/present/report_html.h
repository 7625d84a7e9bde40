/* The parts of the page, for report_html*.c and report_compare*.c alone. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

struct buf;

/* ---- values ---- */

const char *report_string(const json_t *o, const char *key);           /* NULL: none */
double report_number(const json_t *o, const char *key, double absent); /* of any number */
/* "1.24 GiB", or "–" where there is none. */
const char *report_size(char out[TEXT_SIZE_MAX], const json_t *bytes);
const char *report_signed(char out[TEXT_SIZE_MAX], const json_t *bytes);
const char *report_time(char out[TEXT_TIME_MAX], double s);
/* The verdict on the whole job, or on its one series; NULL: none. */
const json_t *report_tree(const json_t *doc);
void report_headline(struct buf *out, const json_t *doc); /* the sentence of it */
/* Of the whole run; a verdict is on the last segment. NULL: none. */
const json_t *report_peak(const json_t *doc);
/* "bad" for a leak, "good" for none, "open". */
const char *report_tone(const json_t *one);
/* "collate, train.py:6" of a frame, raw. */
void report_where(struct buf *out, const json_t *frame);
/* A call site by its FRAME, and the function of the program's own for which that allocates:
 * "savefig, pyplot.py:9 ← plot, train.py:41". WITH has "in_program", and "place_count" where it is
 * several lines. Raw. */
void report_site(struct buf *out, const json_t *frame, const json_t *with);

/* ---- elements ---- */

/* Printf whose %s are markup or harmless; text of others goes through html_text. */
void html_cell(struct buf *out, bool is_number, const char *text); /* <td> */
void html_cell_json(struct buf *out, const json_t *text);
void html_fact(struct buf *out, const char *name, const char *text); /* of a <dl> */
void html_command(struct buf *out, const json_t *words);             /* <code> */
/* The page up to the end of <body>'s head, and what ends it: DATA (may be NULL) and the scripts. */
int html_begin(struct buf *out, const char *title, const char *nonce);
/* </main>, and by which ebb and when DOC was made. */
void html_footer(struct buf *out, const json_t *doc);
int html_end(struct buf *out, const json_t *data, const char *nonce);

/* ---- sections ---- */

/* Where the plots will be; one sentence where they were not built in. */
void html_plots(struct buf *out, const char *title, bool has_steps);
bool report_has_steps(const json_t *doc);
void html_processes(struct buf *out, const json_t *doc);
void html_guard(struct buf *out, const json_t *doc);
void html_machine(struct buf *out, const json_t *doc);
void html_heap(struct buf *out, const json_t *doc);
void html_diagnosis(struct buf *out, const json_t *doc);

/* The series, events and trees for the plots, in few bytes: times in ms and sizes in KiB, each as
 * the difference from the one before. To be given back; NULL: out of memory or nothing to draw. */
json_t *report_pack(const json_t *doc);
