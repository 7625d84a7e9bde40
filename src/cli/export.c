/* `ebb export`: a recording as a table or as JSON lines, for other tools. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "trace/export.h"
#include "trace/reader.h"

struct export_options {
    bool csv, jsonl;
    const char *output;
};

/* True if the open file FD is the recording at PATH, a run folder or the file itself. */
static bool is_recording(int fd, const char *path)
{
    struct stat out, in;
    AUTO_CLOSE int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = folder >= 0 ? fstatat(folder, "trace.ebb", &in, 0) : stat(path, &in);
    return r == 0 && fstat(fd, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino;
}

/* Opens what -o names; what was in it is gone only once we know that it is not the recording. */
static int open_output(const char *name, const char *recording, FILE **ret, struct err *err)
{
    struct stat st;
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
    if (is_recording(fd, recording)) {
        close(fd);
        return err_set(err, -EINVAL, "--output: %s is the recording itself; name another file",
                       name);
    }
    bool is_cut = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || ftruncate(fd, 0) == 0;
    FILE *out = is_cut ? fdopen(fd, "w") : NULL;
    if (!out) {
        int r = err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
        close(fd);
        return r;
    }
    *ret = out;
    return 0;
}

/* One sentence if something could not be read. */
static void say_damage(const struct trace_reader *reader, const char *path)
{
    struct trace_reader_damage damage;
    char size[TEXT_SIZE_MAX];
    struct buf parts = {0};
    trace_reader_damage(reader, &damage);
    if (damage.bad_bytes)
        buf_printf(&parts, ", %s in the middle", text_size(size, damage.bad_bytes));
    if (damage.cut_bytes)
        buf_printf(&parts, ", %s of an unfinished block at the end",
                   text_size(size, damage.cut_bytes));
    if (damage.lost_blocks)
        buf_printf(&parts, ", %" PRIu64 " lost block%s", damage.lost_blocks,
                   damage.lost_blocks == 1 ? "" : "s");
    if (damage.unknown_blocks)
        buf_printf(&parts, ", %" PRIu64 " block%s of a kind this version does not know",
                   damage.unknown_blocks, damage.unknown_blocks == 1 ? "" : "s");
    if (parts.len)
        cli_say("export: %s is damaged; not read: %s; the rest is exported", path,
                buf_str(&parts) + 2);
    buf_fini(&parts);
}

static int write_recording(struct trace_reader *reader, const struct export_options *options,
                           FILE *out, struct err *err)
{
    int r = options->csv ? export_csv(reader, out, err) : export_jsonl(reader, out, err);
    if (r == 0 && (fflush(out) != 0 || ferror(out)))
        r = err_set(err, -errno, "cannot write %s: %s",
                    options->output ? options->output : "to standard output", strerror(errno));
    return r;
}

static int export_recording(const char *path, const struct export_options *options)
{
    struct err err = {{0}};
    struct trace_reader *reader = NULL;
    FILE *out = stdout;
    bool is_file = options->output && strcmp(options->output, "-") != 0;
    int r = trace_reader_open(path, &reader, &err);
    if (r == 0 && is_file)
        r = open_output(options->output, path, &out, &err);
    if (r == 0) {
        r = write_recording(reader, options, out, &err);
        if (is_file && fclose(out) != 0 && r == 0)
            r = err_set(&err, -errno, "cannot write %s: %s", options->output, strerror(errno));
    }
    if (r == 0)
        say_damage(reader, path);
    trace_reader_free(reader);
    if (r == -EPIPE && !is_file)
        return CLI_PIPE_STATUS;
    return r < 0 ? cli_failf(2, "export: %s", err.text) : 0;
}

static int exec(const struct cli_call *call)
{
    const struct export_options *options = call->options;
    if (options->csv == options->jsonl)
        return cli_failf(2, "export: %s",
                         options->csv ? "--csv and --jsonl are two formats; give one"
                                      : "no format is given; give --csv or --jsonl");
    return export_recording(call->argv[0], options);
}

static const struct cli_option options_table[] = {
    {.name = "csv",
     .type = CLI_FLAG,
     .help = "a table: one row for each process and tick",
     .offset = offsetof(struct export_options, csv)},
    {.name = "jsonl",
     .type = CLI_FLAG,
     .help = "one JSON object a line: everything that was recorded",
     .offset = offsetof(struct export_options, jsonl)},
    {.name = "output",
     .letter = 'o',
     .type = CLI_PATH,
     .arg = "FILE",
     .help = "write to FILE, replacing what is in it, instead of standard output",
     .offset = offsetof(struct export_options, output)},
    {.name = NULL},
};

const struct cli_command cmd_export = {
    .name = "export",
    .operands = "RUN_DIR|FILE.ebb",
    .summary = "write a recording as CSV or JSON lines, for other tools",
    .description =
        "Reads the recording of a run, also one that is still being written, and writes it in the "
        "format asked for; exactly one must be given.\n\n"
        "In the table the columns are t (seconds since the recording began), pid, start, role and "
        "name of the process, its readings in bytes, what was stale, and step, epoch and phase. A "
        "reading that was not taken at that moment is empty, not zero.\n\n"
        "A damaged recording is exported as far as it can be read; one sentence on stderr then "
        "says how much could not be.",
    .examples = "ebb export ebb-runs/latest --csv -o run.csv\n"
                "ebb export trace.ebb --jsonl | jq 'select(.type == \"mark\")'\n",
    .options = options_table,
    .options_size = sizeof(struct export_options),
    .usage_status = 2,
    .exec = exec,
};
