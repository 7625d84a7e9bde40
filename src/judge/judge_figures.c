/* Judges figures: metrics in bytes that the job reports. Each is a series that ends with its
 * process. */
#include "judge/judge_model.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *label;
    bool is_host; /* true if the figure is memory that counts towards the host's memory limit */
} known[] = {
    {"heap_live_bytes", "heap (live)", true},
    {"pinned_host_bytes", "pinned host memory", true},
    {"cuda_allocated_bytes", "cuda allocated", false},
    {"cuda_reserved_bytes", "cuda reserved", false},
    {"jax_device_bytes", "jax on devices", false},
    {"jax_live_bytes", "jax arrays", false},
};

static const char LIVE[] = "heap_live_bytes", FREE[] = "heap_free_bytes";
static const char CONTAINER[] = "container_bytes:", ENTRIES[] = "container:";
static const char MOST[] = "container_limit:";

enum { KNOWN = sizeof known / sizeof *known };

static size_t known_at(const char *name)
{
    size_t i = 0;
    while (i < KNOWN && strcmp(known[i].name, name) != 0)
        i++;
    return i;
}

const char *judge_figure_label(const struct run_entity *figure)
{
    size_t i = known_at(figure->name);
    return i < KNOWN ? known[i].label : figure->name;
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Returns true if the figure is the estimated size of a container of the job that gains entries. */
static bool is_container(const char *name)
{
    return begins_with(name, CONTAINER);
}

static bool is_memory(const char *name)
{
    static const char unit[] = "_bytes";
    size_t unit_len = sizeof unit - 1, len = strlen(name);
    return is_container(name) || (len > unit_len && strcmp(name + len - unit_len, unit) == 0);
}

/* Makes room for one more series, if necessary by dropping the series of a figure whose process has
 * exited. Returns false if there is no room. */
static bool make_room(const struct judge *j)
{
    struct run_entity *e, *dead = NULL;
    size_t count = 0;
    for (size_t at = 0; (e = judge_next(j, RUN_FIGURE, &at));) {
        count += judge_known(e)->series ? 1 : 0;
        if (e->is_dead && judge_known(e)->series && (!dead || e->id < dead->id))
            dead = e;
    }
    if (count < JUDGE_FIGURES)
        return true;
    if (!dead)
        return false;
    free(judge_known(dead)->series);
    judge_known(dead)->series = NULL;
    return true;
}

void judge_figure_sample(struct judge *j, struct run_entity *e)
{
    bool is_count = begins_with(e->name, ENTRIES) || begins_with(e->name, MOST);
    struct judge_entity *a = is_count || is_memory(e->name) ? judge_entity(e) : NULL;
    if (!a)
        return;
    a->is_evidence = is_count || strcmp(e->name, FREE) == 0 || is_container(e->name);
    if (!is_count && !a->series && make_room(j))
        a->series = judge_series_new_figure(j);
    if (a->series)
        judge_series_feed(j, a->series, e->last.v[0]);
}

/* Judges a figure. Free heap memory and containers have no verdict of their own, because their
 * growth is part of the process's growth. */
static void judge_figure(const struct judge *j, const struct run_entity *e)
{
    size_t i = known_at(e->name);
    struct verdict_limit limit = {.known = false};
    struct judge_series *s = judge_series_of(e);
    if (!s || judge_known(e)->is_evidence)
        return;
    if (i < KNOWN && known[i].is_host)
        limit = judge_limit_for(j, s->last_bytes);
    judge_series_judge(s, &limit);
}

void judge_figures_judge(struct judge *j)
{
    struct run_entity *const *figures;
    for (size_t i = 0, n = run_living(j->run, RUN_FIGURE, &figures); i < n; i++)
        judge_figure(j, figures[i]);
}

void judge_figures_exit(struct judge *j, int32_t pid)
{
    struct run_entity *const *figures;
    for (size_t i = 0, n = run_living(j->run, RUN_FIGURE, &figures); i < n; i++) {
        struct judge_entity *a = judge_known(figures[i]);
        if (!a || !a->series || figures[i]->info.id.pid != pid)
            continue;
        judge_series_exit(a->series);
        judge_figure(j, figures[i]);
        a->exit_ns = j->run->tick_ns;
    }
}

static struct judge_series *figure_of(const struct judge *j, const struct run_entity *p,
                                      const char *name)
{
    struct run_entity *e;
    for (size_t at = 0; (e = judge_next(j, RUN_FIGURE, &at));)
        if (judge_known(e)->series && e->info.id.pid == p->info.id.pid &&
            e->is_dead == p->is_dead && strcmp(e->name, name) == 0)
            return judge_known(e)->series;
    return NULL;
}

struct judge_series *judge_live_heap(const struct judge *j, const struct run_entity *p)
{
    return figure_of(j, p, LIVE);
}

static uint64_t value_beside(const struct judge *j, const struct run_entity *of, const char *prefix)
{
    const struct run_entity *e = run_figure_beside(j->run, of, prefix);
    return e ? e->last.v[0] : 0;
}

bool judge_next_container(const struct judge *j, const struct run_entity *p, size_t *at,
                          struct verdict_container *ret)
{
    for (struct run_entity *e; (e = judge_next(j, RUN_FIGURE, at));) {
        const struct judge_series *s = judge_series_of(e);
        if (!s || !is_container(e->name) || e->info.id.pid != p->info.id.pid ||
            e->is_dead != p->is_dead)
            continue;
        uint64_t entries = value_beside(j, e, "container");
        *ret = (struct verdict_container){&s->series, (double)entries,
                                          (double)value_beside(j, e, "container_limit"),
                                          entries == e->last.v[0]};
        return true;
    }
    return false;
}

double judge_outside_heap(const struct judge *j, const struct run_entity *p)
{
    const struct judge_series *live = figure_of(j, p, LIVE), *spare = figure_of(j, p, FREE);
    return live && spare ? verdict_outside_heap(&judge_known(p)->series->series, &live->series,
                                                &spare->series)
                         : 0;
}

void judge_figures_apply(const struct judge *j, const struct run_entity *p)
{
    const struct judge_series *live = figure_of(j, p, LIVE), *spare = figure_of(j, p, FREE);
    struct judge_series *s = judge_known(p)->series;
    if (!s || !s->is_judged || !live || !live->is_judged)
        return;
    verdict_apply_live(&s->result, &live->result);
    verdict_name_leak(&s->result, &s->series);
    if (spare)
        verdict_apply_free(&s->result, &s->series, &live->result, &live->series, &spare->series);
}

void judge_figures_apply_whole(const struct judge *j, const struct run_entity *p)
{
    const struct judge_series *live = figure_of(j, p, LIVE), *spare = figure_of(j, p, FREE);
    if (live && live->is_judged && spare)
        verdict_apply_free(&j->whole->result, &j->whole->series, &live->result, &live->series,
                           &spare->series);
}
