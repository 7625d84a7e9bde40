/* Figures of the job's own that are bytes: a series for each, which lives as long as its process.
 */
#include "judge/judge_private.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *label;
    bool is_host; /* part of what the limit is about */
} known[] = {
    {"heap_live_bytes", "heap (live)", true},
    {"pinned_host_bytes", "pinned host memory", true},
    {"cuda_allocated_bytes", "cuda allocated", false},
    {"cuda_reserved_bytes", "cuda reserved", false},
};

static const char LIVE[] = "heap_live_bytes", SPARE[] = "heap_free_bytes";

enum { KNOWN = sizeof known / sizeof *known };

static size_t known_at(const char *name)
{
    size_t i = 0;
    while (i < KNOWN && strcmp(known[i].name, name) != 0)
        i++;
    return i;
}

const char *judge_figure_label(const struct judge_figure *s)
{
    size_t i = known_at(s->name);
    return i < KNOWN ? known[i].label : s->name;
}

/* "heap_live_bytes@4711": false for what is no memory or too long to be one of ours. What is in
 * nobody's use is set aside: its growth is that of the process, already judged. */
static bool name_parse(const char *full, struct judge_figure *ret)
{
    static const char unit[] = "_bytes";
    size_t unit_len = sizeof unit - 1;
    if (!mark_figure_parse(full, ret->name, sizeof ret->name, &ret->pid))
        return false;
    size_t len = strlen(ret->name);
    ret->is_aside = strcmp(ret->name, SPARE) == 0;
    return len > unit_len && memcmp(ret->name + len - unit_len, unit, unit_len) == 0;
}

static struct judge_figure *seat_for(struct judge *j, uint32_t id, const char *full)
{
    struct judge_figure one = {.id = id}, *at = NULL;
    for (size_t i = 0; i < JUDGE_FIGURES; i++) {
        struct judge_figure *s = &j->series[i];
        if (s->seat && s->id == id)
            return s;
        if (!at && !s->seat)
            at = s;
    }
    for (size_t i = 0; !at && i < JUDGE_FIGURES; i++)
        if (j->series[i].is_gone)
            at = &j->series[i];
    if (!at || !full || !name_parse(full, &one))
        return NULL;
    one.seat = judge_series_new_figure(j);
    if (!one.seat)
        return NULL;
    free(at->seat);
    *at = one;
    return at;
}

void judge_figure_sample(struct judge *j, uint32_t id, const char *full,
                         const struct sample *sample)
{
    struct judge_figure *s = sample->read & 1u ? seat_for(j, id, full) : NULL;
    if (s && !s->is_gone)
        judge_series_feed(j, s->seat, sample->v[0]);
}

static void judge_one(const struct judge *j, struct judge_figure *s)
{
    size_t i = known_at(s->name);
    struct verdict_limit limit = {.known = false};
    if (i < KNOWN && known[i].is_host)
        limit = judge_limit_for(j, s->seat->last_bytes);
    judge_series_judge(s->seat, &limit);
}

void judge_figure_judge(struct judge *j)
{
    for (size_t i = 0; i < JUDGE_FIGURES; i++)
        if (j->series[i].seat && j->series[i].seat->has_first && !j->series[i].is_gone &&
            !j->series[i].is_aside)
            judge_one(j, &j->series[i]);
}

void judge_figure_die(struct judge *j, int32_t pid)
{
    for (size_t i = 0; i < JUDGE_FIGURES; i++) {
        struct judge_figure *s = &j->series[i];
        if (!s->seat || s->is_gone || s->pid != pid)
            continue;
        judge_series_exit(s->seat);
        if (s->seat->has_first && !s->is_aside)
            judge_one(j, s);
        s->is_gone = true;
        s->gone_ns = j->tick_ns;
    }
}

static const struct judge_series *seat_of(const struct judge *j, const struct judge_process *p,
                                          const char *name)
{
    for (size_t i = 0; i < JUDGE_FIGURES; i++) {
        const struct judge_figure *s = &j->series[i];
        if (s->seat && s->pid == p->id.pid && s->is_gone == (p->died_ns != 0) &&
            strcmp(s->name, name) == 0)
            return s->seat;
    }
    return NULL;
}

bool judge_figure_tell(const struct judge *j, struct judge_process *p)
{
    const struct judge_series *live = seat_of(j, p, LIVE), *spare = seat_of(j, p, SPARE);
    if (!p->seat || !p->seat->is_judged || !live || !live->is_judged)
        return false;
    verdict_hear_live(&p->seat->result, &live->result);
    verdict_name_leak(&p->seat->result, &p->seat->series);
    if (spare)
        verdict_hear_spare(&p->seat->result, &p->seat->series, &live->result, &live->series,
                           &spare->series);
    return true;
}

void judge_figure_tell_whole(const struct judge *j, const struct judge_process *p)
{
    const struct judge_series *live = seat_of(j, p, LIVE), *spare = seat_of(j, p, SPARE);
    if (live && live->is_judged && spare)
        verdict_hear_spare(&j->whole->result, &j->whole->series, &live->result, &live->series,
                           &spare->series);
}

void judge_figure_clear(struct judge *j)
{
    for (size_t i = 0; i < JUDGE_FIGURES; i++) {
        free(j->series[i].seat);
        j->series[i] = (struct judge_figure){.seat = NULL};
    }
}

const struct judge_figure *judge_figure_next(const struct judge *j, size_t *at)
{
    while (*at < JUDGE_FIGURES) {
        const struct judge_figure *s = &j->series[(*at)++];
        if (s->seat && s->seat->is_judged)
            return s;
    }
    return NULL;
}
