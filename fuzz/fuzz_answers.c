/* Fuzzes functions that print data from outside: a server's responses about jobs, a job's census,
 * and verdicts and heaps stored in a run folder. The first byte selects the function. */
#include "base/buf.h"
#include "judge/verdicts.h"
#include "target.h"
#include "present/census.h"
#include "present/heap.h"
#include "present/jobs.h"
#include "present/summary.h"
#include "present/verdict.h"
#include "profile/view.h"

enum { VIEWS = 7, WIDTH = 72 };

static void show(unsigned view, struct buf *out, const json_t *doc)
{
    struct verdicts verdicts = {0};
    struct profile_view heap = {0};
    struct doc d = {0};
    switch (view) {
    case 0:
        jobs_doc(&d, doc, 1.8e9);
        break;
    case 1:
        job_doc(&d, doc, 1.8e9);
        break;
    case 2:
        job_end_text(out, doc);
        break;
    case 3:
        census_doc(&d, doc, 10);
        break;
    case 4:
        if (verdicts_read(doc, &verdicts) == 0)
            summary_lead(&d, &(struct summary){.verdicts = &verdicts}, NULL),
                verdict_details(&d, &verdicts, false);
        break;
    default:
        if (profile_rows_read(doc, &heap) == 0)
            heap_doc(&d, &heap, "live memory", NULL);
        break;
    }
    doc_terminal(out, &d, true, WIDTH);
    doc_fini(&d);
    verdicts_fini(&verdicts);
    profile_view_fini(&heap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out = {0};
    if (size == 0)
        return 0;
    json_t *doc = fuzz_json(data + 1, size - 1);
    if (doc)
        show(data[0] % VIEWS, &out, doc);
    json_decref(doc);
    buf_fini(&out);
    return 0;
}
