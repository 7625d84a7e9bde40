/* What happened when: steps, epochs, evaluations, checkpoints, phases, segments, the guard's acts.
 */
#include "present/report_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "present/report_data.h"

static const struct {
    enum mark_kind kind;
    const char *word;
} kinds[REPORT_EVENT_KINDS] = {
    {MARK_EPOCH, "epoch"},     {MARK_EVAL, "evaluation"},
    {MARK_SAVE, "checkpoint"}, {MARK_BEGIN, "begin"},
    {MARK_END, "end"},         {MARK_KIND_COUNT, "guard"}}; /* no mark: of notes */
enum { GUARD_EVENTS = REPORT_EVENT_KINDS - 1 };

enum { VERSIONS_MAX = 32 };

int report_story_init(struct report_story *s)
{
    *s = (struct report_story){
        .segments = json_array(), .guard = json_array(), .versions = json_object()};
    curve_init(&s->steps, REPORT_POINTS);
    s->closed = calloc(REPORT_EVENTS, sizeof *s->closed);
    bool is_there = s->segments && s->guard && s->versions && s->closed;
    for (size_t i = 0; i < REPORT_EVENT_KINDS; i++) {
        s->events[i].v = calloc(REPORT_EVENTS, sizeof *s->events[i].v);
        s->events[i].stride = 1;
        s->events[i].last_step = -1;
        is_there = is_there && s->events[i].v;
    }
    return is_there ? 0 : -ENOMEM;
}

void report_story_fini(struct report_story *s)
{
    for (size_t i = 0; i < REPORT_EVENT_KINDS; i++)
        free(s->events[i].v);
    curve_fini(&s->steps);
    free(s->closed);
    json_decref(s->segments);
    json_decref(s->guard);
    json_decref(s->versions);
    *s = (struct report_story){0};
}

/* ---- marks ---- */

/* The job and the package may both tell of it, with an evaluation between them. */
static void add_event(struct report_event_list *list, double t_s, int64_t step)
{
    if (step >= 0 && step == list->last_step)
        return;
    list->last_step = step;
    uint64_t number = list->seen++;
    if (number % list->stride)
        return;
    if (list->count == REPORT_EVENTS) {
        for (size_t i = 0; i < REPORT_EVENTS / 2; i++)
            list->v[i] = list->v[2 * i];
        list->count = REPORT_EVENTS / 2;
        list->stride *= 2;
        if (number % list->stride)
            return;
    }
    list->v[list->count++] = (struct report_event){t_s, step};
}

static void close_phase(struct report_story *s, size_t i, double t_s)
{
    struct report_phase p = s->open[i];
    s->open[i] = s->open[--s->n_open];
    p.until_s = t_s;
    if (s->n_closed < REPORT_EVENTS)
        s->closed[s->n_closed++] = p;
    else
        s->phases_left_out++;
}

static void take_phase(struct report_story *s, double t_s, const struct mark *m)
{
    struct report_phase p = {.pid = m->pid, .from_s = t_s};
    size_t len = 0, state_len = 0;
    const char *name = mark_get(m, "NAME", &len), *state = mark_get(m, "STATE", &state_len);
    if (!name || !state)
        return;
    memcpy(p.name, name, len < sizeof p.name ? len : sizeof p.name - 1);
    for (size_t i = 0; i < s->n_open; i++) {
        if (s->open[i].pid == p.pid && strcmp(s->open[i].name, p.name) == 0) {
            close_phase(s, i, t_s);
            break;
        }
    }
    if (state_len == 5 && memcmp(state, "begin", 5) == 0 && s->n_open < REPORT_OPEN)
        s->open[s->n_open++] = p;
}

/* TORCH_VERSION=2.4.0 in any mark. */
static void take_versions(struct report_story *s, const struct mark *m)
{
    static const char ending[] = "_VERSION";
    struct mark_line line;
    size_t at = 0, n = sizeof ending - 1;
    while (mark_next(m, &at, &line)) {
        if (line.key_len <= n || memcmp(line.key + line.key_len - n, ending, n) != 0 ||
            json_object_size(s->versions) >= VERSIONS_MAX)
            continue;
        char key[64] = "";
        size_t len = line.key_len - n < sizeof key - 1 ? line.key_len - n : sizeof key - 1;
        for (size_t i = 0; i < len; i++)
            key[i] =
                (char)(line.key[i] >= 'A' && line.key[i] <= 'Z' ? line.key[i] + 32 : line.key[i]);
        json_object_set_new(s->versions, key, json_text(line.value, line.value_len));
    }
}

void report_story_mark(struct report_story *s, double t_s, const struct mark *m)
{
    /* Every rank counts the same steps: the first is enough. */
    bool is_first_rank = !(m->has & MARK_HAS_RANK) || m->rank == 0;
    int64_t step = m->has & MARK_HAS_STEP ? m->step : -1;
    take_versions(s, m);
    if (!is_first_rank)
        return;
    if (m->kind == MARK_PHASE)
        take_phase(s, t_s, m);
    if (m->kind == MARK_STEP && step >= 0) {
        curve_add(&s->steps, t_s, (double)step);
        s->steps_seen += s->steps_seen == 0 || step != s->last_step;
        s->last_step = step;
    }
    for (size_t i = 0; i < REPORT_EVENT_KINDS; i++)
        if (m->kind == kinds[i].kind)
            add_event(&s->events[i], t_s, step);
}

void report_story_note(struct report_story *s, double t_s, const struct trace_item *item)
{
    if (strcmp(item->note.kind, "segment") == 0) {
        for (size_t i = 0; i < REPORT_EVENT_KINDS; i++) /* what is done again is told again */
            s->events[i].last_step = -1;
        if (json_array_size(s->segments) < REPORT_EVENTS)
            json_array_append_new(s->segments, json_real(t_s));
    } else if (strcmp(item->note.kind, "guard") == 0) {
        json_t *o = json_parse(item->note.text, item->note.len, NULL);
        if (json_is_object(o)) {
            add_event(&s->events[GUARD_EVENTS], t_s, -1);
            json_object_set_new(o, "t_s", json_real(t_s));
            s->guard_seen++;
            if (json_array_size(s->guard) >= REPORT_GUARD_EVENTS)
                json_array_remove(s->guard, 0);
            json_array_append_new(s->guard, o);
        } else {
            json_decref(o);
        }
    }
}

/* ---- telling ---- */

static json_t *events_json(const struct report_story *s, uint64_t *left_out)
{
    json_t *list = json_array();
    for (size_t i = 0; i < REPORT_EVENT_KINDS; i++) {
        const struct report_event_list *l = &s->events[i];
        *left_out += l->seen - l->count;
        for (size_t k = 0; k < l->count; k++)
            json_array_append_new(
                list, json_pack("{s:s,s:f,s:o}", "kind", kinds[i].word, "t",
                                round(l->v[k].t_s * 1e3) / 1e3, "step",
                                l->v[k].step >= 0 ? json_integer(l->v[k].step) : json_null()));
    }
    return list;
}

static json_t *phases_json(const struct report_story *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_closed; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:f,s:f}", "name", json_text0(s->closed[i].name), "t",
                                        round(s->closed[i].from_s * 1e3) / 1e3, "until",
                                        round(s->closed[i].until_s * 1e3) / 1e3));
    return list;
}

void report_story_json(struct report_story *s, double span_s, json_t *doc)
{
    uint64_t left_out = 0;
    json_t *steps = json_object();
    while (s->n_open)
        close_phase(s, 0, span_s);
    report_points_json(&s->steps, steps);
    json_object_set_new(doc, "steps", steps);
    json_object_set_new(doc, "steps_seen", json_u64(s->steps_seen));
    json_object_set_new(doc, "events", events_json(s, &left_out));
    json_object_set_new(doc, "events_left_out", json_u64(left_out + s->phases_left_out));
    json_object_set_new(doc, "phases", phases_json(s));
    json_object_set(doc, "segments", s->segments);
    json_object_set(doc, "guard", s->guard);
    json_object_set_new(doc, "guard_seen", json_u64(s->guard_seen));
    json_object_set(doc, "versions", s->versions);
}
