/* Fuzzes what reads run.json, which a job can write as it likes: the summary, the report in its
 * three forms, and the server's account of an ended job. */
#include "base/buf.h"
#include "server/jobs/jobs_private.h"
#include "target.h"
#include "present/report.h"
#include "present/summary.h"

static void check_ending(const json_t *run)
{
    struct job_live live = {0};
    struct job_ending *ending = job_ending_new(&live, run, NULL);
    if (ending && ending->count_count > ENDING_COUNTS)
        abort();
    job_ending_free(ending);
}

static void check_report(json_t *run)
{
    struct buf out = {0};
    json_t *doc = json_pack("{s:s, s:s, s:O, s:O, s:O?, s:n, s:[]}", "title", "fuzz", "path",
                            "fuzz", "run", run, "header", run, "verdict",
                            json_object_get(run, "verdict"), "data", "trouble");
    if (!doc)
        abort();
    report_text(&out, doc, false, 80);
    report_markdown(&out, doc);
    report_html(&out, doc, "nonce");
    buf_fini(&out);
    json_decref(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out = {0};
    if (size == 0)
        return 0;
    json_t *run = fuzz_json(data + 1, size - 1);
    if (json_is_object(run)) {
        if (data[0] % 3 == 0)
            summary_text(&out, run, data[0] & 64, 80);
        else if (data[0] % 3 == 1)
            check_ending(run);
        else
            check_report(run);
    }
    json_decref(run);
    buf_fini(&out);
    return 0;
}
