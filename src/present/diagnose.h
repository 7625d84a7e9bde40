/* A diagnosis in words: a view of its JSON (diagnose/diagnosis.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;
struct page;

/* What `ebb diagnose` prints: the verdict, the ledger, the hypotheses, what to do. ALL: with the
 * evidence against those that are ruled out and the lack of it for those that cannot be tested.
 * WIDTH 0: 80 columns. */
void diagnose_text(struct buf *out, const json_t *doc, bool all, bool colour, size_t width);
/* The last facts of a summary: the first hypothesis and what to do. DOC may have "diagnosis". */
void diagnose_summary(struct page *p, const json_t *doc);
