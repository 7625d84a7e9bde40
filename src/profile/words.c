/* Describes the counters and codes of the heap table in words, and converts the profiler's cost to
 * JSON. */
#include "profile/words.h"

#include <stdio.h>

#include "base/json.h"
#include "profile/profile.h"

static const struct {
    const char *key, *text;
} drops[] = {
    [HEAP_DROP_NODES] = {"nodes",
                         "stack without its outermost frames: the tree of stacks is nearly full"},
    [HEAP_DROP_SITES] = {"sites", "sample without a stack: too many different stacks"},
    [HEAP_DROP_LIVE] = {"live", "live sample not stored: the table is full"},
    [HEAP_DROP_THINNED] = {"thinned",
                           "live sample removed to make room: the sampling interval was doubled"},
    [HEAP_DROP_CODES] = {"codes", "frame without a name: too many Python functions"},
    [HEAP_DROP_TEXT] = {"text", "name, path or line table not stored: the space for text is full"},
    [HEAP_DROP_MODULES] = {"modules", "frame without a library: too many libraries"},
    [HEAP_DROP_UNWIND] = {"unwind", "stack not unwound to its outermost frame"},
    [HEAP_DROP_NESTED] = {"nested", "allocation not sampled: another sample was being taken"},
    [HEAP_DROP_STALE] =
        {"stale", "missed free(): the address was allocated again while its sample was still live"},
    [HEAP_DROP_GPU] = {"gpu", "block not counted: the GPU number is out of range"},
};
_Static_assert(sizeof drops / sizeof *drops == HEAP_DROP_KINDS, "every kind of drop has a text");

static const char *const python_states[] = {
#define X(sym, text) text,
    HEAP_PYTHON_STATES(X)
#undef X
};

const char *profile_drop_text(size_t kind)
{
    return drops[kind].text;
}

char *profile_python_version(char out[PROFILE_VERSION_MAX], const struct profile_cost *c)
{
    snprintf(out, PROFILE_VERSION_MAX, "%u.%u.%u", c->python_version >> 24,
             c->python_version >> 16 & 0xff, c->python_version >> 8 & 0xff);
    return out;
}

const char *profile_python_state(const struct profile_cost *c)
{
    return c->python_state < HEAP_PYTHON_STATE_COUNT ? python_states[c->python_state] : "unknown";
}

json_t *profile_cost_json(const struct profile_cost *c)
{
    char version[PROFILE_VERSION_MAX];
    json_t *dropped = json_object();
    for (size_t i = 0; i < HEAP_DROP_KINDS; i++)
        if (c->drops[i])
            json_object_set_new(dropped, drops[i].key, json_u64(c->drops[i]));
    return json_pack(
        "{s:o,s:o,s:f,s:o,s:o,s:o,s:o,s:{s:o,s:s,s:b,s:o},s:{s:f,s:f,s:f,s:f}}", "samples",
        json_u64(c->samples), "ends", json_u64(c->ends), "hook_s", (double)c->hook_ns / 1e9,
        "interval_bytes", json_u64(c->interval), "base_interval_bytes", json_u64(c->base_interval),
        "gpu_interval_bytes", c->gpu_interval ? json_u64(c->gpu_interval) : json_null(), "drops",
        dropped, "python", "version",
        c->python_version ? json_string(profile_python_version(version, c)) : json_null(), "state",
        profile_python_state(c), "small_objects", c->python_small != 0, "arena_bytes",
        c->arena_bytes ? json_u64(c->arena_bytes) : json_null(), "used", "nodes",
        (double)c->nodes / HEAP_NODES, "sites", (double)c->sites / HEAP_SITES, "live",
        (double)c->live / HEAP_LIVE, "text", (double)c->text_bytes / HEAP_TEXT_BYTES);
}
