/* `ebb import`: a recording made of somebody's table. */
#include "cli/cli.h"

#include "trace/csv.h"

struct import_options {
    struct csv_options csv;
    const char *output;
};

static int exec(const struct cli_call *call)
{
    const struct import_options *options = call->options;
    struct err err = {{0}};
    if (!options->output)
        return cli_failf(2, "import: --output is missing; write -o OUT.ebb");
    if (csv_import(call->argv[0], &options->csv, options->output, &err) < 0)
        return cli_failf(2, "import: %s", err.text);
    return 0;
}

static const struct option_desc options_table[] = {
    {.name = "output",
     .letter = 'o',
     .type = OPTION_PATH,
     .arg = "OUT.ebb",
     .help = "the recording to make; it must not exist yet",
     .offset = offsetof(struct import_options, output)},
    {.name = "marks",
     .type = OPTION_PATH,
     .arg = "FILE.jsonl",
     .help = "steps and phases, one JSON object a line",
     .offset = offsetof(struct import_options, csv.marks_path)},
    {.name = "column",
     .type = OPTION_TEXT,
     .arg = "NAME",
     .help = "column of the values (default the first of rss_bytes, rss_mb, rss, pss)",
     .offset = offsetof(struct import_options, csv.column)},
    {.name = "time-column",
     .type = OPTION_TEXT,
     .arg = "NAME",
     .help = "column of the seconds (default t)",
     .offset = offsetof(struct import_options, csv.time_column)},
    {.name = "step-column",
     .type = OPTION_TEXT,
     .arg = "NAME",
     .help = "column of the steps (default step)",
     .offset = offsetof(struct import_options, csv.step_column)},
    {.name = "group",
     .type = OPTION_TEXT,
     .arg = "NAME",
     .help = "column whose every value is a series of its own (default pid, where there is one)",
     .offset = offsetof(struct import_options, csv.group)},
    {.name = "unit",
     .type = OPTION_TEXT,
     .arg = "UNIT",
     .help = "unit of the values: B, kB, MB, MiB, … (default by the column's name, else B)",
     .offset = offsetof(struct import_options, csv.unit)},
    {.name = NULL},
};

const struct cli_command cmd_import = {
    .name = "import",
    .operands = "FILE.csv",
    .summary = "make a recording of a CSV table",
    .description =
        "The table has a header line, a column of times in seconds and one of values; step, epoch, "
        "phase and pid are read where they are there. A table by step alone is accepted.\n\n"
        "Marks may come apart, one object a line:\n"
        "  {\"t\": 12.5, \"kind\": \"step\", \"step\": 3}\n\n"
        "A value that cannot be read is an error that names its line; nothing is left behind then.",
    .examples = "ebb import rss.csv -o rss.ebb\n"
                "ebb import gpu.csv --column used --unit MiB --group gpu -o gpu.ebb\n",
    .options = options_table,
    .options_size = sizeof(struct import_options),
    .usage_status = 2,
    .exec = exec,
};
