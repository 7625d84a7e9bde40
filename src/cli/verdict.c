/* `ebb verdict`: leak or not, from a recording or from anybody's table. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/quantity.h"
#include "cli/csv_options.h"
#include "judge/recorded.h"
#include "present/document.h"
#include "present/verdict.h"

/* The exit statuses. */
enum { NO_LEAK = 0, LEAK = 1, CANNOT = 2, NOT_KNOWN = 3 };

struct verdict_call {
    struct csv_options csv;
    struct quantity_size limit;
    int64_t steps_per_epoch, examples, batch, until_step; /* 0: not given */
    const char *until;
    bool no_marks, json;
};

static const struct option_desc options_table[] = {
    OPTION_ROW(
        0, "limit", SIZE, "SIZE", offsetof(struct verdict_call, limit),
        .help = "the memory there is, as 24G, or as 80% of what the recording says (default all of "
                "that)"),
    OPTION_ROW(0, "steps-per-epoch", INT, "N", offsetof(struct verdict_call, steps_per_epoch),
               .min = 1, .help = "length of one pass over the data, where no mark tells it"),
    OPTION_ROW(0, "examples", INT, "N", offsetof(struct verdict_call, examples), .min = 1,
               .help = "examples in the data; with --batch it gives the length of a pass"),
    OPTION_ROW(0, "batch", INT, "N", offsetof(struct verdict_call, batch), .min = 1,
               .help = "examples a step, accumulation and ranks counted"),
    OPTION_ROW(
        0, "until", TEXT, "T", offsetof(struct verdict_call, until),
        .help = "judge only what was known at T: a value of the time column, or seconds since the "
                "recording began"),
    OPTION_ROW(0, "until-step", INT, "N", offsetof(struct verdict_call, until_step), .min = 1,
               .help = "judge only what was known when step N had ended"),
    OPTION_ROW(
        0, "no-marks", FLAG, NULL, offsetof(struct verdict_call, no_marks),
        .help =
            "of a recording: judge as if the job had sent neither marks nor figures of its own"),
    CSV_OPTION_ROWS(struct verdict_call, csv),
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct verdict_call, json),
               .help = "print the verdict as JSON"),
    {0},
};

/* ---- what was asked for ---- */

static uint64_t count_of(int64_t v)
{
    return v > 0 ? (uint64_t)v : 0;
}

/* The length of a pass as the user knows it; 0: not told. */
static uint64_t pass_length(const struct verdict_call *o)
{
    uint64_t examples = count_of(o->examples), batch = count_of(o->batch);
    if (o->steps_per_epoch > 0)
        return count_of(o->steps_per_epoch);
    return examples && batch ? examples / batch + (examples % batch != 0) : 0;
}

static const char *table_option(const struct verdict_call *o)
{
    return o->csv.marks_path    ? "--marks"
           : o->csv.column      ? "--column"
           : o->csv.time_column ? "--time-column"
           : o->csv.step_column ? "--step-column"
           : o->csv.group       ? "--group"
           : o->csv.unit        ? "--unit"
                                : NULL;
}

/* Options that do not go with PATH. */
static int check_options(const char *path, const struct verdict_call *o, double until_s,
                         struct err *err)
{
    if (run_is_recording(path)) {
        if (table_option(o))
            return err_set(err, -EINVAL, "%s is for tables, and %s is a recording", table_option(o),
                           path);
        if (until_s < 0 || until_s > 9e9)
            return err_set(err, -EINVAL, "--until %s: seconds since the recording began are meant",
                           o->until);
        return 0;
    }
    if (o->no_marks)
        return err_set(err, -EINVAL,
                       "--no-marks is for recordings; %s is a table: leave out --marks", path);
    if (o->limit.is_percent)
        return err_set(err, -EINVAL,
                       "--limit: a share is of the limit in a recording, and %s has none; give a "
                       "size, as 24G",
                       path);
    return 0;
}

static int judge_path(const char *path, const struct verdict_call *o, double until_s,
                      struct recorded *ret, struct err *err)
{
    const struct judge_options judging = {.verdict = {.steps_per_epoch = pass_length(o)},
                                          .has_limit = o->limit.is_percent || o->limit.bytes > 0,
                                          .limit = o->limit,
                                          .no_marks = o->no_marks,
                                          .examples = count_of(o->examples),
                                          .batch = count_of(o->batch)};
    struct run_settings reading = {.dead = RUN_DEAD_READ,
                                   .has_until = o->until,
                                   .has_until_step = o->until_step > 0,
                                   .until_step = count_of(o->until_step),
                                   .csv = o->csv};
    reading.csv.has_until = o->until;
    reading.csv.until_s = until_s;
    if (until_s > 0 && until_s <= 9e9)
        reading.until_ns = (uint64_t)(until_s * (double)NS_PER_S);
    return recorded_read(path, &reading, &judging, ret, err);
}

static int judge(const char *path, const struct verdict_call *o, struct recorded *ret,
                 struct err *err)
{
    double until_s = 0;
    if (o->until && number_parse_double(o->until, strlen(o->until), &until_s) < 0)
        return err_set(err, -EINVAL, "--until \"%.64s\" is not a number of seconds", o->until);
    int r = check_options(path, o, until_s, err);
    if (r == 0)
        r = judge_path(path, o, until_s, ret, err);
    if (r < 0 || !ret->run)
        return r;
    const struct trace_reader_damage *d = &ret->run->damage;
    if (d->bad_bytes || d->cut_bytes || d->lost_blocks || d->unknown_blocks)
        cli_say("verdict: %s is damaged; judged is what can be read of it", path);
    return 0;
}

/* ---- the answer ---- */

static int status_of(const struct verdict_result *one)
{
    return one->leak == VERDICT_LEAK_YES  ? LEAK
           : one->leak == VERDICT_LEAK_NO ? NO_LEAK
                                          : NOT_KNOWN;
}

/* Of series that are not of one job the worst counts. */
static int exit_status(const struct verdicts *v)
{
    if (v->has_job)
        return status_of(&v->job.result);
    int status = v->processes.count ? NO_LEAK : NOT_KNOWN;
    for (size_t i = 0; i < v->processes.count; i++) {
        int s = status_of(&v->processes.at[i].result);
        if (s == LEAK || (s == NOT_KNOWN && status == NO_LEAK))
            status = s;
    }
    return status;
}

static int exec(const struct cli_call *call)
{
    const struct verdict_call *o = call->options;
    struct err err = {""};
    struct recorded recorded = {0};
    struct doc doc = {0};
    int status = CANNOT;
    if (judge(call->argv[0], o, &recorded, &err) < 0) {
        cli_failf(CANNOT, "verdict: %s", err.text);
    } else {
        if (!o->json)
            verdict_doc(&doc, &recorded.verdicts);
        status = o->json ? cli_print_json(verdicts_json(&recorded.verdicts)) : cli_print_doc(&doc);
        if (status == 0)
            status = exit_status(&recorded.verdicts);
    }
    recorded_fini(&recorded);
    return status;
}

const struct cli_command cmd_verdict = {
    .name = "verdict",
    .operands = "FILE.ebb|RUN_DIR|FILE.csv",
    .summary = "leak or not: the verdict on a recording, or on any CSV table",
    .description =
        "One word for each process and for the whole job:\n\n"
        "  stable      the floor is flat\n"
        "  spiking     peaks, and the floor comes back\n"
        "  plateaued   it grew, then stopped: where, and at which boundary\n"
        "  filling     growing within the first pass over the data\n"
        "  stepping    the floor rises at each evaluation, checkpoint or epoch\n"
        "  leaking     the floor keeps rising\n"
        "  undecided   not enough yet: what is missing\n\n"
        "Each comes with its rate, how sure it is, when memory runs out, and why. A recording made "
        "by ebb run or ebb watch gives the verdict that was given live.\n\n"
        "A table has a header line, a column of times in seconds or of steps, and one of "
        "values.\n\n"
        "The exit status is 0 for no leak, 1 for a leak (leaking, stepping), 3 while it cannot be "
        "known (filling, undecided), and 2 where there is nothing to judge.",
    .examples = "ebb verdict ebb-runs/latest\n"
                "ebb verdict rss.csv --marks marks.jsonl --limit 24G\n"
                "ebb verdict log.csv --step-column iter --steps-per-epoch 83 --json\n"
                "ebb verdict gpu.csv --column used --unit MiB --group gpu\n",
    .options = options_table,
    .options_size = sizeof(struct verdict_call),
    .usage_status = 2,
    .exec = exec,
};
