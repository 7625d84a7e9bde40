/* The live view without a terminal: one line of text, or one JSON object, per tick. */
#pragma once

#include "present/frame.h"

struct buf;

/* Appends a line such as "12.0 s  job 1.24 GiB (+98.0 MiB/min)  largest 4711 python (main) 1.10
 * GiB  21 processes  available 20.1 GiB  psi 0.0 %". */
void lines_text(struct buf *out, const struct frame *frame);
/* Appends a line {"type":"tick","t":…,"tree":{…},"machine":{…},"processes":[…],"gpus":[…]}.
 * Missing values are null; values that are not current are listed in "stale". */
void lines_json(struct buf *out, const struct frame *frame);
