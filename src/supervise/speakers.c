/* Marks of a process's own and of hooks in it. */
#include "supervise/speakers.h"

#include <stdlib.h>
#include <string.h>

static struct speaker *find(struct speakers *s, int32_t pid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->known[i].pid == pid)
            return &s->known[i];
    return NULL;
}

static bool is_hooks(const struct mark *mark)
{
    size_t len;
    const char *by = mark_get(mark, "BY", &len);
    return by && len == strlen("hook") && memcmp(by, "hook", len) == 0;
}

static bool is_training(enum mark_kind kind)
{
    return kind >= MARK_BEGIN && kind <= MARK_END;
}

/* Beyond SPEAKERS_MAX the oldest makes room: it has most probably ended. */
static struct speaker *add(struct speakers *s, int32_t pid)
{
    if (s->n == SPEAKERS_MAX)
        memmove(s->known, s->known + 1, --s->n * sizeof *s->known);
    s->known[s->n] = (struct speaker){.pid = pid};
    return &s->known[s->n++];
}

static void remember(struct speakers *s, const struct mark *mark)
{
    struct speaker *who = find(s, mark->pid);
    if (!who)
        who = add(s, mark->pid);
    who->kinds |= 1u << mark->kind;
    who->has_length |= mark->has & (MARK_HAS_STEPS_PER_EPOCH | MARK_HAS_EXAMPLES);
    if (mark->kind == MARK_END || mark->kind == MARK_STEP)
        who->has_ended = mark->kind == MARK_END;
    if (mark->has & MARK_HAS_STEP)
        who->step = mark->step;
}

/* Another training, which the process does not speak of. */
static bool is_next(const struct speaker *who, const struct mark *mark)
{
    return who->has_ended &&
           (mark->kind == MARK_BEGIN || (mark->has & MARK_HAS_STEP && mark->step > who->step));
}

static bool is_news(const struct speaker *who, const struct mark *mark)
{
    bool is_event = mark->kind == MARK_EVAL || mark->kind == MARK_SAVE || mark->kind == MARK_EPOCH;
    if (!(mark->has & MARK_HAS_STEP) || llabs(mark->step - who->step) > 1)
        return false;
    return (is_event && !(who->kinds & 1u << mark->kind)) ||
           (mark->kind == MARK_STEP && mark->has & MARK_HAS_STEPS_PER_EPOCH && !who->has_length);
}

bool speakers_hear(struct speakers *s, const struct mark *mark)
{
    if (!mark->pid || !is_training(mark->kind))
        return false;
    if (!is_hooks(mark)) {
        remember(s, mark);
        return false;
    }
    struct speaker *who = find(s, mark->pid);
    if (!who || !(who->kinds & 1u << MARK_STEP) || is_news(who, mark))
        return false;
    if (is_next(who, mark)) {
        *who = (struct speaker){.pid = mark->pid};
        return false;
    }
    s->left_out++;
    return true;
}
