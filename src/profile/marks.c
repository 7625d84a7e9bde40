/* The marks of a recording as a verdict is made of. */
#include "profile/marks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/err.h"
#include "mark/mark_clock.h"
#include "trace/reader.h"

struct mark_list {
    struct growth_mark *at;
    size_t count, cap;
};

static int mark_list_add(struct mark_list *l, uint64_t t_ns, const struct verdict_mark *mark)
{
    if (!ARRAY_ROOM(l->at, l->count, l->cap))
        return -ENOMEM;
    l->at[l->count++] = (struct growth_mark){t_ns, *mark};
    return 0;
}

/* Does the process itself send steps? */
static bool sends_steps(const struct mark *m, int32_t pid)
{
    struct verdict_mark v;
    return m->pid == pid && mark_clock_map(m, &v) && v.kind == VERDICT_MARK_STEP;
}

static int read_marks(struct trace_reader *reader, int32_t pid, uint64_t since_ns,
                      struct mark_list *all, struct mark_list *own, bool *ret_sends)
{
    struct mark_clock clock_all = {0}, clock_own = {0};
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    struct trace_item item;
    int r, e = 0;
    while (e == 0 && (r = trace_reader_next(reader, &item)) > 0) {
        if (item.kind != TRACE_MARK || item.t_ns < since_ns)
            continue;
        *ret_sends = *ret_sends || sends_steps(&item.mark, pid);
        size_t n = mark_clock_add(&clock_all, &item.mark, marks);
        for (size_t i = 0; i < n && e == 0; i++)
            e = mark_list_add(all, item.t_ns, &marks[i]);
        n = item.mark.pid == pid ? mark_clock_add(&clock_own, &item.mark, marks) : 0;
        for (size_t i = 0; i < n && e == 0; i++)
            e = mark_list_add(own, item.t_ns, &marks[i]);
    }
    return e < 0 ? e : r;
}

int marks_read(const char *path, int32_t pid, uint64_t since_ns, struct growth_mark **ret,
               size_t *ret_count, struct err *err)
{
    struct trace_reader *reader;
    struct mark_list all = {0}, own = {0};
    bool is_own = false;
    int r = trace_reader_open(path, &reader, NULL);
    if (r == 0) {
        r = read_marks(reader, pid, since_ns, &all, &own, &is_own);
        trace_reader_free(reader);
    }
    free(is_own ? all.at : own.at);
    const struct mark_list *kept = is_own ? &own : &all;
    if (r == -ENOMEM) {
        free(kept->at);
        return err_set(err, r, "out of memory");
    }
    *ret = kept->at;
    *ret_count = kept->count;
    return 0;
}
