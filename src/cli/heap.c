/* `ebb heap`: lists live allocations by call site, and shows which call sites grow. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_target.h"
#include "judge/cluster.h"
#include "judge/recorded.h"
#include "profile/folder.h"
#include "profile/growth.h"
#include "profile/kept.h"
#include "profile/view.h"
#include "present/document.h"
#include "present/heap.h"

enum { OTHERS_SHOWN = 8 };

struct heap_options {
    int64_t top, pid, rank;
    uint64_t every_ns;
    const char *by;
    bool gpu, json;
    struct profile_wants wants; /* to_step is -1 if --diff or --survivors was given with one step */
};

/* ---- one process ---- */

static enum growth_by parse_by(const char *word)
{
    static const char *const words[] = {"location", "function", "file", "lib", "stack", "program"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word && strcmp(word, words[i]) == 0)
            return (enum growth_by)i;
    return GROWTH_BY_LOCATION;
}

static int process_view(const struct heap_options *o, const struct profile *p,
                        const struct recorded *recorded, struct profile_view *ret, struct err *err)
{
    struct profile_wants wants = o->wants;
    wants.growth.by = parse_by(o->by);
    wants.growth.minds_program = !o->by;
    wants.growth.job_word =
        o->gpu ? verdicts_gpu_word(&recorded->verdicts) : recorded->verdicts.job.result.word;
    wants.marks = &recorded->marks;
    wants.top = (size_t)o->top;
    wants.stacks |= o->json || wants.growth.by == GROWTH_BY_STACK;
    return profile_view_of(p, &wants, ret, err);
}

static const char *growth_title(char out[32], const struct growth_options *g)
{
    snprintf(out, 32, "since %" PRId64, g->from_step);
    return g->kind == GROWTH_SINCE       ? out
           : g->kind == GROWTH_DIFF      ? "change"
           : g->kind == GROWTH_SURVIVORS ? "survived"
                                         : "growth";
}

/* ---- all processes ---- */

static int print_json(const struct profile_view *v, const struct folder_heap *h,
                      const struct kept_list *kept)
{
    json_t *doc = profile_json(v), *others = json_array();
    for (size_t i = 0; i < h->others; i++)
        json_array_append_new(others, json_pack("{s:i,s:o}", "pid", (int)h->other[i].pid,
                                                "live_bytes", json_count(h->other[i].live_bytes)));
    json_object_set_new(doc, "others", others);
    json_object_set_new(doc, "file", json_text0(h->name));
    json_object_set_new(doc, "damaged_bytes", json_u64(h->damage.bad_bytes + h->damage.cut_bytes));
    json_object_set_new(doc, "kept_by", kept_json(kept));
    return cli_print_json(doc);
}

static void put_others(struct doc *d, const struct folder_heap *h)
{
    char size[TEXT_SIZE_MAX];
    doc_fact(d, "also");
    for (size_t i = 0; i < h->others && i < OTHERS_SHOWN; i++)
        doc_itemf(d, TONE_PLAIN, "%s%d (%s)", i ? "" : "process ", (int)h->other[i].pid,
                  text_size(size, number_to_u64(h->other[i].live_bytes)));
    if (h->others > OTHERS_SHOWN)
        doc_itemf(d, TONE_PLAIN, "…");
    if (h->others)
        doc_text(d, TONE_PLAIN, "; --pid N shows one of them");
}

static bool has_ended(const struct run_target *run)
{
    return !run->marks[0] || access(run->marks, F_OK) < 0;
}

static int show_once(const struct heap_options *o, const struct run_target *run, struct err *err)
{
    char title[32];
    struct folder_heap heap = {0};
    struct profile_view view = {0};
    struct recorded recorded = {0};
    struct doc doc = {0};
    int32_t pid = o->pid ? (int32_t)o->pid : run->pid;
    int r = run_target_refresh(run, pid, err);
    if (r < 0 && !has_ended(run))
        cli_say("heap: %s; showing the last reading", err->text);
    /* rows are judged without marks if the recording cannot be read */
    (void)recorded_read(run->folder, &(struct run_settings){.dead = RUN_DEAD_READ}, NULL, &recorded,
                        err);
    r = folder_heaps_pick(recorded_heaps(&recorded), pid, o->gpu ? FOLDER_GPU : FOLDER_HOST, &heap,
                          err);
    if (r < 0)
        err_prefix(err, r, "%s", run->folder);
    if (r == -ENOENT && run->obstacle[0])
        err_set(err, r, "%s has no heap profile: %s", run->folder, run->obstacle);
    if (r == 0)
        r = process_view(o, heap.profile, &recorded, &view, err);
    const struct kept_list *kept = kept_of(&recorded.marks.kept, view.pid);
    if (r == 0 && o->json) {
        r = print_json(&view, &heap, kept);
    } else if (r == 0 && o->wants.tree) {
        heap_tree_doc(&doc, &view.tree);
        r = cli_print_doc(&doc);
    } else if (r == 0) {
        view.cwd = recorded.outcome.about.cwd;
        heap_doc(&doc, &view, growth_title(title, &o->wants.growth), kept);
        put_others(&doc, &heap);
        r = cli_print_doc(&doc);
    }
    recorded_fini(&recorded);
    profile_view_fini(&view);
    folder_heap_fini(&heap);
    return r;
}

static int show_again_and_again(const struct heap_options *o, const struct run_target *run,
                                struct err *err)
{
    bool is_terminal = isatty(STDOUT_FILENO) && !o->json;
    for (;;) {
        if (is_terminal)
            fputs("\033[H\033[2J", stdout);
        int r = show_once(o, run, err);
        if (r || has_ended(run))
            return r;
        uint64_t ns = o->every_ns;
        struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
            ;
    }
}

/* ---- the command ---- */

/* Parses the operands: the run and, after `--diff A`, the second step. */
static int take_operands(const struct cli_call *call, struct growth_options *g, const char **ret,
                         struct err *err)
{
    int64_t steps[2];
    bool needs_step = g->kind == GROWTH_DIFF && g->to_step < 0;
    if (call->argc == 1 && !needs_step) {
        *ret = call->argv[0];
        return 0;
    }
    if (!needs_step)
        return err_set(err, -EINVAL, "expected one run folder or pid, not %d", call->argc);
    bool first = number_parse_i64(call->argv[0], strlen(call->argv[0]), &steps[0]) == 0;
    bool second =
        call->argc == 2 && number_parse_i64(call->argv[1], strlen(call->argv[1]), &steps[1]) == 0;
    if (call->argc != 2 || first == second)
        return err_set(err, -EINVAL, "--diff requires two steps, such as --diff 40..80");
    g->to_step = steps[second];
    *ret = call->argv[first];
    return 0;
}

static int heap_exec(const struct cli_call *call, struct err *err)
{
    struct heap_options *o = call->options;
    struct run_target run;
    const char *operand = NULL;
    int r = take_operands(call, &o->wants.growth, &operand, err);
    if (r < 0)
        return r;
    if (o->wants.growth.kind == GROWTH_SURVIVORS && o->wants.growth.to_step < 0)
        return err_set(err, -EINVAL, "--survivors requires two steps, such as --survivors 40..80");
    bool has_rank = options_find(call->given, "rank");
    if (has_rank && !cluster_is_folder(operand))
        return err_set(err, -EINVAL, "--rank applies only to a job on several nodes; use --pid");
    r = has_rank ? run_target_find_rank(operand, o->rank, &run, err)
                 : run_target_find_recorded(operand, &run, err);
    if (r < 0)
        return r;
    return o->every_ns ? show_again_and_again(o, &run, err) : show_once(o, &run, err);
}

/* Parses "40..80" or "40". If KIND is GROWTH_SINCE, only "40" is valid. */
static int parse_steps(enum growth_kind kind, const char *what, const char *text,
                       struct growth_options *ret, struct err *err)
{
    const char *dots = kind == GROWTH_SINCE ? NULL : strstr(text, "..");
    size_t len = dots ? (size_t)(dots - text) : strlen(text);
    int64_t from, to = -1;
    if (number_parse_i64(text, len, &from) < 0 || from < 0 ||
        (dots && (number_parse_i64(dots + 2, strlen(dots + 2), &to) < 0 || to < 0)))
        return err_set(err, -EINVAL,
                       kind == GROWTH_SINCE ? "%s: \"%s\" is not a step number"
                                            : "%s: \"%s\" is not a range of steps like 40..80",
                       what, text);
    if (ret->kind != GROWTH_OF_BASELINE && ret->kind != kind)
        return err_set(err, -EINVAL, "--since, --diff and --survivors are mutually exclusive");
    ret->kind = kind;
    ret->from_step = from;
    ret->to_step = to;
    return 0;
}

static int parse_since(const char *what, const char *text, void *at, struct err *err)
{
    return parse_steps(GROWTH_SINCE, what, text, at, err);
}

static int parse_diff(const char *what, const char *text, void *at, struct err *err)
{
    return parse_steps(GROWTH_DIFF, what, text, at, err);
}

static int parse_survivors(const char *what, const char *text, void *at, struct err *err)
{
    return parse_steps(GROWTH_SURVIVORS, what, text, at, err);
}

#define AT(member) offsetof(struct heap_options, member)
static const struct option_desc options_table[] = {
    OPTION_ROW(0, "gpu", FLAG, NULL, AT(gpu),
               .help = "show GPU memory of PyTorch's caching allocator instead of host memory"),
    OPTION_ROW(0, "top", INT, "N", AT(top), .fallback = "10", .min = 1, .max = 512,
               .help = "maximum number of rows"),
    OPTION_ROW(0, "by", CHOICE, "location|function|program|file|lib|stack", AT(by),
               .help = "the part of the stack that all call sites of a row share; program: the "
                       "innermost function in your own files (default: location, and small rows "
                       "are merged if the same function of yours called them)"),
    OPTION_ROW(0, "tree", FLAG, NULL, AT(wants.tree),
               .help = "show live memory as a tree of calls, outermost first"),
    OPTION_ROW(0, "stacks", FLAG, NULL, AT(wants.stacks),
               .help = "print the whole stack of each row"),
    OPTION_ROW(0, "since", PARSED, "STEP", AT(wants.growth), .parse = parse_since,
               .help = "show only memory allocated since this step and still live"),
    OPTION_ROW(0, "diff", PARSED, "STEP..STEP", AT(wants.growth), .parse = parse_diff,
               .help = "show the change from one step to another"),
    OPTION_ROW(
        0, "survivors", PARSED, "STEP..STEP", AT(wants.growth), .parse = parse_survivors,
        .help = "show memory allocated before the first of two steps and still live at the second"),
    OPTION_ROW(0, "pid", INT, "PID", AT(pid), .min = 1, .max = INT32_MAX,
               .help = "the process to show (default: the process whose heap grew most; if none "
                       "grew, the largest)"),
    OPTION_ROW(0, "rank", INT, "N", AT(rank), .max = INT32_MAX,
               .help = "rank to show if the job runs on several nodes (default: the worst)"),
    OPTION_ROW(0, "every", DURATION, "TIME", AT(every_ns), .min = 500, .max = 3600000,
               .help = "repeat at this interval until the job ends"),
    OPTION_ROW(0, "sysroot", PATH, "DIR", AT(wants.symbols.sysroot),
               .help =
                   "search for libraries and their symbols in this folder first, for a recording "
                   "from another machine"),
    OPTION_ROW(0, "debuginfod", FLAG, NULL, AT(wants.symbols.debuginfod),
               .help = "fetch missing debug information from the servers in DEBUGINFOD_URLS"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print one JSON object, with the stacks"),
    {0},
};

const struct cli_command cmd_heap = {
    .name = "heap",
    .operands = "[RUN_DIR|PID…]",
    .summary = "live allocations by call site, and which of them grow",
    .description =
        "Lists a job's call sites, starting with those that grow most. For each, prints its growth "
        "over the run, per step and per minute, a verdict, its live memory with bounds and age, "
        "and its place. The place is a Python line, followed by (←) the function in the job's own "
        "files that called it, its caller, and the C function. Lines that allocate little share a "
        "row if the same function of the job called them; the largest of these lines are listed "
        "below the row. `ebb run` samples the job's allocations, once per 512 KiB on average, so "
        "every size is an estimate with a 95 % confidence interval.\n"
        "\n"
        "For a running job, ebb reads the heap again, unless the last reading is less than a "
        "second old (in a long run, less than 1/2000 of its duration). For a job that has ended, "
        "ebb shows the last reading of the process.\n"
        "\n"
        "`ebb export --pprof`, `--collapsed` and `--speedscope` write the same data for other "
        "tools.",
    .examples = "ebb heap ebb-runs/latest\n"
                "ebb heap 4711 --every 2s\n"
                "ebb heap ebb-runs/latest --diff 100..200 --by function\n",
    .options = options_table,
    .options_size = sizeof(struct heap_options),
    .exec = heap_exec,
};
