/* Exports a recording as CSV (one row per process and tick) or JSON lines. */
#pragma once

#include <stdio.h>

struct err;
struct trace_reader;

/* Writes a CSV with the columns t (seconds since the start of the recording), pid, start (ticks),
 * role, name, rss_bytes, anon_bytes, … one per process field, stale (names joined by "+"), step,
 * epoch, phase. A field that was not read at that tick is empty. Names are quoted as CSV requires
 * and otherwise raw bytes. 0, or -errno of the write (-ENOSPC, -EPIPE) with an error. OUT is
 * flushed, not closed. */
int export_csv(struct trace_reader *reader, FILE *out, struct err *err);
/* Writes one JSON object per line with a "type": header, process, entity (the name of a GPU or
 * figure), sample, machine, gpu, series (of a tick), mark, note; and damage at the end if the file
 * has any. The keys of a mark are in lower case (T, TYPE and PID sent by the job become mark_t…),
 * so that csv_read_marks can read it. */
int export_jsonl(struct trace_reader *reader, FILE *out, struct err *err);
