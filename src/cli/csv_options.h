/* How a table is read: the options of every command that takes one. */
#pragma once

#include "options/option.h"
#include "trace/csv.h"

#define CSV_OFFSET(S, M, member) (offsetof(S, M) + offsetof(struct csv_options, member))
/* For the struct of options S, whose member M is a struct csv_options. */
#define CSV_OPTION_ROWS(S, M)                                                                      \
    OPTION_ROW(0, "marks", PATH, "FILE.jsonl", CSV_OFFSET(S, M, marks_path),                       \
               .help = "of a table: steps and phases, one JSON object a line"),                    \
        OPTION_ROW(0, "column", TEXT, "NAME", CSV_OFFSET(S, M, column),                            \
                   .help = "of a table: the values (default the first of rss_bytes, rss_mb, rss, " \
                           "pss)"),                                                                \
        OPTION_ROW(0, "time-column", TEXT, "NAME", CSV_OFFSET(S, M, time_column),                  \
                   .help = "of a table: the seconds (default t)"),                                 \
        OPTION_ROW(0, "step-column", TEXT, "NAME", CSV_OFFSET(S, M, step_column),                  \
                   .help = "of a table: the steps (default step)"),                                \
        OPTION_ROW(0, "group", TEXT, "NAME", CSV_OFFSET(S, M, group),                              \
                   .help = "of a table: the column whose every value is a series of its own "      \
                           "(default pid, where there is one)"),                                   \
        OPTION_ROW(0, "unit", TEXT, "UNIT", CSV_OFFSET(S, M, unit),                                \
                   .help = "of a table: B, kB, MB, MiB, … (default by the column's name, else B)")
