/* `ebb verdict`: decides whether a recording or any CSV table shows a leak. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/quantity.h"
#include "cli/run_end.h"
#include "cli/csv_options.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "present/document.h"
#include "present/summary.h"
#include "present/verdict.h"

static const int statuses[] = {
    [VERDICT_LEAK_NO] = 0, [VERDICT_LEAK_YES] = 1, [VERDICT_LEAK_UNKNOWN] = 3};

struct verdict_call {
    struct csv_options csv;
    struct judge_options judging;
    int64_t until_step; /* 0: not given */
    const char *until;
    bool json;
};

#define AT(member) offsetof(struct verdict_call, member)
static const struct option_desc options_table[] = {
    OPTION_ROW(0, "limit", SIZE, "SIZE", AT(judging.limit),
               .help = "memory limit, such as 24G, or a percentage of the recorded limit, such as "
                       "80% (default: the recorded limit)"),
    OPTION_ROW(0, "steps-per-epoch", INT, "N", AT(judging.verdict.steps_per_epoch), .min = 1,
               .help = "steps per epoch, if no mark reports them"),
    OPTION_ROW(0, "examples", INT, "N", AT(judging.examples), .min = 1,
               .help = "number of examples in the dataset; the epoch length is this number divided "
                       "by --batch"),
    OPTION_ROW(0, "batch", INT, "N", AT(judging.batch), .min = 1,
               .help = "examples per step, over all ranks and accumulated batches"),
    OPTION_ROW(0, "until", TEXT, "T", AT(until),
               .help =
                   "use only the data up to time T: a value of the time column, or seconds since "
                   "the start of the recording"),
    OPTION_ROW(0, "until-step", INT, "N", AT(until_step), .min = 1,
               .help = "use only the data up to the end of step N"),
    OPTION_ROW(0, "no-marks", FLAG, NULL, AT(judging.no_marks),
               .help = "ignore the marks and metrics that the job sent"),
    CSV_OPTION_ROWS(struct verdict_call, csv),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print the verdict as JSON"),
    {0},
};

/* ---- options ---- */

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

/* Refuses options that do not apply to PATH. */
static int check_options(const char *path, const struct verdict_call *o, double until_s,
                         struct err *err)
{
    if (run_is_recording(path)) {
        if (table_option(o))
            return err_set(err, -EINVAL, "%s applies only to CSV tables, but %s is a recording",
                           table_option(o), path);
        if (until_s < 0 || until_s > 9e9)
            return err_set(err, -EINVAL,
                           "--until: \"%s\" is out of range; expected seconds since the start of "
                           "the recording",
                           o->until);
        return 0;
    }
    if (o->judging.no_marks)
        return err_set(err, -EINVAL,
                       "--no-marks applies only to recordings; for the table %s, leave out "
                       "--marks",
                       path);
    if (o->judging.limit.is_percent)
        return err_set(err, -EINVAL,
                       "--limit: a percentage requires a limit in the recording, and %s has none; "
                       "give a size such as 24G",
                       path);
    return 0;
}

static struct run_settings reading_of(const struct verdict_call *o, double until_s)
{
    /* text output includes the diagnosis, which needs more of the run than the verdict */
    struct run_settings reading = run_settings_read;
    if (o->json)
        reading = (struct run_settings){.dead = RUN_DEAD_READ};
    reading.has_until = o->until;
    reading.has_until_step = o->until_step > 0;
    reading.until_step = (uint64_t)o->until_step;
    reading.csv = o->csv;
    reading.csv.has_until = o->until;
    reading.csv.until_s = until_s;
    if (until_s > 0 && until_s <= 9e9)
        reading.until_ns = (uint64_t)(until_s * (double)NS_PER_S);
    return reading;
}

static int parse_until(const char *path, const struct verdict_call *o, double *ret, struct err *err)
{
    double until_s = 0;
    if (o->until && number_parse_double(o->until, strlen(o->until), &until_s) < 0)
        return err_set(err, -EINVAL, "--until: \"%.64s\" is not a number", o->until);
    *ret = until_s;
    return check_options(path, o, until_s, err);
}

static int judge(const char *path, const struct verdict_call *o, double until_s,
                 struct recorded *ret, struct err *err)
{
    const struct run_settings reading = reading_of(o, until_s);
    int r = recorded_read(path, &reading, &o->judging, ret, err);
    if (r < 0 || !ret->run)
        return r;
    if (trace_is_damaged(&ret->run->damage))
        cli_say("verdict: %s is damaged; using the part that can be read", path);
    return 0;
}

/* ---- output ---- */

/* Prints the verdict as text. The place and the advice come from the diagnosis, which requires a
 * recording. */
static void print_verdict(struct doc *doc, const struct recorded *recorded)
{
    struct diagnosis *diagnosis = NULL;
    struct summary s = {.outcome = &recorded->outcome, .verdicts = &recorded->verdicts};
    if (diagnosis_new(recorded, &diagnosis, NULL) == 0 && diagnosis->has_grown)
        s.diagnosis = diagnosis;
    summary_lead(doc, &s, NULL);
    verdict_details(doc, &recorded->verdicts, false);
    diagnosis_free(diagnosis);
}

static int verdict_exec(const struct cli_call *call, struct err *err)
{
    struct verdict_call *o = call->options;
    struct judge_options *judging = &o->judging;
    struct recorded recorded = {0};
    struct doc doc = {0};
    const char *path = call->argv[0];
    double until_s = 0;
    int r = parse_until(path, o, &until_s, err);
    if (r < 0)
        return r;
    judging->has_limit = judging->limit.is_percent || judging->limit.bytes > 0;
    if (!judging->verdict.steps_per_epoch && judging->examples && judging->batch)
        judging->verdict.steps_per_epoch =
            judging->examples / judging->batch + (judging->examples % judging->batch != 0);
    enum verdict_leak leak = VERDICT_LEAK_UNKNOWN;
    if (cluster_is_folder(path)) {
        struct run_settings reading = reading_of(o, until_s);
        reading.signals[RUN_PROCESS] = 0; /* no series are kept, because nothing is plotted */
        r = cluster_print(path, &reading, &o->judging, o->json, &leak, err);
    } else {
        r = judge(path, o, until_s, &recorded, err);
        if (r == 0 && !o->json)
            print_verdict(&doc, &recorded);
        if (r == 0)
            r = o->json ? cli_print_json(verdicts_json(&recorded.verdicts)) : cli_print_doc(&doc);
        const struct judged *worst = verdict_worst(&recorded.verdicts);
        leak = worst ? worst->result.leak : VERDICT_LEAK_UNKNOWN;
    }
    recorded_fini(&recorded);
    return r ? r : statuses[leak];
}

const struct cli_command cmd_verdict = {
    .name = "verdict",
    .operands = "[RUN_DIR|FILE.ebb|FILE.csv]",
    .summary = "leak or not: the verdict on a recording, or on any CSV table",
    .description =
        "Prints one word for each process and for the whole job:\n"
        "\n"
        "  stable      the baseline is flat\n"
        "  spiking     memory peaks, and the baseline recovers\n"
        "  plateaued   growth has stopped; the step at which it stopped is printed\n"
        "  filling     memory grows within the first epoch\n"
        "  stepping    the baseline rises at each evaluation, checkpoint or epoch\n"
        "  leaking     the baseline keeps rising\n"
        "  undecided   not enough evidence yet; the missing evidence is printed\n"
        "\n"
        "Each verdict has a rate, a confidence, the time at which memory runs out, and the "
        "evidence. The worst verdict, whether on host memory or on a GPU, comes first and decides "
        "the exit status. For a recording made by ebb run or ebb watch, the verdict is the same as "
        "the live one. RUN_DIR may be the id of a job on several nodes; its ranks are compared.\n"
        "\n"
        "A table has a header line, a column of times in seconds or of steps, and a column of "
        "values.\n"
        "\n"
        "The exit status is 0 for no leak, 1 for a leak (leaking, stepping), 3 if undecided so far "
        "(filling, undecided), and 2 if the file cannot be judged.",
    .examples = "ebb verdict ebb-runs/latest\n"
                "ebb verdict rss.csv --marks marks.jsonl --limit 24G\n"
                "ebb verdict log.csv --step-column iter --steps-per-epoch 83 --json\n"
                "ebb verdict gpu.csv --column used --unit MiB --group gpu\n",
    .options = options_table,
    .options_size = sizeof(struct verdict_call),
    .exec = verdict_exec,
};
