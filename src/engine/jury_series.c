/* Figures of the job's own that are bytes: a series for each, which lives as long as its process.
 */
#include "engine/jury_private.h"

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

const char *jury_series_label(const struct jury_series *s)
{
    size_t i = known_at(s->name);
    return i < KNOWN ? known[i].label : s->name;
}

/* "heap_live_bytes@4711": false for what is no memory or too long to be one of ours. What is in
 * nobody's use is set aside: its growth is that of the process, already judged. */
static bool name_parse(const char *full, struct jury_series *ret)
{
    static const char unit[] = "_bytes";
    size_t unit_len = sizeof unit - 1;
    if (!mark_figure_parse(full, ret->name, sizeof ret->name, &ret->pid))
        return false;
    size_t len = strlen(ret->name);
    ret->is_aside = strcmp(ret->name, SPARE) == 0;
    return len > unit_len && memcmp(ret->name + len - unit_len, unit, unit_len) == 0;
}

static struct jury_series *seat_for(struct jury *j, uint32_t id, const char *full)
{
    struct jury_series one = {.id = id}, *at = NULL;
    for (size_t i = 0; i < JURY_SERIES; i++) {
        struct jury_series *s = &j->series[i];
        if (s->seat && s->id == id)
            return s;
        if (!at && !s->seat)
            at = s;
    }
    for (size_t i = 0; !at && i < JURY_SERIES; i++)
        if (j->series[i].is_gone)
            at = &j->series[i];
    if (!at || !full || !name_parse(full, &one))
        return NULL;
    one.seat = jury_seat_new_figure(j);
    if (!one.seat)
        return NULL;
    free(at->seat);
    *at = one;
    return at;
}

void jury_series_sample(struct jury *j, uint32_t id, const char *full, const struct sample *sample)
{
    struct jury_series *s = sample->read & 1u ? seat_for(j, id, full) : NULL;
    if (s && !s->is_gone)
        jury_seat_feed(j, s->seat, sample->v[0]);
}

static void judge_one(const struct jury *j, struct jury_series *s)
{
    size_t i = known_at(s->name);
    struct verdict_limit limit = {.known = false};
    if (i < KNOWN && known[i].is_host)
        limit = jury_limit_for(j, s->seat->last_bytes);
    jury_seat_judge(s->seat, &limit);
}

void jury_series_judge(struct jury *j)
{
    for (size_t i = 0; i < JURY_SERIES; i++)
        if (j->series[i].seat && j->series[i].seat->has_first && !j->series[i].is_gone &&
            !j->series[i].is_aside)
            judge_one(j, &j->series[i]);
}

void jury_series_die(struct jury *j, int32_t pid)
{
    for (size_t i = 0; i < JURY_SERIES; i++) {
        struct jury_series *s = &j->series[i];
        if (!s->seat || s->is_gone || s->pid != pid)
            continue;
        jury_seat_die(s->seat);
        if (s->seat->has_first && !s->is_aside)
            judge_one(j, s);
        s->is_gone = true;
        s->gone_ns = j->tick_ns;
    }
}

static const struct jury_seat *seat_of(const struct jury *j, const struct jury_process *p,
                                       const char *name)
{
    for (size_t i = 0; i < JURY_SERIES; i++) {
        const struct jury_series *s = &j->series[i];
        if (s->seat && s->pid == p->id.pid && s->is_gone == (p->died_ns != 0) &&
            strcmp(s->name, name) == 0)
            return s->seat;
    }
    return NULL;
}

bool jury_series_tell(const struct jury *j, struct jury_process *p)
{
    const struct jury_seat *live = seat_of(j, p, LIVE), *spare = seat_of(j, p, SPARE);
    if (!p->seat || !p->seat->is_judged || !live || !live->is_judged)
        return false;
    verdict_hear_live(&p->seat->result, &live->result);
    verdict_name_leak(&p->seat->result, &p->seat->series);
    if (spare)
        verdict_hear_spare(&p->seat->result, &p->seat->series, &live->result, &live->series,
                           &spare->series);
    return true;
}

void jury_series_tell_whole(const struct jury *j, const struct jury_process *p)
{
    const struct jury_seat *live = seat_of(j, p, LIVE), *spare = seat_of(j, p, SPARE);
    if (live && live->is_judged && spare)
        verdict_hear_spare(&j->whole->result, &j->whole->series, &live->result, &live->series,
                           &spare->series);
}

void jury_series_clear(struct jury *j)
{
    for (size_t i = 0; i < JURY_SERIES; i++) {
        free(j->series[i].seat);
        j->series[i] = (struct jury_series){.seat = NULL};
    }
}

const struct jury_series *jury_series_next(const struct jury *j, size_t *at)
{
    while (*at < JURY_SERIES) {
        const struct jury_series *s = &j->series[(*at)++];
        if (s->seat && s->seat->is_judged)
            return s;
    }
    return NULL;
}
