/* Reads the summary of a run.json. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct buf;

enum summary_form { SUMMARY_BRIEF, SUMMARY_FULL };
void summary_text(struct buf *out, const json_t *doc, enum summary_form form, bool colour,
                  size_t width);
