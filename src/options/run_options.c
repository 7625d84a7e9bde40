/* The options of a run: their table, their conflicts, and the settings of the guard that follow
 * from them. */
#include "options/run_options.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/words.h"
#include "trace/logs.h"

/* ---- value types that only the options of the guard use ---- */

static int run_parse_pressure(const char *what, const char *text, void *at, struct err *err)
{
    struct ladder_rules *rules = at;
    struct quantity_size share = {0};
    if (strcmp(text, "off") == 0) {
        rules->no_pressure = true;
        return 0;
    }
    if (!strchr(text, '%'))
        return err_set(err, -EINVAL,
                       "%s: \"%.100s\" is neither a percentage such as 30%% nor \"off\"", what,
                       text);
    int r = quantity_parse_size(what, text, &share, err);
    if (r == 0) {
        rules->no_pressure = false;
        rules->pressure = share.permyriad / 1e4;
    }
    return r;
}

/* Returns true if the signal is unsuitable as a checkpoint request: it cannot be caught, or it
 * already has a meaning for programs or shells. */
static bool is_taken_signal(int signo)
{
    static const int taken[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN,
                                SIGTTOU, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP,
                                SIGABRT, SIGSYS,  SIGPIPE, SIGURG,  SIGWINCH};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (taken[i] == signo)
            return true;
    }
    return false;
}

static int run_parse_signal(const char *what, const char *text, void *at, struct err *err)
{
    int signo = 0;
    int r = words_signal(what, text, &signo, err);
    if (r < 0)
        return r;
    if (is_taken_signal(signo))
        return err_set(
            err, -EINVAL,
            "%s: \"%.100s\" cannot request a checkpoint; use a signal that the job handles, "
            "such as USR1",
            what, text);
    *(int *)at = signo;
    return 0;
}

static int parse_restart_steps(const char *what, const char *text, size_t digits,
                               struct restart_every *ret, struct err *err)
{
    char number[48];
    int64_t steps = 0;
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    int r = quantity_parse_int(what, number, 1, INT64_MAX, &steps, err);
    if (r == 0)
        *ret = (struct restart_every){RESTART_AFTER_STEPS, (uint64_t)steps};
    return r;
}

static int parse_restart_every(const char *what, const char *text, void *at, struct err *err)
{
    static const char form[] = "write it like 2h, 500steps or 20G";
    struct restart_every *ret = at;
    struct quantity_size size = {0};
    char closed[48]; /* the text without blanks between number and unit */
    size_t digits = strspn(text, "0123456789.");
    const char *unit = text + digits + strspn(text + digits, " \t");
    int len = snprintf(closed, sizeof closed, "%.*s%s", (int)digits, text, unit);
    if (digits && !*unit)
        return err_set(err, -EINVAL, "%s: \"%.100s\" has no unit; %s", what, text, form);
    bool is_number = digits > 0 && len > 0 && (size_t)len < sizeof closed;
    if (is_number && (strcmp(unit, "steps") == 0 || strcmp(unit, "step") == 0))
        return parse_restart_steps(what, closed, digits, ret, err);
    /* unlike units of size, units of time distinguish case: "5m" is five minutes */
    if (is_number && (strcmp(unit, "ms") == 0 || (*unit && strchr("dhms", *unit) && !unit[1]))) {
        uint64_t ns = 0;
        int r = quantity_parse_duration(what, closed, NS_PER_S, 365 * 86400 * NS_PER_S, &ns, err);
        if (r == 0)
            *ret = (struct restart_every){RESTART_AFTER_NS, ns};
        return r;
    }
    if (!is_number || *unit == '%' || quantity_parse_size(what, closed, &size, NULL) < 0)
        return err_set(err, -EINVAL, "%s: \"%.100s\" is not a time, number of steps or size; %s",
                       what, text, form);
    *ret = (struct restart_every){RESTART_AT_BYTES, size.bytes};
    return 0;
}

/* Checks that the text can be split into words. The words are stored later, when all options are
 * known. */
static int run_parse_words(const char *what, const char *text, void *at, struct err *err)
{
    char **words = NULL;
    int r = words_split(what, text, &words, err);
    if (r < 0)
        return r;
    bool is_empty = !words[0];
    free(words);
    if (is_empty)
        return err_set(err, -EINVAL, "%s: \"%.100s\" contains no arguments", what, text);
    *(const char **)at = text;
    return 0;
}

/* ---- the table ---- */

#define AT(field) offsetof(struct run_options, field)
#define FLAG(word, field, text) OPTION_ROW(0, word, FLAG, NULL, AT(field), .help = (text))
/* The scope of options that are valid only on a command line. */
#define LOCAL .scope = OPTION_COMMAND_LINE
#define HIDDEN .scope = OPTION_HIDDEN

/* the smallest --limit is one page; a smaller number such as "24" probably lacks its unit */
enum { LEAST_LIMIT = 4096 };
enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

const struct option_desc run_options_table[] = {
    OPTION_ROW('d', "run-dir", PATH, "DIR", AT(run_dir), LOCAL,
               .help = "put the recording into this folder, which must not exist yet (default: "
                       "ebb-runs/NAME-DATE)"),
    OPTION_ROW('n', "name", TEXT, "NAME", AT(name), LOCAL,
               .help = "name of the run (default: the command's)"),
    OPTION_ROW(0, "no-record", FLAG, NULL, AT(no_record), LOCAL,
               .help = "do not create a run folder"),
    OPTION_ROW(0, "log-max", BYTES, "SIZE", AT(log_max_bytes), LOCAL, .min = LOGS_CAP_MIN,
               .help = "maximum size of log.txt; the start and the newest part are kept "
                       "(default: unlimited)"),
    OPTION_ROW(0, "no-terminal", FLAG, NULL, AT(no_terminal), LOCAL,
               .help = "connect the job to pipes even if ebb's output is a terminal"),
    OPTION_ROW(0, "verbose", FLAG, NULL, AT(verbose), LOCAL,
               .help = "report on standard error each Python hook that cannot be installed"),
    OPTION_ROW('q', "quiet", FLAG, NULL, AT(quiet), LOCAL, .help = "print no summary"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), LOCAL,
               .help = "print the summary as one line of JSON, on standard error"),
    OPTION_ROW(0, "fail-on", CHOICE, "leak|undecided", AT(fail_on), LOCAL,
               .help = "leak: exit with status 3 if the job succeeded but leaks; undecided: also "
                       "if the verdict is undecided"),
    OPTION_ROW(0, "junit", PATH, "FILE", AT(junit), LOCAL,
               .help = "write the result as a JUnit file with one test case"),
    OPTION_ROW(0, "markdown", PATH, "FILE", AT(markdown), LOCAL,
               .help = "write the summary as Markdown, for the page of a CI job"),
    OPTION_ROW(0, "metrics", TEXT, "[HOST:]PORT", AT(metrics), LOCAL,
               .help = "serve OpenMetrics on http://HOST:PORT/metrics while the job runs (default "
                       "host: 127.0.0.1; port 0: a free one)"),
    OPTION_ROW(0, "metrics-file", PATH, "FILE", AT(metrics_file), LOCAL,
               .help = "write the metrics into FILE every 5 s, for the textfile collector of "
                       "node_exporter; the file is removed at the end"),
    OPTION_ROW(0, "termination-log", PATH, "FILE", AT(termination_log), LOCAL,
               .help = "write the verdict and the summary into FILE, at most 4 KiB (default: "
                       "/dev/termination-log in a Kubernetes pod; none: no file)"),
    OPTION_ROW(0, "config", PATH, "FILE", AT(config), LOCAL,
               .help = "read the options below from FILE; the command line takes precedence"),
    OPTION_ROW(0, "detached", FLAG, NULL, AT(is_detached), HIDDEN,
               .help = "return once the job has started"),
    OPTION_ROW(0, "lock-fd", INT, "N", AT(lock_fd), HIDDEN, .fallback = "-1", .min = -1,
               .max = INT32_MAX,
               .help = "keep this file descriptor open while the job is "
                       "watched"),
    OPTION_ROW(0, "folder-control", FLAG, NULL, AT(folder_control), HIDDEN,
               .help = "print no output, write state.json, and take requests from request.json"),
    OPTION_ROW(0, "folder-id", TEXT, "ID", AT(folder_id), HIDDEN,
               .help = "id that is written into the run folder before any process is started"),
    OPTION_ROW('i', "interval", DURATION, "TIME", AT(interval_ns), .heading = "Recording",
               .min = 50, .max = HOUR_MS,
               .help = "sampling interval (default: 200ms in the first two minutes, then 1s; for "
                       "ebb submit, the server's setting)"),
    FLAG("no-unique", no_unique, "do not measure unique memory"),
    FLAG("pss", pss, "also read PSS once a minute; this stalls the job by about 9 ms/GiB"),
    FLAG("no-shim", no_shim,
         "do not load the Python package into the job: steps and epochs are known only from the "
         "job's own marks"),
    FLAG("no-heap", no_heap, "do not profile the heap: ebb heap has no data for this run"),
    OPTION_ROW(0, "heap-interval", BYTES, "SIZE", AT(heap_interval_bytes), .fallback = "512K",
               .min = 4 << 10, .max = 1 << 30,
               .help = "average number of allocated bytes per heap sample"),
    FLAG("no-heap-python", no_heap_python, "do not profile Python's allocator of small objects"),

    OPTION_ROW(0, "limit", SIZE, "SIZE|N%", AT(guard.limit), .heading = "Guard triggers",
               .help = "memory limit of the job (default: the effective limit of its cgroup or the "
                       "machine; N% is a percentage of that limit)"),
    OPTION_ROW(
        0, "reserve", SIZE, "SIZE|N%", AT(guard.reserve),
        .help =
            "act when headroom is below this size; N% is a percentage of the limit (default: 5% of "
            "the limit, but at least 64M, and never more than 4G or a fifth of the limit)"),
    OPTION_ROW(0, "gpu-limit", SIZE, "SIZE|N%", AT(guard.gpu_limit),
               .help = "memory limit on each GPU; N% is a percentage of the device's memory"),
    OPTION_ROW(0, "margin", SECONDS, "TIME", AT(guard.rules.margin_s), .fallback = "2s", .min = 1,
               .max = DAY_MS,
               .help = "act when memory is forecast to reach the limit within this time plus the "
                       "duration of one step and one checkpoint"),
    OPTION_ROW(0, "pressure", PARSED, "N%|off", AT(guard.rules), .parse = run_parse_pressure,
               .fallback = "30%",
               .help =
                   "act when all processes are stalled on memory for this percentage of the time"),
    FLAG("no-forecast", guard.rules.no_forecast, "do not act on forecasts"),
    FLAG("no-level", guard.rules.no_level, "do not act on low headroom"),
    OPTION_ROW(0, "checkpoint-signal", PARSED, "NAME", AT(guard.checkpoint.signo),
               .heading = "Checkpoint requests, in addition to those over EBB_SOCKET",
               .parse = run_parse_signal,
               .help = "send this signal, such as USR1, to the ranks that handle it"),
    OPTION_ROW(0, "checkpoint-cmd", TEXT, "CMD", AT(guard.checkpoint.command),
               .help = "run this shell command; it must exit only when the checkpoint is written"),
    OPTION_ROW(0, "checkpoint-done", PATH, "PATH", AT(guard.checkpoint.done),
               .help = "file that is created or modified when the checkpoint is written"),
    OPTION_ROW(0, "checkpoint-time", SECONDS, "TIME", AT(guard.rules.checkpoint_s),
               .fallback = "10s", .min = 1, .max = DAY_MS,
               .help = "assumed duration of a checkpoint until one has been measured"),
    OPTION_ROW(0, "checkpoint-wait", SECONDS, "TIME", AT(guard.rules.wait_s), .fallback = "10m",
               .min = 1, .max = 7 * DAY_MS,
               .help = "maximum wait for a checkpoint; shorter if memory is about to run out"),
    OPTION_ROW(0, "grace", SECONDS, "TIME", AT(guard.rules.grace_s), .heading = "Guard actions",
               .fallback = "10s", .min = 1, .max = DAY_MS,
               .help = "time between SIGTERM and SIGKILL; shorter if memory is about to run out"),
    FLAG("no-warn", guard.rules.no_warn, "do not warn"),
    FLAG("no-checkpoint", guard.rules.no_checkpoint, "do not request a checkpoint"),
    FLAG("no-term", guard.rules.no_term, "do not send SIGTERM"),
    FLAG("no-kill", guard.rules.no_kill, "do not send SIGKILL"),
    FLAG("dry-run", guard.dry_run, "only report what the guard would do"),
    FLAG("no-guard", guard.is_off, "disable the guard"),
    FLAG("no-cgroup", guard.no_cgroup, "do not create a cgroup for the job"),
    OPTION_ROW(0, "restart", FLAG, NULL, AT(guard.restart), .heading = "Restarts",
               .help = "restart the job after the guard has stopped it"),
    OPTION_ROW(0, "max-restarts", INT, "N", AT(max_restarts), .fallback = "10", .min = 1,
               .max = 1000000, .help = "maximum number of restarts"),
    OPTION_ROW(0, "restart-every", PARSED, "WHEN", AT(guard.restart_every),
               .parse = parse_restart_every,
               .help = "also restart periodically: after a time (2h), after a number of steps "
                       "(500steps), or when the job's memory reaches a size (20G)"),
    OPTION_ROW(0, "resume-args", PARSED, "ARGS", AT(resume_args), .parse = run_parse_words,
               .help = "arguments added to CMD on a restart, split as in a shell"),
    OPTION_ROW(0, "requeue", FLAG, NULL, AT(guard.requeue), LOCAL,
               .help = "write a checkpoint and return the job to Slurm's queue when memory runs "
                       "out, or on SIGUSR1, which Slurm can send before the time limit"),
    OPTION_ROW(0, "keep-on-exit", FLAG, NULL, AT(guard.keep_on_exit),
               .heading = "When the run ends", .help = "let the job continue if ebb run is killed"),
    FLAG("clean-shm", guard.clean_shm, "remove the job's leftovers in /dev/shm"),
    {0},
};

/* ---- conflicts ---- */

enum { SPELL_MAX = 180 };

/* The option as the user wrote it: "--limit", or "limit (guard.conf:3)". */
static const char *run_spell(const struct run_options *o, const struct option_given *g,
                             char out[SPELL_MAX])
{
    if (g->line)
        snprintf(out, SPELL_MAX, "%s (%.120s:%d)", g->option->name, o->config, g->line);
    else
        snprintf(out, SPELL_MAX, "--%s", g->option->name);
    return out;
}

/* OPTIONS have no effect if the option AGAINST is given. The error message says what they do
 * (IS) and how AGAINST prevents it (DOES): "--limit configures the guard, but --no-guard
 * disables it". */
struct clash {
    const char *against;
    const char *is, *does;
    const char *options[18];
};

static const struct clash clashes[] = {
    {"no-guard",
     "configures the guard",
     "disables it",
     {"limit", "reserve", "gpu-limit", "margin", "pressure", "checkpoint-signal", "checkpoint-cmd",
      "checkpoint-done", "checkpoint-time", "checkpoint-wait", "grace", "dry-run", "restart",
      "requeue", "max-restarts", "restart-every", "resume-args"}},
    {"no-checkpoint",
     "configures checkpoint requests",
     "disables them",
     {"checkpoint-signal", "checkpoint-cmd", "checkpoint-done", "checkpoint-time",
      "checkpoint-wait"}},
    {"no-term", "sets the time between SIGTERM and SIGKILL", "disables SIGTERM", {"grace"}},
    {"no-kill", "sets the time between SIGTERM and SIGKILL", "disables SIGKILL", {"grace"}},
};

static int run_check_clash(const struct run_options *o, const struct options_given *given,
                           const struct clash *c, struct err *err)
{
    char a[SPELL_MAX], b[SPELL_MAX];
    const struct option_given *against = options_find(given, c->against);
    for (size_t i = 0; against && c->options[i]; i++) {
        const struct option_given *g = options_find(given, c->options[i]);
        /* Refuses options that exclude each other. The command line overrides the config file, so
         * it may disable options that the file sets. */
        if (g && (!g->line || against->line))
            return err_set(err, -EINVAL, "%s %s, but %s %s", run_spell(o, g, a), c->is,
                           run_spell(o, against, b), c->does);
    }
    return 0;
}

static int run_check_restarts(const struct run_options *o, const struct options_given *given,
                              struct err *err)
{
    char a[SPELL_MAX];
    if (o->guard.restart || o->guard.restart_every.unit != RESTART_NEVER || o->guard.is_off)
        return 0;
    const struct option_given *g = options_find(given, "max-restarts");
    if (!g && !o->guard.requeue)
        g = options_find(given, "resume-args");
    return g ? err_set(err, -EINVAL, "%s has no effect without --restart or --restart-every",
                       run_spell(o, g, a))
             : 0;
}

/* Checks that VALUE of option NAME is below --limit, if --limit is a size. */
static int run_check_below_limit(const struct run_options *o, const struct options_given *given,
                                 const char *name, uint64_t value, struct err *err)
{
    char a[SPELL_MAX], b[SPELL_MAX], size[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX];
    const struct option_given *most = options_find(given, "limit");
    if (!value || !most || o->guard.limit.is_percent || value < o->guard.limit.bytes)
        return 0;
    return err_set(err, -EINVAL, "%s: %s is too large; it must be less than %s, which is %s",
                   run_spell(o, options_find(given, name), a), text_size(size, value),
                   run_spell(o, most, b), text_size(limit, o->guard.limit.bytes));
}

static int run_check_sizes(const struct run_options *o, const struct options_given *given,
                           struct err *err)
{
    const struct guard_settings *s = &o->guard;
    const struct option_given *limit = options_find(given, "limit");
    char a[SPELL_MAX];
    if (s->reserve.is_percent && s->reserve.permyriad == 10000)
        return err_set(err, -EINVAL,
                       "%s: 100%% leaves no memory for the job; use a smaller percentage",
                       run_spell(o, options_find(given, "reserve"), a));
    if (limit && !s->limit.is_percent && s->limit.bytes < LEAST_LIMIT) {
        bool is_bare = strspn(limit->text, "0123456789") == strlen(limit->text);
        return is_bare ? err_set(err, -EINVAL, "%s: \"%s\" has no unit; did you mean %sG?",
                                 run_spell(o, limit, a), limit->text, limit->text)
                       : err_set(err, -EINVAL,
                                 "%s: \"%.100s\" is less than a page of memory; write it like 24G",
                                 run_spell(o, limit, a), limit->text);
    }
    int r = run_check_below_limit(o, given, "reserve", s->reserve.bytes, err);
    if (r == 0 && s->restart_every.unit == RESTART_AT_BYTES)
        r = run_check_below_limit(o, given, "restart-every", s->restart_every.value, err);
    return r;
}

/* ---- the settings of the guard ---- */

static int run_complete_guard(struct run_options *o, struct err *err)
{
    struct guard_settings *s = &o->guard;
    if (s->is_off) { /* a config file may have set options that --no-guard disables */
        *s = (struct guard_settings){.is_off = true,
                                     .rules = s->rules,
                                     .no_cgroup = s->no_cgroup,
                                     .keep_on_exit = s->keep_on_exit,
                                     .clean_shm = s->clean_shm};
        return 0;
    }
    s->restart |= s->restart_every.unit != RESTART_NEVER;
    s->max_restarts = (unsigned)o->max_restarts;
    return o->resume_args ? words_split("--resume-args", o->resume_args, &s->resume_args, err) : 0;
}

int run_options_complete(struct run_options *o, struct options_given *given, struct err *err)
{
    const struct options_config c = {.file = o->config,
                                     .command = "run",
                                     .table = run_options_table,
                                     .given = given,
                                     .values = o,
                                     .values_size = sizeof *o};
    int r = o->config ? options_config_read(&c, err) : 0;
    for (size_t i = 0; r == 0 && i < sizeof clashes / sizeof *clashes; i++)
        r = run_check_clash(o, given, &clashes[i], err);
    if (r == 0)
        r = run_check_restarts(o, given, err);
    if (r == 0)
        r = run_check_sizes(o, given, err);
    return r == 0 ? run_complete_guard(o, err) : r;
}

void run_options_fini(struct run_options *o)
{
    free(o->guard.resume_args);
    o->guard.resume_args = NULL;
}

/* ---- requests ---- */

int run_options_read_request(struct run_options *o, struct options_given *given,
                             const json_t *request, struct err *err)
{
    const json_t *options = json_object_get(request, "options");
    const char *limit = json_string_value(json_object_get(request, "limit"));
    int r = options_fall_back(run_options_table, o, err);
    if (r == 0 && limit)
        r = options_give(given, options_row(run_options_table, "limit", "run", err), "limit", limit,
                         o, err);
    if (r == 0 && json_object_get(options, "limit"))
        r = err_set(err, -EINVAL,
                    "options.limit: set the limit with the request's key \"limit\" instead");
    if (r == 0)
        r = options_read_json(run_options_table, "submit", options, given, o, err);
    return r == 0 ? run_options_complete(o, given, err) : r;
}

int run_options_put_request(json_t *request, const struct options_given *given, struct err *err)
{
    json_t *options = json_object();
    json_object_set_new(request, "options", options);
    for (size_t i = 0; i < given->count; i++) {
        const struct option_given *g = &given->v[i];
        if (options_row(run_options_table, g->option->name, "", NULL) != g->option)
            continue; /* the command has options of its own, which are not part of a request */
        bool is_limit = strcmp(g->option->name, "limit") == 0;
        int r = options_put_json(is_limit ? request : options, g, err);
        if (r < 0)
            return r;
    }
    return 0;
}
