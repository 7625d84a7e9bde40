/* Writes the suggested memory request. */
#include "present/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "present/document.h"

enum request_words request_words_here(void)
{
    return getenv("KUBERNETES_SERVICE_HOST") && !getenv("SLURM_JOB_ID") ? REQUEST_KUBERNETES
                                                                        : REQUEST_SLURM;
}

/* Rounds BYTES up to a size that the scheduler accepts. Slurm's units are binary, without "i". */
static char *request_size(char out[TEXT_SIZE_MAX], double bytes, enum request_words words)
{
    const double mib = 1 << 20;
    const char *i = words == REQUEST_KUBERNETES ? "i" : "";
    if (bytes > 4000 * mib)
        snprintf(out, TEXT_SIZE_MAX, "%.0fG%s", ceil(bytes / (1024 * mib)), i);
    else
        snprintf(out, TEXT_SIZE_MAX, "%.0fM%s", 50 * ceil(bytes / (50 * mib)), i);
    return out;
}

void request_put(struct doc *d, const struct request *r)
{
    char size[TEXT_SIZE_MAX];
    if (!(r->bytes > 0))
        return;
    doc_fact(d, "request");
    doc_textf(d, TONE_PLAIN, "%s%s",
              r->words == REQUEST_KUBERNETES ? "resources.limits.memory: " : "--mem=",
              request_size(size, r->bytes, r->words));
    if (r->is_per_node)
        doc_text(d, TONE_PLAIN, r->words == REQUEST_KUBERNETES ? " per pod" : " per node");
    if (r->runs > 1)
        doc_textf(d, TONE_PLAIN, ", enough for 98 %% of the last %zu runs", r->runs);
    if (!r->is_leak)
        return;
    if (r->steps > 0)
        doc_textf(d, TONE_PLAIN, " for %lld steps", (long long)r->steps);
    doc_text(d, TONE_PLAIN, " as it is");
    if (r->planned_bytes > 0)
        doc_textf(d, TONE_PLAIN, ", %s for all %lld",
                  request_size(size, r->planned_bytes, r->words), (long long)r->planned_steps);
    if (r->fixed_bytes > 0)
        doc_textf(d, TONE_PLAIN, ", %s once fixed", request_size(size, r->fixed_bytes, r->words));
}
