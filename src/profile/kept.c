/* Collects growing containers from the marks of kind "kept". */
#include "profile/kept.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "mark/mark.h"

static int64_t step_of(const struct mark *m, const char *key)
{
    double v = mark_get_number(m, key);
    return v >= 0 && v < 0x1p62 ? (int64_t)v : -1; /* also for NAN */
}

static void copy_text(char *out, size_t max, const struct mark *m, const char *key)
{
    size_t len = 0;
    const char *text = mark_get(m, key, &len);
    snprintf(out, max, "%.*s",
             (int)(text && len < max ? len
                   : text            ? max - 1
                                     : 0),
             text ? text : "");
}

static struct kept_list *list_of(struct kept_lists *l, int32_t pid)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].pid == pid)
            return &l->at[i];
    if (l->count == KEPT_PROCESSES)
        return NULL;
    l->at[l->count] = (struct kept_list){.pid = pid, .since_step = -1, .step = -1};
    return &l->at[l->count++];
}

/* Adds one mark to the report of its process. A process sends its report as one mark per container,
 * all with the same steps. An empty report is one mark without a name. */
void kept_take(struct kept_lists *l, const struct mark *mark)
{
    bool is_kept = mark->kind == MARK_OTHER && mark_is(mark, "KIND", "kept");
    struct kept_list *list = is_kept ? list_of(l, mark->pid) : NULL;
    if (!list)
        return;
    int64_t step = step_of(mark, "STEP"), since = step_of(mark, "SINCE");
    if (step != list->step || since != list->since_step)
        *list = (struct kept_list){.pid = mark->pid, .since_step = since, .step = step};
    struct kept one = {.added = mark_get_number(mark, "ADDED"),
                       .bytes = mark_get_number(mark, "BYTES"),
                       .is_library = mark_is(mark, "LIBRARY", "1"),
                       .is_graph = mark_is(mark, "GRAPH", "1")};
    copy_text(one.name, sizeof one.name, mark, "NAME");
    copy_text(one.type, sizeof one.type, mark, "TYPE");
    if (list->count < KEPT_MAX && one.name[0] && one.added > 0 && one.bytes > 0)
        list->at[list->count++] = one;
}

const struct kept_list *kept_of(const struct kept_lists *l, int32_t pid)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].pid == pid && l->at[i].count)
            return &l->at[i];
    return NULL;
}

const char *kept_text(char out[KEPT_TEXT_MAX], const struct kept_list *l, size_t i)
{
    const struct kept *k = &l->at[i];
    char size[TEXT_SIZE_MAX], steps[80] = "";
    if (l->step >= 0 && l->since_step >= 0)
        snprintf(steps, sizeof steps, " from step %" PRId64 " to step %" PRId64, l->since_step,
                 l->step);
    bool is_tensor = k->is_graph && strcmp(k->type, "Tensor") == 0;
    snprintf(out, KEPT_TEXT_MAX, "%s (%s): %.0f %s added%s%s, at most %s", k->name, k->type,
             k->added, is_tensor ? "autograd nodes" : "entries", steps,
             k->is_graph && !is_tensor ? ", with their autograd graphs" : "",
             text_size(size, number_to_u64(k->bytes)));
    return out;
}

static json_t *step_json(int64_t step)
{
    return step >= 0 ? json_integer(step) : json_null();
}

json_t *kept_json(const struct kept_list *l)
{
    json_t *list = json_array();
    char text[KEPT_TEXT_MAX];
    for (size_t i = 0; l && i < l->count; i++)
        json_array_append_new(
            list,
            json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "name", json_text0(l->at[i].name), "type",
                      json_text0(l->at[i].type), "added", json_count(l->at[i].added), "bytes",
                      json_count(l->at[i].bytes), "since_step", step_json(l->since_step), "step",
                      step_json(l->step), "text", json_text0(kept_text(text, l, i))));
    return list;
}
