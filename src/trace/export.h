/* A recording out again, as CSV (one row per process and tick) or JSON lines. */
#pragma once

#include <stdio.h>

struct err;
struct trace_reader;

/* Columns: t (seconds since the start of the recording), pid, start (ticks), role, name, rss_bytes,
 * anon_bytes, … one per process field, stale (names joined by "+"), step, epoch, phase. A field not
 * read at that tick is empty. Names are quoted as CSV wants it and otherwise untouched bytes.
 * 0, or -errno of the write (-ENOSPC, -EPIPE) with a sentence. OUT is flushed, not closed. */
int export_csv(struct trace_reader *reader, FILE *out, struct err *err);
/* One object a line with "type": header, process, entity (the name of a GPU or series), sample,
 * machine, gpu, series (of a tick), mark, note; and damage at the end where the file had any.
 * Of a mark every key is there in lower case (T, TYPE and PID of the job's own as mark_t…), so
 * that csv_read_marks can read it. */
int export_jsonl(struct trace_reader *reader, FILE *out, struct err *err);
