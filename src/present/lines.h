/* The live view where there is no terminal: one line a tick for people, one JSON object a line
 * for programs. */
#pragma once

#include "present/frame.h"

struct buf;

/* "12.0 s  job 1.24 GiB (+98.0 MiB/min)  largest 4711 python (main) 1.10 GiB  21 processes
 * available 20.1 GiB  psi 0.0 %" and a newline. */
void lines_text(struct buf *out, const struct frame *frame);
/* {"type":"tick","t":…,"tree":{…},"machine":{…},"processes":[…],"gpus":[…]} and a newline:
 * missing figures are null, old ones are named in "stale". */
void lines_json(struct buf *out, const struct frame *frame);
