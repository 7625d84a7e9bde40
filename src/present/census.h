/* Renders a census (a document written by the Python package) and the growth since the previous
 * census. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct doc;

/* Describes a row of tensors, such as "cpu float32 [128, 256] requires_grad". The caller frees
 * the result, which is NULL if out of memory. */
char *census_tensor_name(const json_t *row);
/* Renders the output of `ebb census`. PROCESSES is a list of objects with `census`, `growth` and
 * `since`, or with `error`. At most TOP rows of each table are shown. */
void census_doc(struct doc *d, const json_t *processes, size_t top);
