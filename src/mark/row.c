/* Splits a mark that reports several steps into one mark per step. */
#include "mark/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

#define SPAN_MAX_S 60.0

size_t mark_row_length(const struct mark *m)
{
    size_t len;
    int64_t steps;
    const char *value = m->kind == MARK_STEP ? mark_get(m, "STEPS", &len) : NULL;
    if (!value || !(m->has & MARK_HAS_STEP) || number_parse_i64(value, len, &steps) < 0)
        return 1;
    return steps >= 1 && steps <= MARK_ROW_MAX && steps <= m->step ? (size_t)steps : 1;
}

/* Total duration of the mark's steps, at most M->t_ns, so that no step gets a negative time. */
static uint64_t span_ns(const struct mark *m)
{
    size_t len;
    double seconds;
    const char *value = mark_get(m, "SECONDS", &len);
    if (!value || number_parse_double(value, len, &seconds) < 0 ||
        !(seconds >= 0 && seconds <= SPAN_MAX_S))
        return 0;
    uint64_t span = (uint64_t)(seconds * 1e9);
    return span < m->t_ns ? span : m->t_ns;
}

/* Returns true if LINE of the original mark is not copied into the mark for one step. BEFORE is 0
 * for the last step of the original mark, to which EPOCH belongs, 1 for the step before, and so on.
 * HAS_STEP is true after the first STEP line: if a key is repeated, its first value is used. */
static bool is_left_out(const struct mark_line *line, size_t before, bool has_step)
{
    return mark_line_is(line, "STEPS") || mark_line_is(line, "SECONDS") ||
           (mark_line_is(line, "EPOCH") && before > 0) || (mark_line_is(line, "STEP") && has_step);
}

void mark_row_at(const struct mark *m, size_t length, size_t i, char text[MARK_TEXT_MAX],
                 struct mark *ret)
{
    struct mark one = *m;
    struct mark_line line;
    size_t at = 0, used = 0, before = length - 1 - i;
    bool has_step = false;
    one.step -= (int64_t)before;
    one.t_ns -= span_ns(m) / length * before;
    if (before > 0)
        one.has &= ~(uint32_t)MARK_HAS_EPOCH;
    while (mark_next(m, &at, &line)) {
        /* no step number has more digits than the last one, so the text fits */
        char number[32];
        const char *from = line.key;
        size_t len = (size_t)(line.value + line.value_len - line.key);
        if (is_left_out(&line, before, has_step))
            continue;
        if (mark_line_is(&line, "STEP")) {
            len = (size_t)snprintf(number, sizeof number, "STEP=%" PRId64, one.step);
            from = number;
            has_step = true;
        }
        memcpy(text + used, from, len);
        used += len;
        text[used++] = '\n';
    }
    one.text = text;
    one.len = used - 1;
    *ret = one;
}
