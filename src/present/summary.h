/* The end of a run in words: a view of the facts in run.json, no more and no less. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct buf;

/* DOC is what engine_summary made, with the command's own keys (docs/run-json.md). Missing keys
 * are left out of the text. COLOUR: ANSI colours allowed. WIDTH: columns of the terminal, 0: 80. */
void summary_text(struct buf *out, const json_t *doc, bool colour, int width);
