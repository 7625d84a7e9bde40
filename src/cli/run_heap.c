/* What the heap profiler found in a run, for its summary. */
#include "cli/run_heap.h"

#include <stdbool.h>

#include "base/cleanup.h"
#include "diagnose/facts.h"
#include "profile/folder.h"
#include "profile/marks.h"
#include "profile/view.h"

enum { GROWING_MAX = 3, GROWING_LEAST = 1 << 20 };

/* Those that surely grew, and of which the verdict does not say that it is over. */
static size_t growing_rows(const struct growth *g)
{
    size_t n = 0;
    while (n < g->count && n < GROWING_MAX && g->rows[n].verdict.leak != VERDICT_LEAK_NO &&
           g->rows[n].growth_bytes - 2 * g->rows[n].growth_sigma > GROWING_LEAST)
        n++;
    return n;
}

static json_t *rows_json(const struct profile *p, struct names *names, const struct growth *g)
{
    struct profile_view v;
    if (profile_view_make(p, names, g, growing_rows(g), false, &v) < 0)
        return NULL;
    json_t *rows = profile_rows_json(&v, v.n_rows);
    profile_view_fini(&v);
    return rows;
}

/* Over the whole run. */
static json_t *read_rows(const char *folder, const struct profile *p, struct names *names)
{
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options options = {.by = GROWTH_BY_LOCATION, .minds_program = true};
    struct growth g;
    json_t *rows = NULL;
    struct marks all;
    marks_read(folder, &all);
    int r = marks_of(&all, p->pid, p->start_ns, &marks, &options.n_marks, NULL);
    marks_fini(&all);
    if (r < 0)
        return NULL;
    options.marks = marks;
    if (growth_of(p, names, &options, &g, NULL) == 0) {
        rows = rows_json(p, names, &g);
        growth_fini(&g);
    }
    return rows;
}

static json_t *read_all(const char *folder)
{
    const struct symbols_options symbols = {.debuginfod = false};
    struct folder_heap found = {0};
    struct names *names;
    json_t *rows = NULL;
    if (folder_heap_read(folder, 0, &found, NULL) == 0 &&
        names_new(found.profile, &symbols, &names) == 0) {
        rows = read_rows(folder, found.profile, names);
        names_free(names);
    }
    folder_heap_fini(&found);
    return rows;
}

/* The diagnosis has them from one of its moments to another, which in a short run may be the same:
 * then they are worked out over all of it. */
static json_t *rows_of_facts(const char *folder, const struct facts_heap *h)
{
    json_t *rows = rows_json(h->profile, h->names, &h->growth);
    if (json_array_size(rows))
        return rows;
    json_decref(rows);
    return read_rows(folder, h->profile, h->names);
}

void run_heap_growing(json_t *doc, const struct facts *facts)
{
    json_t *heap = json_object_get(doc, "heap");
    const char *folder = json_string_value(json_object_get(doc, "run_dir"));
    if (!json_is_true(json_object_get(heap, "on")) || !folder)
        return;
    json_t *rows =
        facts && facts->heap.profile ? rows_of_facts(folder, &facts->heap) : read_all(folder);
    if (rows)
        json_object_set_new(heap, "growing", rows);
}
