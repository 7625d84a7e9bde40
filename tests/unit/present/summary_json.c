/* Reads all parts of the summary from a run.json. */
#include "present/summary_json.h"

#include <errno.h>

#include "base/buf.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"
#include "present/document.h"
#include "present/summary.h"
#include "profile/view.h"
#include "run/outcome.h"
#include "run/spark.h"

void summary_text(struct buf *out, const json_t *doc, enum summary_form form, bool colour,
                  size_t width)
{
    struct outcome outcome = {0};
    struct verdicts verdicts = {0};
    struct diagnosis diagnosis = {0};
    struct profile_view growing = {0};
    struct series spark = {0};
    struct doc d = {0};
    const json_t *heap = json_object_get(doc, "heap");
    if (outcome_read(doc, &outcome) < 0 ||
        verdicts_read(json_object_get(doc, "verdict"), &verdicts) == -ENOMEM ||
        diagnosis_read(json_object_get(doc, "diagnosis"), &diagnosis, NULL) < 0 ||
        profile_rows_read(json_object_get(heap, "growing"), &growing) < 0)
        out->failed = true;
    bool has_spark = spark_unpack(json_object_get(doc, "spark"), &spark);
    const struct summary s = {.outcome = &outcome,
                              .verdicts = &verdicts,
                              .growing = growing.rows,
                              .n_growing = growing.n_rows,
                              .diagnosis = &diagnosis,
                              .spark = has_spark ? &spark : NULL};
    if (form == SUMMARY_BRIEF)
        summary_brief(&d, &s);
    else
        summary_full(&d, &s);
    doc_terminal(out, &d, colour, width);
    doc_fini(&d);
    series_fini(&spark);
    profile_view_fini(&growing);
    diagnosis_fini(&diagnosis);
    verdicts_fini(&verdicts);
    outcome_fini(&outcome);
}
