/* The modules in the heap table: each library is added once, when one of its frames first occurs in
 * a sample. Adding a module takes a lock; finding one does not. */
#include "heap/modules.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Longest wait for the lock. Adding a module takes microseconds, so the limit is reached only if
 * the thread that holds the lock is preempted. */
enum { PATIENCE_SPINS = 20000 };

/* A copy of the table's modules. Other processes can write to the table, but not to this copy. */
struct known {
    _Atomic(uintptr_t) start; /* 0: unloaded */
    _Atomic(uintptr_t) end;
    /* generation in which the module was last known to be loaded */
    _Atomic(uint32_t) generation;
};

_Atomic(uintptr_t) modules_bases[MODULE_NUMBERS];
static struct known known[HEAP_MODULES];
static _Atomic(uint32_t) known_count, recent, generation, is_noting;
static uint32_t swept_generation; /* protected by the lock for adding modules */
static char program_path[PATH_MAX];
static size_t program_path_len;

static bool is_loaded_at(uint32_t i, const struct module_map *map)
{
    return HEAP_LOAD(known[i].start) == map->start && HEAP_LOAD(known[i].end) == map->end &&
           HEAP_LOAD(modules_bases[i + 1]) == map->base;
}

static uint32_t find_known(const struct module_map *map, uint32_t now)
{
    uint32_t n = HEAP_LOAD_ACQUIRE(known_count);
    uint32_t first = HEAP_LOAD(recent);
    for (uint32_t i = first < n ? first : 0, left = n; left > 0; left--, i = i + 1 < n ? i + 1 : 0)
        if (is_loaded_at(i, map) && HEAP_LOAD_ACQUIRE(known[i].generation) == now) {
            HEAP_STORE(recent, i);
            return i + 1;
        }
    return MODULE_NONE;
}

struct identity {
    const char *path;
    size_t path_len;
    uint8_t build_id[HEAP_BUILD_ID_MAX];
    size_t build_id_len;
};

static void identify(const struct module_map *map, struct identity *ret)
{
    bool is_program = map->name[0] == '\0';
    ret->path = is_program ? program_path : map->name;
    ret->path_len = is_program ? program_path_len : strnlen(map->name, PATH_MAX);
    memset(ret->build_id, 0, sizeof ret->build_id);
    ret->build_id_len = modules_build_id(map, ret->build_id);
}

static bool is_same(const struct heap_table *t, uint32_t i, const struct identity *id)
{
    const struct heap_module *m = &t->modules[i];
    return m->path.len == id->path_len && m->path.at <= HEAP_TEXT_BYTES &&
           id->path_len <= HEAP_TEXT_BYTES - m->path.at &&
           !memcmp(t->text + m->path.at, id->path, id->path_len) &&
           m->build_id_len == id->build_id_len &&
           !memcmp(m->build_id, id->build_id, id->build_id_len);
}

static void mark_unloaded(struct heap_table *t, uint32_t i)
{
    HEAP_STORE(known[i].start, 0);
    t->modules[i].is_gone = 1;
}

/* Finds modules that were unloaded since the last sweep. Their memory may be unmapped, so the sweep
 * reads only the linker's list of addresses. */
static void sweep(struct heap_table *t, uint32_t n, uint32_t now)
{
    uintptr_t start, end;
    if (swept_generation == now)
        return;
    swept_generation = now;
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t was = HEAP_LOAD(known[i].start);
        if (was &&
            (!modules_extent(was, &start, &end) || start != was || end != HEAP_LOAD(known[i].end)))
            mark_unloaded(t, i);
    }
}

static void place_module(struct heap_table *t, uint32_t i, const struct module_map *map,
                         uint32_t now)
{
    struct heap_module *m = &t->modules[i];
    m->base = map->base;
    m->start = map->start;
    m->end = map->end;
    m->is_gone = 0;
    HEAP_STORE(known[i].end, map->end);
    HEAP_STORE(modules_bases[i + 1], map->base);
    HEAP_STORE(known[i].start, map->start);
    HEAP_STORE_RELEASE(known[i].generation, now);
}

static uint32_t add_module(struct heap_table *t, uint32_t n, const struct module_map *map,
                           const struct identity *id, uint32_t now)
{
    struct heap_module *m = &t->modules[n];
    if (n == HEAP_MODULES) {
        heap_drop(HEAP_DROP_MODULES);
        return MODULE_NONE;
    }
    m->path = id->path_len ? heap_text_add(t, id->path, id->path_len) : (struct heap_text){0};
    m->build_id_len = (uint8_t)id->build_id_len;
    memcpy(m->build_id, id->build_id, sizeof m->build_id);
    place_module(t, n, map, now);
    HEAP_STORE_RELEASE(known_count, n + 1);
    HEAP_STORE_RELEASE(t->header.modules, n + 1);
    return n + 1;
}

/* A library that was unloaded and loaded again keeps its number, because its frames mean the same
 * code. A different library at the same address gets a new number. */
static uint32_t add_or_reuse(struct heap_table *t, const struct module_map *map, uint32_t now)
{
    uint32_t n = HEAP_LOAD(known_count);
    uint32_t old = HEAP_MODULES;
    struct identity id;
    sweep(t, n, now);
    identify(map, &id);
    for (uint32_t i = 0; i < n; i++) {
        uintptr_t start = HEAP_LOAD(known[i].start);
        bool same = is_same(t, i, &id);
        if (same && is_loaded_at(i, map)) {
            HEAP_STORE_RELEASE(known[i].generation, now);
            return i + 1;
        }
        if (start && start < map->end && map->start < HEAP_LOAD(known[i].end))
            mark_unloaded(t, i);
        if (same && old == HEAP_MODULES && !HEAP_LOAD(known[i].start))
            old = i;
    }
    if (old == HEAP_MODULES)
        return add_module(t, n, map, &id, now);
    place_module(t, old, map, now);
    return old + 1;
}

uint32_t modules_add(const struct module_map *map)
{
    struct heap_table *t = heap_process.table;
    uint32_t now = modules_generation();
    if (!t)
        return MODULE_NONE;
    uint32_t module = find_known(map, now);
    if (module != MODULE_NONE)
        return module;
    if (!heap_spin(&is_noting, PATIENCE_SPINS))
        return MODULE_BUSY;
    module = find_known(map, now);
    if (module == MODULE_NONE)
        module = add_or_reuse(t, map, now);
    HEAP_STORE_RELEASE(is_noting, 0);
    return module;
}

uint32_t modules_find(uintptr_t ip, uintptr_t *ret_base)
{
    struct module_map map;
    uint32_t module = modules_map(ip, &map) ? modules_add(&map) : MODULE_NONE;
    if (module == MODULE_BUSY)
        module = MODULE_NONE;
    *ret_base = module == MODULE_NONE ? 0 : map.base;
    return module;
}

void modules_changed(void)
{
    HEAP_ADD(generation, 1);
}

uint32_t modules_generation(void)
{
    return HEAP_LOAD(generation);
}

void modules_reset(void)
{
    int saved = errno;
    ssize_t n = -1;
    if (!HEAP_LOAD(heap_process.is_confined))
        n = readlink("/proc/self/exe", program_path, sizeof program_path);
    if (n >= 0)
        program_path_len = (size_t)n;
    errno = saved;
    modules_changed();
    HEAP_STORE(known_count, 0);
    HEAP_STORE_RELEASE(is_noting, 0);
}

uint64_t modules_frame(uint32_t module, uintptr_t base, uintptr_t ip)
{
    return (uint64_t)module << HEAP_FRAME_MODULE_SHIFT | ((ip - base) & HEAP_FRAME_OFFSET_MASK);
}
