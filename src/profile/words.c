/* The table's numbers in words. */
#include "profile/words.h"

#include <string.h>

#include "heap/table.h"

static const struct {
    const char *key, *text;
} drops[] = {
    [HEAP_DROP_NODES] = {"nodes", "the tree of stacks is full: a stack lost its innermost frames"},
    [HEAP_DROP_SITES] = {"sites", "too many different stacks: counted without a stack"},
    [HEAP_DROP_LIVE] = {"live", "no room for another live sample"},
    [HEAP_DROP_THINNED] = {"thinned", "let go when the interval was doubled for want of room"},
    [HEAP_DROP_CODES] = {"codes", "too many Python functions"},
    [HEAP_DROP_TEXT] = {"text", "no room for names"},
    [HEAP_DROP_MODULES] = {"modules", "too many libraries"},
    [HEAP_DROP_UNWIND] = {"unwind", "a stack that could not be followed to its end"},
    [HEAP_DROP_NESTED] = {"nested", "allocated while a sample was being taken"},
    [HEAP_DROP_STALE] = {"stale", "its end was not seen: the address was given out again"},
};
_Static_assert(sizeof drops / sizeof *drops == HEAP_DROP_KINDS, "every drop has its words");

static const char *const python_states[] = {
#define X(sym, text) text,
    HEAP_PYTHON_STATES(X)
#undef X
};

const char *profile_drop_key(size_t drop)
{
    return drop < HEAP_DROP_KINDS ? drops[drop].key : NULL;
}

const char *profile_drop_text(const char *key)
{
    for (size_t i = 0; i < HEAP_DROP_KINDS; i++)
        if (strcmp(key, drops[i].key) == 0)
            return drops[i].text;
    return NULL;
}

const char *profile_python_text(uint32_t state)
{
    return state < HEAP_PYTHON_STATE_COUNT ? python_states[state] : "not known";
}
