/* Options for reading a CSV table, shared by all commands that accept one. */
#pragma once

#include "options/option.h"
#include "trace/csv.h"

#define CSV_OFFSET(S, M, member) (offsetof(S, M) + offsetof(struct csv_options, member))
/* The rows of the options table for a struct S whose member M is a struct csv_options. */
#define CSV_OPTION_ROWS(S, M)                                                                      \
    OPTION_ROW(0, "marks", PATH, "FILE.jsonl", CSV_OFFSET(S, M, marks_path),                       \
               .help = "for a CSV table: file with steps and phases, one JSON object per line"),   \
        OPTION_ROW(0, "column", TEXT, "NAME", CSV_OFFSET(S, M, column),                            \
                   .help = "for a CSV table: column with the values "                              \
                           "(default: the first of rss_bytes, rss_mb, rss, pss)"),                 \
        OPTION_ROW(0, "time-column", TEXT, "NAME", CSV_OFFSET(S, M, time_column),                  \
                   .help = "for a CSV table: column with the time in seconds (default: t)"),       \
        OPTION_ROW(0, "step-column", TEXT, "NAME", CSV_OFFSET(S, M, step_column),                  \
                   .help = "for a CSV table: column with the step (default: step)"),               \
        OPTION_ROW(0, "group", TEXT, "NAME", CSV_OFFSET(S, M, group),                              \
                   .help = "for a CSV table: column whose values separate the rows into series "   \
                           "(default: pid, if it exists)"),                                        \
        OPTION_ROW(0, "unit", TEXT, "UNIT", CSV_OFFSET(S, M, unit),                                \
                   .help = "for a CSV table: unit of the values: B, kB, MB, MiB, … "             \
                           "(default: from the column's name, else B)")
