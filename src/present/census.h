/* A census in words: a document of the Python package, with what grew since the one before. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct doc;

/* "cpu float32 [128, 256] requires_grad": a row of tensors, to be freed; NULL: out of memory. */
char *census_tensor_name(const json_t *row);
/* What `ebb census` prints. PROCESSES is a list, each with `census`, `growth` and `since`, or with
 * `error`. TOP rows of each table. */
void census_doc(struct doc *d, const json_t *processes, size_t top);
