/* Summarizes GPUs apart from their verdicts: failed requests and fragmentation. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"
#include "present/document.h"
#include "present/summary.h"
#include "present/verdict.h"
#include "profile/view.h"

static const char fragments_code[] = "gpu-fragmentation";
static const char fragments_help[] =
    "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use fewer distinct tensor shapes";

/* ---- failed requests ---- */

static bool is_leaking_on(const struct verdicts *v, uint64_t gpu)
{
    for (size_t i = 0; v && i < v->gpus.count; i++)
        if (v->gpus.at[i].gpu == gpu && v->gpus.at[i].result.leak == VERDICT_LEAK_YES)
            return true;
    return false;
}

static bool is_in_pieces(const struct profile_failure *f)
{
    return f->reserved_bytes > f->allocated_bytes &&
           f->reserved_bytes - f->allocated_bytes >= f->request_bytes;
}

static void put_remedy(struct doc *d, const struct summary *s, const struct profile_failure *f)
{
    doc_point(d, POINT_HELP);
    if (is_in_pieces(f))
        doc_textf(d, TONE_PLAIN, "the free memory is fragmented: %s [%s]", fragments_help,
                  fragments_code);
    else if (is_leaking_on(s->verdicts, f->gpu))
        doc_text(d, TONE_PLAIN, "fix the leak on this GPU: memory grew until none was left");
    else
        doc_text(d, TONE_PLAIN,
                 "lower the batch size, or free memory of the largest lines, which ebb heap --gpu "
                 "lists");
}

static void put_failure(struct doc *d, const struct summary *s)
{
    const struct profile_failure *f = s->gpu_failure;
    char size[TEXT_SIZE_MAX];
    doc_headline(d, "");
    doc_textf(d, TONE_BAD, "out of memory on gpu %" PRIu64, f->gpu);
    if (s->gpu_failures > 1)
        doc_textf(d, TONE_PLAIN, ", %" PRIu64 " times; first", s->gpu_failures);
    doc_textf(d, TONE_PLAIN, "%s a request of %s", s->gpu_failures > 1 ? "" : ":",
              text_about_size(size, (double)f->request_bytes));
    if (f->has_step)
        doc_textf(d, TONE_PLAIN, " at step %" PRId64, f->step);
    doc_textf(d, TONE_PLAIN, ", %s allocated", text_about_size(size, (double)f->allocated_bytes));
    doc_textf(d, TONE_PLAIN, " of %s reserved", text_about_size(size, (double)f->reserved_bytes));
    doc_point(d, POINT_PLACE);
    summary_put_place(d, &f->where, s->outcome);
    if (f->n_lines) {
        doc_point(d, POINT_NOTE);
        doc_textf(d, TONE_PLAIN, "the line with the most memory at that time, %s: ",
                  text_about_size(size, (double)f->lines[0].live_bytes));
        summary_put_place(d, &f->lines[0].where, s->outcome);
    }
    put_remedy(d, s, f);
}

/* ---- fragmentation ---- */

/* Returns the evidence of the first hypothesis if this is fragmentation, else NULL. The lead does
 * not name it unless there is a leak. */
static const char *fragments_evidence(const struct summary *s)
{
    const struct hypothesis *h =
        s->diagnosis && s->diagnosis->n_hypotheses ? s->diagnosis->hypotheses : NULL;
    return h && h->id == HYPOTHESIS_GPU_FRAGMENTS ? hypothesis_evidence(h, EVIDENCE_FOR) : NULL;
}

void summary_gpu(struct doc *d, const struct summary *s)
{
    const char *evidence = fragments_evidence(s);
    const struct judged *worst = s->verdicts ? verdict_worst(s->verdicts) : NULL;
    bool has_lead = worst && worst->result.leak != VERDICT_LEAK_NO;
    if (s->gpu_failure)
        put_failure(d, s);
    if (!evidence || has_lead || (s->gpu_failure && is_in_pieces(s->gpu_failure)))
        return;
    doc_headline(d, "");
    doc_text(d, TONE_OPEN, evidence);
    doc_textf(d, TONE_DIM, " [%s]", fragments_code);
    doc_point(d, POINT_HELP);
    doc_text(d, TONE_PLAIN, fragments_help);
}
