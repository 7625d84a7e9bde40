/* The options of the guard: their table, which of them contradict each other, and the settings. */
#include "cli/run_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/words.h"
#include "cli/run_config.h"

/* ---- values that only the guard has ---- */

static int parse_pressure(const char *what, const char *text, void *at, struct err *err)
{
    struct quantity_size share = {0};
    if (strcmp(text, "off") == 0) {
        *(struct run_pressure *)at = (struct run_pressure){.is_off = true};
        return 0;
    }
    if (!strchr(text, '%'))
        return err_set(err, -EINVAL, "%s: \"%.100s\" is not a share; write it like 30%% or off",
                       what, text);
    int r = quantity_parse_size(what, text, &share, err);
    if (r == 0)
        *(struct run_pressure *)at = (struct run_pressure){.permyriad = share.permyriad};
    return r;
}

/* Signals that no job can take as a request: they cannot be caught, or come for other reasons. */
static bool is_taken_signal(int signo)
{
    static const int taken[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN,
                                SIGTTOU, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP,
                                SIGABRT, SIGSYS,  SIGPIPE, SIGURG,  SIGWINCH};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        if (taken[i] == signo)
            return true;
    }
    return false;
}

static int parse_signal(const char *what, const char *text, void *at, struct err *err)
{
    int signo = 0;
    int r = words_signal(what, text, &signo, err);
    if (r < 0)
        return r;
    if (is_taken_signal(signo))
        return err_set(err, -EINVAL,
                       "%s: a job cannot take \"%.100s\" as a request; give one that it handles, "
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
    snprintf(number, sizeof(number), "%.*s", (int)digits, text);
    int r = quantity_parse_int(what, number, 1, INT64_MAX, &steps, err);
    if (r == 0)
        *ret = (struct restart_every){RESTART_AFTER_STEPS, (uint64_t)steps};
    return r;
}

static int parse_restart_time(const char *what, const char *text, struct restart_every *ret,
                              struct err *err)
{
    uint64_t ns = 0;
    int r = quantity_parse_duration(what, text, NS_PER_S, 365 * 86400 * NS_PER_S, &ns, err);
    if (r == 0)
        *ret = (struct restart_every){RESTART_AFTER_NS, ns};
    return r;
}

/* "5m" is five minutes: sizes are known in any case, times only in theirs. */
static bool is_time_unit(const char *unit)
{
    return strcmp(unit, "ms") == 0 || (*unit && strchr("dhms", *unit) && !unit[1]);
}

static int parse_restart_every(const char *what, const char *text, void *at, struct err *err)
{
    static const char form[] = "write it like 2h, 500steps or 20G";
    struct restart_every *ret = at;
    struct quantity_size size = {0};
    char closed[48]; /* without blanks between number and unit */
    size_t digits = strspn(text, "0123456789.");
    const char *unit = text + digits + strspn(text + digits, " \t");
    int len = snprintf(closed, sizeof(closed), "%.*s%s", (int)digits, text, unit);
    if (digits && !*unit)
        return err_set(err, -EINVAL, "%s: \"%.100s\" has no unit; %s", what, text, form);
    bool is_number = digits > 0 && len > 0 && (size_t)len < sizeof(closed);
    if (is_number && (strcmp(unit, "steps") == 0 || strcmp(unit, "step") == 0))
        return parse_restart_steps(what, closed, digits, ret, err);
    if (is_number && is_time_unit(unit))
        return parse_restart_time(what, closed, ret, err);
    if (!is_number || *unit == '%' || quantity_parse_size(what, closed, &size, NULL) < 0)
        return err_set(err, -EINVAL, "%s: \"%.100s\" is no time, number of steps or size; %s", what,
                       text, form);
    *ret = (struct restart_every){RESTART_AT_BYTES, size.bytes};
    return 0;
}

/* Only looked at here: the words belong to the settings. */
static int parse_words(const char *what, const char *text, void *at, struct err *err)
{
    char **words = NULL;
    int r = words_split(what, text, &words, err);
    if (r < 0)
        return r;
    bool is_empty = !words[0];
    free(words);
    if (is_empty)
        return err_set(err, -EINVAL, "%s: \"%.100s\" holds no argument", what, text);
    *(const char **)at = text;
    return 0;
}

/* ---- the table ---- */

/* Where in the table an option is. */
enum option {
    LIMIT,
    RESERVE,
    GPU_LIMIT,
    MARGIN,
    PRESSURE,
    NO_FORECAST,
    NO_LEVEL,
    CHECKPOINT_SIGNAL,
    CHECKPOINT_CMD,
    CHECKPOINT_DONE,
    CHECKPOINT_TIME,
    CHECKPOINT_WAIT,
    GRACE,
    NO_WARN,
    NO_CHECKPOINT,
    NO_TERM,
    NO_KILL,
    DRY_RUN,
    NO_GUARD,
    NO_CGROUP,
    CONFIG,
    RESTART,
    MAX_RESTARTS,
    RESTART_EVERY,
    RESUME_ARGS,
    KEEP_ON_EXIT,
    CLEAN_SHM,
    OPTIONS
};
_Static_assert((int)OPTIONS <= (int)CLI_OPTIONS_MAX, "a place for every option");

#define AT(field) .offset = offsetof(struct run_guard_options, field)
#define FLAG(word, field, text)                                                                    \
    {                                                                                              \
        .name = (word), .type = CLI_FLAG, AT(field), .help = (text)                                \
    }

enum { LEAST_LIMIT = 4096 }; /* a page: "24" was meant to be 24G */
enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

const struct cli_option run_guard_table[] = {
    [LIMIT] = {.heading = "When the guard acts",
               .name = "limit",
               .type = CLI_SIZE,
               .arg = "SIZE|N%",
               AT(limit),
               .help = "memory to defend; a share is of the limit that binds the job anyway, which "
                       "is also the default"},
    [RESERVE] = {.name = "reserve",
                 .type = CLI_SIZE,
                 .arg = "SIZE|N%",
                 AT(reserve),
                 .help = "act when less than this is left; a share is of what is defended (default "
                         "5%, from 64M to 4G, and at most a fifth)"},
    [GPU_LIMIT] = {.name = "gpu-limit",
                   .type = CLI_SIZE,
                   .arg = "SIZE|N%",
                   AT(gpu_limit),
                   .help = "memory to defend on each GPU; a share is of the device's"},
    [MARGIN] = {.name = "margin",
                .type = CLI_DURATION,
                .arg = "TIME",
                .fallback = "2s",
                .min = 1,
                .max = DAY_MS,
                AT(margin_ns),
                .help = "act when the limit is forecast within a step, a checkpoint and this"},
    [PRESSURE] = {.name = "pressure",
                  .type = CLI_PARSED,
                  .parse = parse_pressure,
                  .arg = "N%|off",
                  .fallback = "30%",
                  AT(pressure),
                  .help = "act when everything waits for memory this share of the time"},
    [NO_FORECAST] = FLAG("no-forecast", no_forecast, "do not act on forecasts"),
    [NO_LEVEL] = FLAG("no-level", no_level, "do not act on what is left"),
    [CHECKPOINT_SIGNAL] = {.heading = "How it asks for a checkpoint, besides EBB_SOCKET",
                           .name = "checkpoint-signal",
                           .type = CLI_PARSED,
                           .parse = parse_signal,
                           .arg = "NAME",
                           AT(signo),
                           .help = "send the ranks this signal, such as USR1, if they catch it"},
    [CHECKPOINT_CMD] = {.name = "checkpoint-cmd",
                        .type = CLI_TEXT,
                        .arg = "CMD",
                        AT(command),
                        .help = "run this shell command; with its end the checkpoint is there"},
    [CHECKPOINT_DONE] = {.name = "checkpoint-done",
                         .type = CLI_PATH,
                         .arg = "PATH",
                         AT(done),
                         .help = "the checkpoint is there when this file appears or changes"},
    [CHECKPOINT_TIME] = {.name = "checkpoint-time",
                         .type = CLI_DURATION,
                         .arg = "TIME",
                         .fallback = "10s",
                         .min = 1,
                         .max = DAY_MS,
                         AT(checkpoint_ns),
                         .help = "what a checkpoint takes, until one was measured"},
    [CHECKPOINT_WAIT] = {.name = "checkpoint-wait",
                         .type = CLI_DURATION,
                         .arg = "TIME",
                         .fallback = "10m",
                         .min = 1,
                         .max = 7 * DAY_MS,
                         AT(wait_ns),
                         .help = "wait for one at most this long, less if memory runs out"},
    [GRACE] = {.heading = "What it does",
               .name = "grace",
               .type = CLI_DURATION,
               .arg = "TIME",
               .fallback = "10s",
               .min = 1,
               .max = DAY_MS,
               AT(grace_ns),
               .help = "time between SIGTERM and the kill, less if memory runs out"},
    [NO_WARN] = FLAG("no-warn", no_warn, "do not warn"),
    [NO_CHECKPOINT] = FLAG("no-checkpoint", no_checkpoint, "do not ask for a checkpoint"),
    [NO_TERM] = FLAG("no-term", no_term, "do not send SIGTERM"),
    [NO_KILL] = FLAG("no-kill", no_kill, "do not kill"),
    [DRY_RUN] = FLAG("dry-run", dry_run, "only say what the guard would do"),
    [NO_GUARD] = FLAG("no-guard", no_guard, "no guard at all"),
    [NO_CGROUP] = FLAG("no-cgroup", no_cgroup, "make no cgroup for the job, even where ebb may"),
    [CONFIG] = {.name = "config",
                .type = CLI_PATH,
                .arg = "FILE",
                AT(config),
                .help = "read these options of the guard from FILE; the command line wins (not for "
                        "ebb submit)"},
    [RESTART] = {.heading = "Going on after it",
                 .name = "restart",
                 .type = CLI_FLAG,
                 AT(restart),
                 .help = "start the job again after the guard has stopped it"},
    [MAX_RESTARTS] = {.name = "max-restarts",
                      .type = CLI_INT,
                      .arg = "N",
                      .fallback = "10",
                      .min = 1,
                      .max = 1000000,
                      AT(max_restarts),
                      .help = "this often at most"},
    [RESTART_EVERY] = {.name = "restart-every",
                       .type = CLI_PARSED,
                       .parse = parse_restart_every,
                       .arg = "WHEN",
                       AT(restart_every),
                       .help = "also as planned: after a time (2h), so many steps (500steps), or "
                               "when the job has reached a size (20G)"},
    [RESUME_ARGS] = {.name = "resume-args",
                     .type = CLI_PARSED,
                     .parse = parse_words,
                     .arg = "ARGS",
                     AT(resume_args),
                     .help = "arguments to add to CMD then, split as a shell does"},
    [KEEP_ON_EXIT] = {.heading = "What stays at the end",
                      .name = "keep-on-exit",
                      .type = CLI_FLAG,
                      AT(keep_on_exit),
                      .help = "should ebb run be killed, the job lives on"},
    [CLEAN_SHM] = FLAG("clean-shm", clean_shm,
                       "remove the files that the job made in /dev/shm and left there"),
    [OPTIONS] = {.name = NULL},
};

/* ---- contradictions ---- */

struct request {
    const struct run_guard_options *options;
    int place[CLI_OPTIONS_MAX]; /* of each option, as run_config.h has it */
};

static bool is_given(const struct request *q, enum option o)
{
    return q->place[o] != RUN_CONFIG_NOWHERE;
}

enum { SPELL_MAX = 180 };

/* "--limit", or "limit (guard.conf:3)". */
static const char *spell(const struct request *q, enum option o, char out[SPELL_MAX])
{
    if (q->place[o] > 0)
        snprintf(out, SPELL_MAX, "%s (%.120s:%d)", run_guard_table[o].name, q->options->config,
                 q->place[o]);
    else
        snprintf(out, SPELL_MAX, "--%s", run_guard_table[o].name);
    return out;
}

/* OPTION asks for what AGAINST turns off. */
struct clash {
    enum option option, against;
    const char *is, *does;
};

#define OFF(o)                                                                                     \
    {                                                                                              \
        o, NO_GUARD, "is for the guard", "turns it off"                                            \
    }
#define UNASKED(o)                                                                                 \
    {                                                                                              \
        o, NO_CHECKPOINT, "is about asking for a checkpoint", "leaves that out"                    \
    }
#define HALF(o)                                                                                    \
    {                                                                                              \
        GRACE, o, "is the time between SIGTERM and the kill", "leaves one of them out"             \
    }

static const struct clash clashes[] = {
    OFF(LIMIT),
    OFF(RESERVE),
    OFF(GPU_LIMIT),
    OFF(MARGIN),
    OFF(PRESSURE),
    OFF(CHECKPOINT_SIGNAL),
    OFF(CHECKPOINT_CMD),
    OFF(CHECKPOINT_DONE),
    OFF(CHECKPOINT_TIME),
    OFF(CHECKPOINT_WAIT),
    OFF(GRACE),
    OFF(DRY_RUN),
    OFF(RESTART),
    OFF(MAX_RESTARTS),
    OFF(RESTART_EVERY),
    OFF(RESUME_ARGS),
    UNASKED(CHECKPOINT_SIGNAL),
    UNASKED(CHECKPOINT_CMD),
    UNASKED(CHECKPOINT_DONE),
    UNASKED(CHECKPOINT_TIME),
    UNASKED(CHECKPOINT_WAIT),
    HALF(NO_TERM),
    HALF(NO_KILL),
};

static int check_clashes(const struct request *q, struct err *err)
{
    char a[SPELL_MAX], b[SPELL_MAX];
    for (size_t i = 0; i < sizeof(clashes) / sizeof(clashes[0]); i++) {
        const struct clash *c = &clashes[i];
        /* The command line wins: what it turns off, a file may well describe. */
        bool is_overruled =
            q->place[c->option] > 0 && q->place[c->against] == RUN_CONFIG_COMMAND_LINE;
        if (is_given(q, c->option) && is_given(q, c->against) && !is_overruled)
            return err_set(err, -EINVAL, "run: %s %s, but %s %s", spell(q, c->option, a), c->is,
                           spell(q, c->against, b), c->does);
    }
    return 0;
}

static int check_restarts(const struct request *q, struct err *err)
{
    static const enum option about[] = {MAX_RESTARTS, RESUME_ARGS};
    char a[SPELL_MAX];
    if (q->options->restart || q->options->restart_every.unit != RESTART_NEVER ||
        q->options->no_guard)
        return 0;
    for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++) {
        if (is_given(q, about[i]))
            return err_set(err, -EINVAL,
                           "run: %s is about restarts, but there are none without --restart or "
                           "--restart-every",
                           spell(q, about[i], a));
    }
    return 0;
}

/* VALUE of OPTION must be below the limit, where both are sizes. */
static int check_below_limit(const struct request *q, enum option o, uint64_t value,
                             struct err *err)
{
    char a[SPELL_MAX], b[SPELL_MAX], size[TEXT_SIZE_MAX], limit[TEXT_SIZE_MAX];
    const struct quantity_size *most = &q->options->limit;
    if (!value || !is_given(q, LIMIT) || most->is_percent || value < most->bytes)
        return 0;
    return err_set(err, -EINVAL, "run: %s is %s, which is not below the %s of %s", spell(q, o, a),
                   text_size(size, value), text_size(limit, most->bytes), spell(q, LIMIT, b));
}

static int check_sizes(const struct request *q, struct err *err)
{
    const struct run_guard_options *o = q->options;
    char a[SPELL_MAX], size[TEXT_SIZE_MAX];
    if (o->reserve.is_percent && o->reserve.permyriad == 10000)
        return err_set(err, -EINVAL, "run: %s of 100%% leaves the job nothing; give less",
                       spell(q, RESERVE, a));
    if (is_given(q, LIMIT) && !o->limit.is_percent && o->limit.bytes < LEAST_LIMIT)
        return err_set(err, -EINVAL, "run: %s is %s, in which nothing runs; write it like 24G",
                       spell(q, LIMIT, a), text_size(size, o->limit.bytes));
    int r = check_below_limit(q, RESERVE, o->reserve.bytes, err);
    if (r == 0 && o->restart_every.unit == RESTART_AT_BYTES)
        r = check_below_limit(q, RESTART_EVERY, o->restart_every.value, err);
    return r;
}

/* ---- the settings ---- */

static double seconds(uint64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

static struct ladder_rules rules_of(const struct run_guard_options *o)
{
    return (struct ladder_rules){
        .margin_s = seconds(o->margin_ns),
        .checkpoint_s = seconds(o->checkpoint_ns),
        .wait_s = seconds(o->wait_ns),
        .grace_s = seconds(o->grace_ns),
        .pressure = o->pressure.permyriad / 1e4,
        .no_forecast = o->no_forecast,
        .no_level = o->no_level,
        .no_pressure = o->pressure.is_off,
        .no_warn = o->no_warn,
        .no_checkpoint = o->no_checkpoint,
        .no_term = o->no_term,
        .no_kill = o->no_kill,
    };
}

static bool is_set(const struct quantity_size *size)
{
    return size->is_percent || size->bytes > 0;
}

static int fill_settings(const struct run_guard_options *o, struct guard_settings *ret,
                         struct err *err)
{
    *ret = (struct guard_settings){
        .is_off = o->no_guard,
        .rules = rules_of(o),
        .no_cgroup = o->no_cgroup,
        .keep_on_exit = o->keep_on_exit,
        .clean_shm = o->clean_shm,
    };
    if (o->no_guard)
        return 0; /* a file's rules are overruled by --no-guard */
    ret->dry_run = o->dry_run;
    ret->limit = o->limit;
    ret->reserve = o->reserve;
    ret->gpu_limit = o->gpu_limit;
    ret->has_limit = is_set(&o->limit);
    ret->has_reserve = is_set(&o->reserve);
    ret->has_gpu_limit = is_set(&o->gpu_limit);
    ret->ask = (struct ask_options){.signo = o->signo, .command = o->command, .done = o->done};
    ret->restart = o->restart || o->restart_every.unit != RESTART_NEVER;
    ret->restart_every = o->restart_every;
    ret->max_restarts = (unsigned)o->max_restarts;
    if (!o->resume_args)
        return 0;
    return words_split("run: --resume-args", o->resume_args, &ret->resume_args, err);
}

int run_guard_init(struct run_guard *g, const struct cli_call *call, struct err *err)
{
    struct run_guard_options *o = call->options;
    struct request q = {.options = o};
    for (size_t i = 0; i < OPTIONS; i++) {
        if (cli_is_given(call, &run_guard_table[i]))
            q.place[i] = RUN_CONFIG_COMMAND_LINE;
    }
    *g = (struct run_guard){0};
    const struct run_config c = {.file = o->config,
                                 .table = run_guard_table,
                                 .except = &run_guard_table[CONFIG],
                                 .options = o,
                                 .options_size = sizeof(*o),
                                 .place = q.place};
    int r = o->config ? run_config_read(&c, &g->config, err) : 0;
    if (r == 0)
        r = check_clashes(&q, err);
    if (r == 0)
        r = check_restarts(&q, err);
    if (r == 0)
        r = check_sizes(&q, err);
    if (r == 0)
        r = fill_settings(o, &g->settings, err);
    if (r < 0)
        run_guard_fini(g);
    return r;
}

void run_guard_fini(struct run_guard *g)
{
    free(g->settings.resume_args);
    buf_fini(&g->config);
    *g = (struct run_guard){0};
}
