/* Reads all parts of the summary from a run.json. */
#include "present/summary_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"
#include "present/document.h"
#include "present/summary.h"
#include "profile/view.h"
#include "run/outcome.h"
#include "run/spark.h"

static void read_site(const json_t *doc, struct hypothesis *ret)
{
    struct name *name = calloc(1, sizeof *name);
    struct growth_row *row = calloc(1, sizeof *row);
    name->function = json_string_value(json_object_get(doc, "function"));
    name->file = json_string_value(json_object_get(doc, "file"));
    name->line = (uint32_t)json_integer_value(json_object_get(doc, "line"));
    row->name = name;
    ret->site = row;
}

static void read_hypothesis(const json_t *doc, struct hypothesis *ret)
{
    const char *code = json_string_value(json_object_get(doc, "code"));
    const char *word = json_string_value(json_object_get(doc, "word"));
    const json_t *one;
    size_t i;
    for (int id = 0; code && id < HYPOTHESIS_COUNT; id++)
        if (strcmp(hypothesis_code((enum hypothesis_id)id), code) == 0)
            ret->id = (enum hypothesis_id)id;
    for (int w = 0; word && hypothesis_words[w]; w++)
        if (strcmp(hypothesis_words[w], word) == 0)
            ret->word = (enum hypothesis_word)w;
    ret->share = json_number_value(json_object_get(doc, "share"));
    json_array_foreach(json_object_get(doc, "for"), i, one)
    {
        struct evidence *e = &ret->evidence[ret->n_evidence++];
        e->side = EVIDENCE_FOR;
        text_copy(e->text, sizeof e->text, json_string_value(one));
    }
    if (json_is_object(json_object_get(doc, "site")))
        read_site(json_object_get(doc, "site"), ret);
}

/* Reads the members of the diagnosis that summaries show. */
static struct diagnosis *read_diagnosis(const json_t *doc)
{
    struct diagnosis *d = calloc(1, sizeof *d);
    struct kept_list *kept = calloc(1, sizeof *kept);
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(doc, "hypotheses"), i, one)
        read_hypothesis(one, &d->hypotheses[d->n_hypotheses++]);
    json_array_foreach(json_object_get(doc, "advice"), i, one)
    {
        struct advice *a = &d->advice[d->n_advice++];
        text_copy(a->what, sizeof a->what, json_string_value(json_object_get(one, "what")));
        text_copy(a->effect, sizeof a->effect, json_string_value(json_object_get(one, "effect")));
    }
    json_array_foreach(json_object_get(doc, "kept_by"), i, one)
    {
        struct kept *k = &kept->at[kept->count++];
        text_copy(k->name, sizeof k->name, json_string_value(json_object_get(one, "name")));
        text_copy(k->type, sizeof k->type, json_string_value(json_object_get(one, "type")));
    }
    d->kept_by = kept;
    return d;
}

static void free_diagnosis(struct diagnosis *d)
{
    for (size_t i = 0; i < d->n_hypotheses; i++) {
        const struct growth_row *site = d->hypotheses[i].site;
        free(site ? (void *)(uintptr_t)site->name : NULL);
        free((void *)(uintptr_t)site);
    }
    free((void *)(uintptr_t)d->kept_by);
    free(d);
}

void summary_text(struct buf *out, const json_t *doc, enum summary_form form, bool colour,
                  size_t width)
{
    struct outcome outcome = {0};
    struct verdicts verdicts = {0};
    struct diagnosis *diagnosis = read_diagnosis(json_object_get(doc, "diagnosis"));
    struct profile_view growing = {0};
    struct series spark = {0};
    struct doc d = {0};
    const json_t *heap = json_object_get(doc, "heap");
    if (outcome_read(doc, &outcome) < 0 ||
        verdicts_read(json_object_get(doc, "verdict"), &verdicts) == -ENOMEM || !diagnosis ||
        profile_rows_read(json_object_get(heap, "growing"), &growing) < 0)
        out->failed = true;
    const struct profile_failure failed_request = {.request_bytes = 1 << 30};
    bool has_spark = spark_unpack(json_object_get(doc, "spark"), &spark);
    const struct summary s = {
        .outcome = &outcome,
        .verdicts = &verdicts,
        .growing = growing.rows,
        .n_growing = growing.n_rows,
        .diagnosis = diagnosis,
        .gpu_failure = json_is_true(json_object_get(doc, "gpu_failure")) ? &failed_request : NULL,
        .spark = has_spark ? &spark : NULL};
    if (form == SUMMARY_BRIEF)
        summary_brief(&d, &s);
    else
        summary_full(&d, &s);
    doc_terminal(out, &d, colour, width);
    doc_fini(&d);
    series_fini(&spark);
    profile_view_fini(&growing);
    free_diagnosis(diagnosis);
    verdicts_fini(&verdicts);
    outcome_fini(&outcome);
}
