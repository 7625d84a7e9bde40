/* A census in words: a view of its JSON. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;

/* "cpu float32 [128, 256] requires_grad": a row of tensors, to be freed; NULL: out of memory. */
char *census_tensor_name(const json_t *row);
/* What `ebb census` prints. DOC has `processes` (each with `census`, `growth` and `since`, or with
 * `error`). TOP rows of each table. */
void census_text(struct buf *out, const json_t *doc, size_t top, bool colour, size_t width);
