/* Histories of the living and the dead. */
#include "engine/history.h"

void history_unmeasured(struct history *h, const struct sample *s, uint64_t bytes, uint64_t tick)
{
    if (s->read >> SAMPLE_UNIQUE & 1u) {
        h->unmeasured_from = tick;
        h->unmeasured_bytes = 0;
    }
    if (bytes > h->unmeasured_bytes)
        h->unmeasured_bytes = bytes;
}

void history_update(struct history *h, const struct proc_node *node, uint64_t now_ns)
{
    const struct sample *s = &node->sample;
    h->info = node->info;
    h->last = *s;
    if (s->read >> SAMPLE_RSS & 1u)
        track_add(&h->rss, now_ns, s->v[SAMPLE_RSS]);
    if (s->read >> SAMPLE_PEAK & 1u)
        track_raise_peak(&h->rss, s->v[SAMPLE_PEAK]);
    if (sample_has(s, SAMPLE_UNIQUE) && s->v[SAMPLE_UNIQUE] > h->unique_peak_bytes)
        h->unique_peak_bytes = s->v[SAMPLE_UNIQUE];
    if (sample_has(s, SAMPLE_GPU) && s->v[SAMPLE_GPU] > h->gpu_peak_bytes)
        h->gpu_peak_bytes = s->v[SAMPLE_GPU];
}

bool history_rate(struct history *h, double *ret_bytes_per_min)
{
    if (h->rate_samples_block != h->rss.blocks || h->rate_block_start_ns != h->rss.block_start_ns) {
        h->rate_known = track_rate(&h->rss, &h->rate_bytes_per_min);
        h->rate_samples_block = h->rss.blocks;
        h->rate_block_start_ns = h->rss.block_start_ns;
    }
    if (h->rate_known)
        *ret_bytes_per_min = h->rate_bytes_per_min;
    return h->rate_known;
}

void history_bury(struct history_gone *gone, const struct history *h)
{
    enum process_role role = h->info.role;
    gone->seen[role]++;
    if (h->rss.peak_bytes > gone->peak_bytes[role])
        gone->peak_bytes[role] = h->rss.peak_bytes;
    if (gone->count < HISTORY_GONE_MAX) {
        gone->largest[gone->count++] = *h;
        return;
    }
    size_t least = 0;
    for (size_t i = 1; i < gone->count; i++)
        if (gone->largest[i].rss.peak_bytes < gone->largest[least].rss.peak_bytes)
            least = i;
    if (h->rss.peak_bytes > gone->largest[least].rss.peak_bytes)
        gone->largest[least] = *h;
}
