/* `ebb diagnose`: prints every possible explanation of a job's memory, with the evidence for and
 * against it. */
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/csv_options.h"
#include "cli/run_target.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "present/diagnose.h"
#include "present/document.h"
#include "present/summary.h"

struct diagnose_options {
    struct csv_options csv;
    bool json, all;
};

static int diagnose(const char *folder, const struct csv_options *csv, struct recorded *ret,
                    struct diagnosis **ret_diagnosis, struct err *err)
{
    struct run_settings settings = run_settings_read;
    settings.csv = *csv;
    int r = recorded_read(folder, &settings, NULL, ret, err);
    return r < 0 ? r : diagnosis_new(ret, ret_diagnosis, err);
}

static void print_diagnosis(struct doc *d, const struct recorded *recorded,
                            const struct diagnosis *diagnosis, bool all)
{
    const struct summary s = {.outcome = &recorded->outcome,
                              .verdicts = &recorded->verdicts,
                              .diagnosis = diagnosis->has_grown ? diagnosis : NULL};
    diagnose_doc(d, diagnosis, all, summary_lead(d, &s, NULL));
}

static int diagnose_exec(const struct cli_call *call, struct err *err)
{
    const struct diagnose_options *o = call->options;
    struct run_target run;
    struct diagnosis *found = NULL;
    struct recorded recorded = {0};
    struct doc doc = {0};
    struct stat st;
    if (stat(call->argv[0], &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(run.folder, sizeof run.folder, "%s", call->argv[0]);
    } else {
        int e = run_target_find_recorded(call->argv[0], &run, err);
        if (e < 0)
            return e;
        if (run_target_refresh(&run, run.pid, err) < 0)
            cli_say("diagnose: %s; using the last heap reading", err->text);
    }
    int r = diagnose(run.folder, &o->csv, &recorded, &found, err);
    if (r == 0 && o->json) {
        r = cli_print_json(diagnosis_json(found));
    } else if (r == 0) {
        print_diagnosis(&doc, &recorded, found, o->all);
        r = cli_print_doc(&doc);
    }
    diagnosis_free(found);
    recorded_fini(&recorded);
    return r;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "all", FLAG, NULL, offsetof(struct diagnose_options, all),
               .help = "also print the small parts of memory, and the evidence about causes that "
                       "are ruled out or cannot be tested"),
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct diagnose_options, json),
               .help = "print one JSON object"),
    CSV_OPTION_ROWS(struct diagnose_options, csv),
    {0},
};

const struct cli_command cmd_diagnose = {
    .name = "diagnose",
    .operands = "[RUN_DIR|FILE.ebb|FILE.csv|PID]",
    .summary = "the cause of memory growth: every hypothesis with its evidence, and what to do",
    .description = "Finds the process whose memory grows, and breaks down its RSS into parts that "
                   "add up: heap by call site, memory retained by the allocator, mapped files, "
                   "shared memory, … Compares the parts at the start of training with the parts "
                   "now. Then tests every common cause of memory growth against the measurements, "
                   "and prints the evidence for it (+), the evidence against it (−) and missing "
                   "measurements (?). Advice comes with its expected effect, computed from this "
                   "run's measurements.\n"
                   "\n"
                   "The diagnosis uses steps and epochs (marks), the heap profile and two censuses "
                   "(EBB_CENSUS_EVERY=100 in the environment of ebb run). If a measurement is "
                   "missing, ebb does not guess its value.",
    .examples = "ebb diagnose ebb-runs/latest\n"
                "ebb diagnose 4711\n"
                "ebb diagnose ebb-runs/latest --all\n",
    .options = options_table,
    .options_size = sizeof(struct diagnose_options),
    .exec = diagnose_exec,
};
