/* Exports a recording as CSV (one row per process and tick) or JSON lines. */
#pragma once

#include <stdio.h>

struct err;
struct trace_reader;

/* Writes a CSV table with the columns t (seconds since the start of the recording), pid, start (in
 * clock ticks), role, name, one column per process field (rss_bytes, anon_bytes, …), stale (field
 * names joined by "+"), step, epoch, phase. A field that was not read at a tick is empty. Names are
 * raw bytes, quoted where CSV requires it. Flushes OUT but does not close it. Returns 0, or -errno
 * of the write (-ENOSPC, -EPIPE) and sets ERR. */
int export_csv(struct trace_reader *reader, FILE *out, struct err *err);
/* Writes one JSON object per line. The "type" of each is header, process, entity (the name of a GPU
 * or series), sample, machine, gpu, series (the value of a series at a tick), mark or note. If the
 * file is damaged, a last line of type damage follows. The keys of a mark are written in lower
 * case, so that csv_read_marks can read it; its keys T, TYPE and PID become mark_t, mark_type and
 * mark_pid. */
int export_jsonl(struct trace_reader *reader, FILE *out, struct err *err);
