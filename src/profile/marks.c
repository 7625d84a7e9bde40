/* Collects the marks of a run while the run is read. */
#include "profile/marks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "mark/mark_clock.h"

/* ---- collecting ---- */

static enum mark_kind marks_kind(enum verdict_mark_kind kind)
{
    static const enum mark_kind kinds[VERDICT_MARK_KINDS] = {
        [VERDICT_MARK_BEGIN] = MARK_BEGIN,     [VERDICT_MARK_STEP] = MARK_STEP,
        [VERDICT_MARK_SUBSTEP] = MARK_SUBSTEP, [VERDICT_MARK_EVAL] = MARK_EVAL,
        [VERDICT_MARK_SAVE] = MARK_SAVE,       [VERDICT_MARK_EPOCH] = MARK_EPOCH,
        [VERDICT_MARK_END] = MARK_END};
    return kinds[kind];
}

/* Stores a copy of MARK without its text. KIND sets the kind of the copy; it differs from that of
 * MARK at the end of a phase, which is stored as an event such as MARK_EVAL. */
static void marks_keep(struct marks *m, const struct mark *mark, enum verdict_mark_kind kind)
{
    if (!ARRAY_ROOM(m->at, m->count, m->cap)) {
        m->has_failed = true;
        return;
    }
    struct mark *kept = &m->at[m->count++];
    *kept = *mark;
    kept->kind = marks_kind(kind);
    kept->text = NULL;
    kept->len = 0;
}

/* Adds a cleanup mark to the totals. The mark at the end of the run is skipped, because it has the
 * totals of the earlier marks. */
static void marks_add_cleanup(struct marks *m, const struct mark *mark)
{
    if (mark->kind != MARK_OTHER || !mark_is(mark, "KIND", "cleanup") ||
        mark_is(mark, "NAME", "total"))
        return;
    double freed = mark_get_number(mark, "FREED_BYTES"), cost = mark_get_number(mark, "SECONDS");
    if (isnan(freed) || isnan(cost))
        return;
    m->cleanup.count++;
    m->cleanup.freed_bytes += freed;
    m->cleanup.cost_s += cost;
}

static void marks_observe_mark(void *user, struct run *run, const struct mark *given)
{
    struct marks *m = user;
    struct mark mark = *given;
    struct verdict_mark mapped;
    mark.t_ns += run->start_mono_ns;
    kept_take(&m->kept, &mark);
    marks_add_cleanup(m, &mark);
    if (mark_clock_map(&mark, &mapped))
        marks_keep(m, &mark, mapped.kind);
}

/* Forgets containers and cleanups when the job restarts, because the restarted job has new
 * processes. */
static void marks_observe_note(void *user, struct run *run, const char *kind, const char *text,
                               size_t len)
{
    struct marks *m = user;
    (void)run;
    (void)text;
    (void)len;
    if (strcmp(kind, "segment") != 0)
        return;
    m->kept = (struct kept_lists){0};
    m->cleanup = (struct marks_cleanup){0};
}

void marks_init(struct marks *m)
{
    *m = (struct marks){0};
    m->observer =
        (struct run_observer){.user = m, .mark = marks_observe_mark, .note = marks_observe_note};
}

void marks_fini(struct marks *m)
{
    free(m->at);
    m->at = NULL;
    m->count = m->cap = 0;
}

/* ---- selecting ---- */

static bool marks_sends_steps(const struct marks *m, int32_t pid, uint64_t since_ns)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->at[i].pid == pid && m->at[i].kind == MARK_STEP && m->at[i].t_ns >= since_ns)
            return true;
    return false;
}

int marks_of(const struct marks *m, int32_t pid, uint64_t since_ns, struct growth_mark **ret,
             size_t *ret_count, struct err *err)
{
    bool is_own = marks_sends_steps(m, pid, since_ns);
    struct mark_clock clock = {0};
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    struct growth_mark *list = calloc(m->count * MARK_CLOCK_MARKS + 1, sizeof *list);
    size_t count = 0;
    if (!list || m->has_failed) {
        free(list);
        return err_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < m->count; i++) {
        if (m->at[i].t_ns < since_ns || (is_own && m->at[i].pid != pid))
            continue;
        size_t n = mark_clock_add(&clock, &m->at[i], marks);
        for (size_t k = 0; k < n; k++)
            list[count++] = (struct growth_mark){m->at[i].t_ns, marks[k]};
    }
    *ret = list;
    *ret_count = count;
    return 0;
}
