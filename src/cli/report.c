/* `ebb report`: shows one run, or two side by side, as a page, as text or as Markdown. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_end.h"
#include "cli/csv_options.h"
#include "cli/report_read.h"
#include "present/document.h"
#include "present/report.h"

struct report_options {
    struct csv_options csv;
    const char *output;
    bool text, markdown, json, compare;
};

enum { NONCE_BYTES = 16, PATH_SIZE = 4096 };

/* The runs to show: one, or two and their comparison. */
struct shown {
    const struct report_options *o;
    struct report run, after;
    struct comparison compared; /* if --compare */
    /* set for a job on several nodes; RUN is then the report of the worst node, which this member
     * owns */
    struct cluster_read several;
};

static void shown_fini(struct shown *s)
{
    if (s->several.cluster)
        cluster_read_fini(&s->several);
    else
        report_fini(&s->run);
    report_fini(&s->after);
}

static int make_page(const struct shown *s, const struct doc *d, struct buf *out, struct err *err)
{
    char nonce[2 * NONCE_BYTES + 1];
    int r = io_random_hex(NONCE_BYTES, nonce);
    if (r < 0)
        return err_set(err, r, "cannot read random bytes: %s", strerror(-r));
    r = report_page(out, s->o->compare ? "two runs" : report_title(&s->run), d, &s->run,
                    s->o->compare ? &s->after : NULL, nonce);
    return r < 0 ? err_set(err, r, "cannot create the page: %s", strerror(-r)) : 0;
}

static int make_json(const struct shown *s, struct buf *out, struct err *err)
{
    json_t *doc = s->o->compare ? report_compare_json(&s->compared, &s->run, &s->after)
                                : report_json(&s->run);
    int r = doc ? json_print(out, doc, 2) : -ENOMEM;
    json_decref(doc);
    return r < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static int make(const struct shown *s, struct buf *out, struct err *err)
{
    struct doc d = {0};
    int r = 0;
    if (s->o->json)
        return make_json(s, out, err);
    if (s->o->compare)
        report_compare_document(&d, &s->compared, &s->run, &s->after);
    else
        report_document(&d, &s->run);
    if (s->o->text)
        doc_terminal(out, &d, !s->o->output && cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
    else if (s->o->markdown)
        doc_markdown(out, &d, report_cwd(&s->run));
    else
        r = make_page(s, &d, out, err);
    doc_fini(&d);
    return r < 0 ? r : out->failed ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* ---- output ---- */

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Chooses the default output: a page in the folder RUN or, if RUN is a file, next to that file. */
static int default_path(const struct shown *s, const char *run, char out[PATH_SIZE],
                        struct err *err)
{
    const char *name = s->o->compare ? "compare.html" : "report.html";
    const char *slash = strrchr(run, '/');
    int n = is_folder(run) ? snprintf(out, PATH_SIZE, "%s/%s", run, name)
            : slash        ? snprintf(out, PATH_SIZE, "%.*s/%s", (int)(slash - run), run, name)
                           : snprintf(out, PATH_SIZE, "%s", name);
    return n < PATH_SIZE ? 0 : err_set(err, -ENAMETOOLONG, "path too long: %s", run);
}

static int write_file(const char *path, const struct buf *out, struct err *err)
{
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int r = fd < 0 ? -errno : io_write_all(fd, out->data, out->len);
    return r < 0 ? err_set(err, r, "cannot write %s: %s; choose another file with -o FILE", path,
                           strerror(-r))
                 : 0;
}

static void print_where(const struct shown *s, const char *path, size_t len)
{
    struct buf line = {0};
    char size[TEXT_SIZE_MAX];
    if (s->o->compare)
        buf_printf(&line, "%s\n", s->compared.sentence);
    text_escape(&line, path, strlen(path));
    buf_printf(&line, " (%s)\n", text_size(size, len));
    cli_print(&line);
    buf_fini(&line);
}

static int deliver(const struct shown *s, const char *run, struct buf *out, struct err *err)
{
    const char *output = s->o->output;
    bool is_page = !s->o->text && !s->o->markdown && !s->o->json;
    char path[PATH_SIZE];
    if (output ? strcmp(output, "-") == 0 : !is_page)
        return cli_print(out);
    int r = output ? 0 : default_path(s, run, path, err);
    if (r == 0)
        r = write_file(output ? output : path, out, err);
    if (r == 0)
        print_where(s, output ? output : path, out->len);
    return r;
}

/* ---- the command ---- */

static int report_read_nodes(const char *path, struct shown *s, struct err *err)
{
    if (s->o->compare)
        return err_set(err, -EINVAL,
                       "--compare: %s is a job on several nodes; give the run folders of two nodes",
                       path);
    int r = cluster_read_all(path, NULL, NULL, false, &s->several, err);
    if (r == 0 && !s->several.has_report)
        r = err_set(err, -ENOENT, "%s: no node has a readable recording; try ebb show", path);
    if (r < 0)
        return r;
    s->run = s->several.report;
    s->run.cluster = s->several.cluster;
    return 0;
}

static int report_read_runs(const struct cli_call *call, struct shown *s, struct err *err)
{
    if (cluster_is_folder(call->argv[0]))
        return report_read_nodes(call->argv[0], s, err);
    if (!s->o->compare)
        return report_read(call->argv[0], &s->o->csv, false, &s->run, err);
    int r = report_read_pair(call->argv, &s->o->csv, &s->run, &s->after, err);
    if (r == 0)
        report_compare(&s->run, &s->after, &s->compared);
    return r;
}

static int check(const struct cli_call *call, struct err *err)
{
    const struct report_options *o = call->options;
    if (o->text + o->markdown + o->json > 1)
        return err_set(err, -EINVAL,
                       "several formats given; use one of --text, --markdown and --json");
    if (o->compare && call->argc != 2)
        return err_set(err, -EINVAL,
                       "--compare requires two runs, before and after: ebb report --compare RUN_A "
                       "RUN_B");
    if (!o->compare && call->argc != 1)
        return err_set(err, -EINVAL,
                       "unexpected operand \"%.100s\"; use --compare to show two runs side by side",
                       call->argv[1]);
    return 0;
}

static int report_exec(const struct cli_call *call, struct err *err)
{
    struct shown s = {.o = call->options};
    struct buf out = {0};
    int r = check(call, err);
    if (r == 0)
        r = report_read_runs(call, &s, err);
    if (r == 0)
        r = make(&s, &out, err);
    if (r == 0)
        r = deliver(&s, call->argv[s.o->compare ? 1 : 0], &out, err);
    shown_fini(&s);
    buf_fini(&out);
    return r;
}

#define AT(member) offsetof(struct report_options, member)
static const struct option_desc options_table[] = {
    OPTION_ROW('o', "output", PATH, "FILE", AT(output),
               .help = "write to FILE, or to standard output if FILE is - (default: report.html in "
                       "the run folder; standard output for text, Markdown and JSON)"),
    OPTION_ROW(0, "text", FLAG, NULL, AT(text), .help = "print text for a terminal, with plots"),
    OPTION_ROW(0, "markdown", FLAG, NULL, AT(markdown),
               .help = "print Markdown for a bug report, with versions and evidence"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print the content of the page as JSON"),
    OPTION_ROW(
        0, "compare", FLAG, NULL, AT(compare),
        .help =
            "compare two runs, before and after a change, and decide whether the change helped"),
    CSV_OPTION_ROWS(struct report_options, csv),
    {0},
};

const struct cli_command cmd_report = {
    .name = "report",
    .operands = "[RUN_DIR|FILE.ebb|FILE.csv…]",
    .summary = "write a run as one HTML page that you can send to a colleague",
    .description =
        "Writes one self-contained HTML file: the verdict; memory over time and over steps with "
        "epochs, evaluations, checkpoints and restarts marked; the process table; growing call "
        "sites with a flame graph; actions of the guard; and the machine. It loads nothing over "
        "the network, and can be printed.\n"
        "\n"
        "With --compare, the first run is from before a change and the second from after it. Their "
        "growth rates are compared per step if both runs have steps, else per minute. If the "
        "confidence intervals of the two rates overlap, the effect of the change is unknown.\n"
        "\n"
        "The report lists the parts of a run that could not be read. Text of other programs is "
        "escaped.",
    .examples = "ebb report ebb-runs/latest\n"
                "ebb report ebb-runs/latest --text\n"
                "ebb report ebb-runs/latest --markdown >issue.md\n"
                "ebb report --compare ebb-runs/before ebb-runs/after\n"
                "ebb report rss.csv --marks marks.jsonl\n",
    .options = options_table,
    .options_size = sizeof(struct report_options),
    .exec = report_exec,
};
