/* Laying out the summary: facts as labelled lines, cells, colours. For summary*.c alone. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

struct buf;

enum { LABEL_COLUMNS = 11, TEXT_MAX = 256 };

enum style { STYLE_PLAIN, STYLE_DIM, STYLE_STRONG, STYLE_GOOD, STYLE_BAD };

/* The text so far, and where its last line stands. */
struct page {
    struct buf *out;
    bool is_coloured;
    size_t width;
    size_t column;
    size_t indent;     /* of lines that go on; 0: LABEL_COLUMNS */
    const char *label; /* of the fact under way, until its first item: a label alone says nothing */
};

void page_put(struct page *p, enum style style, const char *text);
void page_pad(struct page *p, size_t column);
void page_line(struct page *p); /* ends it */
/* A text that no line has room for, broken at its spaces. */
void page_words(struct page *p, enum style style, const char *text);

/* A fact: its label (borrowed), then items between commas, on a new line where one is full. A
 * fact without items leaves nothing. */
void page_fact(struct page *p, const char *label);
void page_add(struct page *p, enum style style, const char *text);
__attribute__((format(printf, 2, 3))) void page_addf(struct page *p, const char *fmt, ...);
void page_fact_end(struct page *p);

/* O[A], or O[A][B]; NULL where something is missing. */
const json_t *summary_at(const json_t *o, const char *a, const char *b);
/* The text of a size, or NULL where there is none. */
const char *summary_size(char out[TEXT_SIZE_MAX], const json_t *v);
/* Text of another program, harmless and at most WIDTH columns. */
char *summary_fit(char out[TEXT_MAX], size_t width, const json_t *v);

/* The table of processes, the largest first (summary_processes.c). */
void summary_processes(struct page *p, const json_t *doc);
/* Why it ended; then segments, the guard's acts, what was left and given back (summary_guard.c). */
void summary_cause(struct page *p, const json_t *doc);
void summary_guard(struct page *p, const json_t *doc);
