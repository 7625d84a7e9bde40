/* The summary of a run.json. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct buf;

void summary_text(struct buf *out, const json_t *doc, bool colour, int width);
