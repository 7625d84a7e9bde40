/* Merges native and Python frames into one stack. */
#include "heap/record.h"

#include "heap/modules.h"
#include "heap/python.h"

/* The merged stack, innermost frame first. If it is full, the remaining outer frames are
 * dropped. */
struct merged {
    uint64_t *words;
    size_t count, max;
};

static void put_word(struct merged *m, uint64_t word)
{
    if (m->count < m->max)
        m->words[m->count++] = word;
}

/* Appends the frames of one evaluation loop, from *AT up to and including its entry frame. */
static void put_evaluation(struct merged *m, const struct python_frame *python, size_t pythons,
                           size_t *at)
{
    while (*at < pythons) {
        const struct python_frame *frame = &python[(*at)++];
        if (frame->word)
            put_word(m, frame->word);
        if (frame->is_entry)
            return;
    }
}

static void reverse(uint64_t *words, size_t count)
{
    for (size_t i = 0, j = count; i + 1 < j; i++) {
        uint64_t word = words[--j];
        words[j] = words[i];
        words[i] = word;
    }
}

size_t record_merge(const struct unwind_frame *native, size_t natives,
                    const struct python_frame *python, size_t pythons, uint64_t *ret, size_t max)
{
    struct merged m = {.words = ret, .max = max};
    uint32_t interpreter = python_module();
    size_t at = 0;
    for (size_t i = 0; i < natives; i++) {
        const struct unwind_frame *frame = &native[i];
        if (at < pythons && python_is_eval(frame->ip))
            put_evaluation(&m, python, pythons, &at);
        else if (!at || interpreter == MODULE_NONE || frame->module != interpreter ||
                 python_is_eval(frame->ip))
            put_word(&m, modules_frame(frame->module, frame->base, frame->ip));
    }
    while (at < pythons)
        put_evaluation(&m, python, pythons, &at);
    reverse(m.words, m.count);
    return m.count;
}
