/* A heap profile in words: a view of its JSON (profile/view.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;
struct doc;

/* What `ebb heap` prints of one process: the table of call sites and what the profiler cost. DOC is
 * as profile_json makes it; MEANING is what the column of growth says: "growth", "since step
 * 40". WIDTH 0: 80 columns. */
void heap_text(struct buf *out, const json_t *doc, const char *meaning, bool colour, size_t width);
/* The tree of --tree; DOC: "tree" of it. */
void heap_tree_text(struct buf *out, const json_t *doc, bool colour, size_t width);
/* The fact "grows" of a summary: the call sites that grow. */
void heap_summary(struct doc *d, const json_t *growing);
