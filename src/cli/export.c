/* `ebb export`: writes a recording (as a table or as JSON lines) or a heap profile for other tools.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"
#include "present/report.h"
#include "profile/export.h"
#include "profile/folder.h"
#include "trace/export.h"
#include "trace/reader.h"

struct export_options {
    bool csv, jsonl, pprof, collapsed, speedscope;
    bool gpu;
    int64_t pid; /* 0: not given */
    bool debuginfod;
    const char *sysroot;
    const char *output;
};

static bool is_file(const struct export_options *options)
{
    return options->output && strcmp(options->output, "-") != 0;
}

/* Opens standard output or the file given by -o. Before truncating this file, checks that it is not
 * INPUT. */
static int export_open(const struct export_options *options, const struct stat *input, FILE **ret,
                       struct err *err)
{
    struct stat st;
    const char *name = options->output;
    if (!is_file(options)) {
        *ret = stdout;
        return 0;
    }
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
    bool is_known = fstat(fd, &st) == 0;
    if (is_known && st.st_dev == input->st_dev && st.st_ino == input->st_ino) {
        close(fd);
        return err_set(err, -EINVAL, "--output: %s is the recording itself; choose another file",
                       name);
    }
    bool is_cut = !is_known || !S_ISREG(st.st_mode) || ftruncate(fd, 0) == 0;
    FILE *out = is_cut ? fdopen(fd, "w") : NULL;
    if (!out) {
        int r = err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
        close(fd);
        return r;
    }
    *ret = out;
    return 0;
}

/* Flushes OUT, and closes it if it is a file. R is the result of the export so far: 0, or -errno
 * with an error. Returns R or, if R is 0, the result of the flush. */
static int export_close(const struct export_options *options, FILE *out, int r, struct err *err)
{
    const char *name = options->output ? options->output : "to standard output";
    if (r == 0 && (fflush(out) != 0 || ferror(out)))
        r = err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
    if (is_file(options) && fclose(out) != 0 && r == 0)
        r = err_set(err, -errno, "cannot write %s: %s", name, strerror(errno));
    return r;
}

/* Returns the stat result of the recording at PATH, which is a run folder or the recording itself.
 * Returns a zeroed struct if the recording cannot be read. */
static struct stat recording_stat(const char *path)
{
    struct stat st;
    AUTO_CLOSE int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = folder >= 0 ? fstatat(folder, "trace.ebb", &st, 0) : stat(path, &st);
    return r == 0 ? st : (struct stat){0};
}

static void export_report_damage(const struct trace_reader *reader, const char *path)
{
    struct trace_reader_damage damage;
    struct buf parts = {0};
    trace_reader_damage(reader, &damage);
    report_add_damage(&parts, &damage);
    if (parts.len)
        cli_say("export: %s is damaged; skipped: %s", path, buf_str(&parts));
    buf_fini(&parts);
}

static int export_recording(const char *path, const struct export_options *options, struct err *err)
{
    struct trace_reader *reader = NULL;
    struct stat input = recording_stat(path);
    FILE *out = NULL;
    int r = trace_reader_open(path, &reader, err);
    if (r == 0)
        r = export_open(options, &input, &out, err);
    if (r == 0) {
        r = options->csv ? export_csv(reader, out, err) : export_jsonl(reader, out, err);
        r = export_close(options, out, r, err);
    }
    if (r == 0)
        export_report_damage(reader, path);
    trace_reader_free(reader);
    return r;
}

/* ---- a heap ---- */

/* Reports which of several processes was chosen, and how much of its profile could not be read. */
static void export_report_choice(const struct folder_heap *h, const struct export_options *options)
{
    char size[TEXT_SIZE_MAX];
    if (h->others && options->pid == 0)
        cli_say("export: exporting process %s, one of %zu: its heap grew most, or is the largest "
                "if none grew; choose another one with --pid",
                h->name, h->others + 1);
    if (h->damage.bad_bytes || h->damage.cut_bytes)
        cli_say("export: %s is damaged; skipped: %s", h->name,
                text_size(size, h->damage.bad_bytes + h->damage.cut_bytes));
}

static int write_heap(const struct folder_heap *h, const struct export_options *options, FILE *out,
                      struct err *err)
{
    struct symbols_options symbols = {options->debuginfod, options->sysroot};
    struct names *names = NULL;
    int r = names_new(h->profile, &symbols, &names);
    if (r < 0)
        return err_set(err, r, "cannot look up function names: %s", strerror(-r));
    r = (options->pprof       ? profile_export_pprof
         : options->collapsed ? profile_export_collapsed
                              : profile_export_speedscope)(h->profile, names, out, err);
    names_free(names);
    return r;
}

static int export_heap(const char *path, const struct export_options *options, struct err *err)
{
    struct folder_heap h = {0};
    FILE *out = NULL;
    if (options->pprof && !is_file(options) && isatty(STDOUT_FILENO))
        return err_set(err, -EINVAL,
                       "the output of --pprof is not text; write it to a file with -o FILE");
    int r = folder_heap_read(path, (int32_t)options->pid, options->gpu ? FOLDER_GPU : FOLDER_HOST,
                             &h, err);
    struct stat input = {.st_dev = h.dev, .st_ino = h.ino};
    if (r == 0)
        r = export_open(options, &input, &out, err);
    if (r == 0)
        r = export_close(options, out, write_heap(&h, options, out, err), err);
    if (r == 0)
        export_report_choice(&h, options);
    folder_heap_fini(&h);
    return r;
}

static int export_exec(const struct cli_call *call, struct err *err)
{
    const struct export_options *o = call->options;
    int formats = o->csv + o->jsonl + o->pprof + o->collapsed + o->speedscope;
    if (formats == 0)
        return err_set(err, -EINVAL,
                       "no format given; use --csv, --jsonl, --pprof, --collapsed or --speedscope");
    if (formats > 1)
        return err_set(err, -EINVAL, "several formats given; use one");
    bool is_heap = !o->csv && !o->jsonl;
    if (!is_heap && (o->pid || o->gpu || o->debuginfod || o->sysroot))
        return err_set(err, -EINVAL, "%s requires --pprof, --collapsed or --speedscope",
                       o->pid          ? "--pid"
                       : o->gpu        ? "--gpu"
                       : o->debuginfod ? "--debuginfod"
                                       : "--sysroot");
    int r = is_heap ? export_heap(call->argv[0], o, err) : export_recording(call->argv[0], o, err);
    return r == -EPIPE && !is_file(o) ? CLI_PIPE_STATUS : r;
}

#define AT(member) offsetof(struct export_options, member)
static const struct option_desc options_table[] = {
    OPTION_ROW(0, "csv", FLAG, NULL, AT(csv),
               .help = "a CSV table with one row per process and sample"),
    OPTION_ROW(0, "jsonl", FLAG, NULL, AT(jsonl),
               .help = "the whole recording, one JSON object per line"),
    OPTION_ROW(0, "pprof", FLAG, NULL, AT(pprof),
               .help = "the heap of one process for pprof: live and allocated bytes"),
    OPTION_ROW(0, "collapsed", FLAG, NULL, AT(collapsed),
               .help = "live bytes of one process, one stack per line, for flame graphs"),
    OPTION_ROW(0, "speedscope", FLAG, NULL, AT(speedscope),
               .help = "live bytes of one process as JSON for speedscope"),
    OPTION_ROW(0, "gpu", FLAG, NULL, AT(gpu),
               .help = "export GPU memory; the outermost frame is the GPU"),
    OPTION_ROW(0, "pid", INT, "PID", AT(pid), .min = 1, .max = INT32_MAX,
               .help = "the process whose heap is exported (default: the process whose heap grew "
                       "most; if none grew, the largest)"),
    OPTION_ROW(0, "sysroot", PATH, "DIR", AT(sysroot),
               .help = "search for libraries in DIR first, for a run from another machine"),
    OPTION_ROW(0, "debuginfod", FLAG, NULL, AT(debuginfod),
               .help = "fetch debug information from the servers in $DEBUGINFOD_URLS"),
    OPTION_ROW('o', "output", PATH, "FILE", AT(output),
               .help = "write to FILE, which is overwritten, instead of standard output"),
    {0},
};

const struct cli_command cmd_export = {
    .name = "export",
    .operands = "[RUN_DIR|FILE.ebb|FILE.ebbheap]",
    .summary = "convert a recording or a heap profile for other tools",
    .description =
        "Reads the recording of a run, which may still be running, and writes it in the given "
        "format; exactly one format is required.\n"
        "\n"
        "The columns of the table are t (seconds since the start of the recording), pid, start, "
        "role and name of the process, its readings in bytes, which readings were stale, and "
        "step, epoch and phase. A reading that was not taken at that time is empty, not zero.\n"
        "\n"
        "A heap profile shows one process at its last reading, with native and Python frames in "
        "each stack. Function names come from the program and libraries that the process had "
        "loaded; if those files were changed or removed, frames show library and address instead. "
        "Nothing is fetched over the network unless --debuginfod is given.\n"
        "\n"
        "If a recording is damaged, the readable part is exported, and a line on stderr reports "
        "how much could not be read.",
    .examples = "ebb export ebb-runs/latest --csv -o run.csv\n"
                "ebb export trace.ebb --jsonl | jq 'select(.type == \"mark\")'\n"
                "ebb export ebb-runs/latest --pprof -o heap.pb.gz\n"
                "ebb export ebb-runs/latest --collapsed | flamegraph.pl >heap.svg\n",
    .options = options_table,
    .options_size = sizeof(struct export_options),
    .exec = export_exec,
};
