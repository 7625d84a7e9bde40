/* Exports a recording as CSV (one row per process and tick) or JSON lines. */
#pragma once

#include <stdio.h>

struct err;
struct trace_reader;

/* Writes a CSV with the columns t (seconds since the start of the recording), pid, start (ticks),
 * role, name, one column per process field (rss_bytes, anon_bytes, …), stale (field names joined by
 * "+"), step, epoch, phase. A field that was not read at a tick is empty. Names are quoted as CSV
 * requires, and otherwise raw bytes. Flushes OUT but does not close it. Returns 0, or -errno of the
 * write (-ENOSPC, -EPIPE) with an error. */
int export_csv(struct trace_reader *reader, FILE *out, struct err *err);
/* Writes one JSON object per line. Its "type" is header, process, entity (the name of a GPU or
 * series), sample, machine, gpu, series (of a tick), mark or note. If the file is damaged, the last
 * line has the type damage. The keys of a mark are in lower case, so that csv_read_marks can read
 * the mark; T, TYPE and PID that the job sent become mark_t, mark_type and mark_pid. */
int export_jsonl(struct trace_reader *reader, FILE *out, struct err *err);
