/* What the sentences of a verdict and the table of its processes share. For verdict*.c alone. */
#pragma once

#include <jansson.h>

#include "present/page.h"

const char *verdict_word_of(const json_t *one);
enum style verdict_style_of(const json_t *one);

/* The processes of DOC, one a line, where there are several, and what is left of them
 * (verdict_table.c). */
void verdict_table(struct page *p, const json_t *doc);
