/* Fuzzes the readers of run.json, which a job can overwrite: the summary, the report in its three
 * formats, and the server's record of an ended job. */
#include <string.h>

#include <errno.h>

#include "base/buf.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/jobs_private.h"
#include "target.h"
#include "present/document.h"
#include "present/report.h"
#include "present/summary.h"

static void check_ending(const json_t *run)
{
    struct job_live live = {0};
    const struct executor_end end = {.run_json = run};
    job_ending_free(job_ending_new(&live, &end));
}

static void check_report(json_t *run)
{
    struct report r = {.path = "fuzz", .recorded = {.run_json = json_incref(run)}};
    struct buf out = {0};
    struct doc d = {0};
    if (outcome_read(run, &r.recorded.outcome) < 0)
        abort();
    r.has_verdicts = verdicts_read(json_object_get(run, "verdict"), &r.recorded.verdicts) == 0;
    report_document(&d, &r);
    doc_terminal(&out, &d, false, 80);
    doc_markdown(&out, &d, report_cwd(&r));
    doc_html(&out, &d);
    buf_fini(&out);
    doc_fini(&d);
    report_fini(&r);
}

static void check_summary(const json_t *run)
{
    struct outcome outcome = {0};
    struct verdicts verdicts = {0};
    struct profile_view growing = {0};
    struct buf out = {0};
    if (outcome_read(run, &outcome) == 0 &&
        verdicts_read(json_object_get(run, "verdict"), &verdicts) != -ENOMEM &&
        profile_rows_read(json_object_get(run, "growing"), &growing) == 0) {
        const struct summary s = {.outcome = &outcome,
                                  .verdicts = &verdicts,
                                  .growing = growing.rows,
                                  .n_growing = growing.n_rows};
        struct doc d = {0};
        summary_brief(&d, &s);
        summary_full(&d, &s);
        doc_terminal(&out, &d, true, 80);
        doc_fini(&d);
    }
    buf_fini(&out);
    profile_view_fini(&growing);
    verdicts_fini(&verdicts);
    outcome_fini(&outcome);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    json_t *run = fuzz_json(data + 1, size - 1);
    if (json_is_object(run)) {
        if (data[0] % 3 == 0)
            check_summary(run);
        else if (data[0] % 3 == 1)
            check_ending(run);
        else
            check_report(run);
    }
    json_decref(run);
    return 0;
}
