/* `ebb diagnose`: every explanation of a job's memory with what speaks for it and against it. */
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/csv_options.h"
#include "cli/run_target.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "present/diagnose.h"
#include "present/document.h"

struct diagnose_options {
    struct csv_options csv;
    bool json, all;
};

static int diagnose(const char *folder, const struct csv_options *csv, struct diagnosis *ret,
                    struct err *err)
{
    struct run_settings settings = run_settings_read;
    struct recorded recorded;
    struct facts *facts = NULL;
    settings.csv = *csv;
    int r = recorded_read(folder, &settings, NULL, &recorded, err);
    if (r == 0)
        r = facts_new(&recorded, &facts, err);
    if (r == 0)
        r = diagnosis_make(facts, ret, err);
    facts_free(facts);
    recorded_fini(&recorded);
    return r;
}

static int diagnose_exec(const struct cli_call *call)
{
    const struct diagnose_options *o = call->options;
    struct run_target run;
    struct err err = {""};
    struct diagnosis found;
    struct doc doc = {0};
    struct stat st;
    if (stat(call->argv[0], &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(run.folder, sizeof run.folder, "%s", call->argv[0]);
    } else {
        if (run_target_find_recorded(call->argv[0], &run, &err) < 0)
            return cli_failf(2, "diagnose: %s", err.text);
        if (run_target_refresh(&run, run.pid, &err) < 0)
            cli_say("diagnose: %s; the heap is as it was written before", err.text);
    }
    if (diagnose(run.folder, &o->csv, &found, &err) < 0)
        return cli_failf(2, "diagnose: %s", err.text);
    if (!o->json)
        diagnose_doc(&doc, &found, o->all);
    int status = o->json ? cli_print_json(diagnosis_json(&found)) : cli_print_doc(&doc);
    diagnosis_fini(&found);
    return status;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(
        0, "all", FLAG, NULL, offsetof(struct diagnose_options, all),
        .help = "with the evidence on what is ruled out or cannot be tested, and every part of the "
                "ledger"),
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct diagnose_options, json),
               .help = "print one JSON object"),
    CSV_OPTION_ROWS(struct diagnose_options, csv),
    {0},
};

const struct cli_command cmd_diagnose = {
    .name = "diagnose",
    .operands = "RUN_DIR|FILE.ebb|FILE.csv|PID",
    .summary = "why memory is what it is: every hypothesis with its evidence, and what to do",
    .description =
        "Takes the memory of the process that grows apart (heap by call site, what the allocator "
        "keeps, mapped files, shared memory, …), at the start of the training and now, so that it "
        "adds up to its RSS; then tests every usual explanation of memory that grows against what "
        "was measured, with what speaks for it (+), against it (−) and what was not measured (?); "
        "and says what to do, with the effect by this run's own numbers.\n\n"
        "The more a run has, the more can be told: steps and epochs (marks), the heap profile, two "
        "censuses (EBB_CENSUS_EVERY=100 in the environment of ebb run). What is missing is named, "
        "never assumed.",
    .examples = "ebb diagnose ebb-runs/latest\n"
                "ebb diagnose 4711\n"
                "ebb diagnose ebb-runs/latest --all\n",
    .options = options_table,
    .options_size = sizeof(struct diagnose_options),
    .usage_status = 2,
    .exec = diagnose_exec,
};
