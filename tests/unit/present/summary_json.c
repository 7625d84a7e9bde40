/* The summary of a run.json, every part of which is read from it. */
#include "present/summary_json.h"

#include <errno.h>

#include "base/buf.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"
#include "present/summary.h"
#include "profile/view.h"
#include "run/outcome.h"

void summary_text(struct buf *out, const json_t *doc, bool colour, int width)
{
    struct outcome outcome = {0};
    struct verdicts verdicts = {0};
    struct diagnosis diagnosis = {0};
    struct profile_view growing = {0};
    const json_t *heap = json_object_get(doc, "heap");
    if (outcome_read(doc, &outcome) < 0 ||
        verdicts_read(json_object_get(doc, "verdict"), &verdicts) == -ENOMEM ||
        diagnosis_read(json_object_get(doc, "diagnosis"), &diagnosis, NULL) < 0 ||
        profile_rows_read(json_object_get(heap, "growing"), &growing) < 0)
        out->failed = true;
    const struct summary s = {&outcome, &verdicts, growing.rows, growing.n_rows, &diagnosis};
    summary_terminal(out, &s, colour, width);
    profile_view_fini(&growing);
    diagnosis_fini(&diagnosis);
    verdicts_fini(&verdicts);
    outcome_fini(&outcome);
}
