/* Wraps pymalloc, Python's allocator of small objects. A sampled object is allocated by the raw
 * allocator, which pymalloc itself uses for large objects. pymalloc's free and realloc then see
 * that the pointer is not theirs and pass it to the raw allocator, so neither function needs a
 * wrapper. */
#include "heap/python_small.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "heap/heap.h"
#include "heap/life.h"
#include "heap/python.h"
#include "heap/record.h"
#include "heap/sampler.h"

enum {
    SMALL_MAX = 512,  /* pymalloc's own limit in bytes; larger objects go to malloc */
    ARENA_CODE = 256, /* upper bound for the size of the function that maps arenas, in bytes */
};
#define SMALL_COLD __attribute__((noinline, cold))

enum small_state { SMALL_UNDECIDED, SMALL_ON, SMALL_REFUSED };

static _Atomic(uint32_t) small_state;
static _Atomic(uintptr_t) arena_code;
/* Written once, before the wrappers are installed. */
static struct python_allocator pymalloc;
static void *(*raw_malloc)(size_t size);
static void *(*raw_calloc)(size_t count, size_t size);
static struct python_arenas arenas;
static _Atomic(int64_t)
    /* Bytes of arenas mapped minus bytes of arenas unmapped, since the arenas were hooked. The
     * result may be negative, because arenas that were mapped before may be unmapped. */
    arena_bytes;

/* Subtracts SIZE from the countdown. If less than SIZE is left, returns true and subtracts
 * nothing. */
static inline bool is_due(size_t size)
{
    int64_t left = heap_thread.countdown - (int64_t)size;
    if (HEAP_UNLIKELY(left < 0))
        return true;
    heap_thread.countdown = left;
    return false;
}

/* Allocates an object from the raw allocator. The object's bytes are already counted, so the raw
 * allocator's call of malloc is not counted again. */
static void *take_raw(struct heap_thread *t, size_t size, bool is_zeroed)
{
    int64_t countdown = t->countdown;
    t->countdown = INT64_MAX;
    t->busy++;
    void *p = is_zeroed ? raw_calloc(1, size) : raw_malloc(size);
    t->busy--;
    t->countdown = countdown;
    return p;
}

/* Samples the object if the Poisson process chooses it, and allocates it. Otherwise, or if memory
 * ran out, returns NULL; the caller then uses the original function. */
static SMALL_COLD void *sample(size_t size, bool is_zeroed)
{
    struct heap_thread *t = &heap_thread;
    uint64_t interval;
    if (t->busy)
        return NULL;
    if (!life_enter(t)) {
        life_rest(t);
        return NULL;
    }
    t->countdown -= (int64_t)size;
    void *p = sampler_hit(t, size, &interval) ? take_raw(t, size, is_zeroed) : NULL;
    if (p)
        record_allocation(p, size, interval, HEAP_KIND_PYTHON);
    life_leave(t);
    return p;
}

/* A function of its own, so that the fast path does not save registers. */
static SMALL_COLD void *malloc_slowly(void *ctx, size_t size)
{
    void *p = sample(size, false);
    return p ? p : pymalloc.malloc(ctx, size);
}

static void *small_malloc(void *ctx, size_t size)
{
    if (HEAP_LIKELY(size <= SMALL_MAX) && HEAP_UNLIKELY(is_due(size)))
        return malloc_slowly(ctx, size);
    return pymalloc.malloc(ctx, size);
}

static SMALL_COLD void *calloc_slowly(void *ctx, size_t count, size_t size)
{
    void *p = sample(count * size, true);
    return p ? p : pymalloc.calloc(ctx, count, size);
}

static void *small_calloc(void *ctx, size_t count, size_t size)
{
    if (count <= SMALL_MAX && size <= SMALL_MAX && count * size <= SMALL_MAX &&
        HEAP_UNLIKELY(is_due(count * size)))
        return calloc_slowly(ctx, count, size);
    return pymalloc.calloc(ctx, count, size);
}

/* Wraps realloc, because lists allocate their items with realloc(NULL). */
static void *small_realloc(void *ctx, void *old, size_t size)
{
    if (!old)
        return small_malloc(ctx, size);
    return pymalloc.realloc(ctx, old, size);
}

static void *arena_alloc(void *ctx, size_t size)
{
    void *p = arenas.alloc(ctx, size);
    if (p)
        HEAP_ADD(arena_bytes, (int64_t)size);
    return p;
}

static void arena_free(void *ctx, void *p, size_t size)
{
    atomic_fetch_sub_explicit(&arena_bytes, (int64_t)size, memory_order_relaxed);
    arenas.free(ctx, p, size);
}

static void count_arenas(const struct python_symbols *s)
{
    if (!s->arenas_get || !s->arenas_set)
        return;
    HEAP_STORE(arena_bytes, 0);
    s->arenas_get(&arenas);
    const struct python_arenas front = {arenas.ctx, arena_alloc, arena_free};
    s->arenas_set(&front);
}

uint64_t python_small_arena_bytes(void)
{
    int64_t bytes = HEAP_LOAD(arena_bytes);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

void python_small_found(const struct python_symbols *symbols)
{
    struct python_arenas own;
    if (!symbols->arenas_get)
        return;
    symbols->arenas_get(&own);
    uintptr_t code;
    memcpy(&code, &own.alloc, sizeof code);
    HEAP_STORE(arena_code, code);
}

/* Returns true if the current allocator is pymalloc itself; no other allocator is wrapped. Debug
 * hooks and tracers write data around each object, and this data would be missing around a sampled
 * object. Replacements of pymalloc do not accept a pointer from malloc. */
static bool is_pymalloc(const struct python_symbols *s, struct python_allocator *ret)
{
    struct python_allocator mem, obj;
    if (!s->allocator_get || !s->allocator_set || !s->allocator_name || !s->thread_current ||
        !s->raw_malloc || !s->raw_calloc)
        return false;
    const char *name = s->allocator_name();
    if (!name || strcmp(name, "pymalloc") != 0)
        return false;
    s->allocator_get(PYTHON_DOMAIN_MEM, &mem);
    s->allocator_get(PYTHON_DOMAIN_OBJ, &obj);
    if (mem.malloc != obj.malloc || mem.calloc != obj.calloc || mem.realloc != obj.realloc ||
        mem.free != obj.free)
        return false;
    *ret = obj;
    return true;
}

void python_small_install(const struct python_symbols *s, const void *mine)
{
    if (HEAP_LOAD(small_state) != SMALL_UNDECIDED)
        return;
    if (!heap_process.wants_python_small) {
        HEAP_STORE(small_state, SMALL_REFUSED);
        return;
    }
    /* While this thread holds the GIL, no other thread calls the allocators. */
    if (!mine || !s->thread_current || s->thread_current() != mine)
        return;
    if (!is_pymalloc(s, &pymalloc)) {
        HEAP_STORE(small_state, SMALL_REFUSED);
        return;
    }
    raw_malloc = s->raw_malloc;
    raw_calloc = s->raw_calloc;
    struct python_allocator front = {
        .ctx = pymalloc.ctx,
        .malloc = small_malloc,
        .calloc = small_calloc,
        .realloc = small_realloc,
        .free = pymalloc.free,
    };
    s->allocator_set(PYTHON_DOMAIN_MEM, &front);
    s->allocator_set(PYTHON_DOMAIN_OBJ, &front);
    count_arenas(s);
    HEAP_STORE(small_state, SMALL_ON);
}

static bool is_in_front(const struct python_symbols *s, int domain)
{
    struct python_allocator now;
    s->allocator_get(domain, &now);
    return now.malloc == small_malloc && now.calloc == small_calloc && now.realloc == small_realloc;
}

bool python_small_remove(const struct python_symbols *s)
{
    struct python_arenas now;
    if (HEAP_LOAD(small_state) != SMALL_ON) {
        HEAP_STORE(small_state, SMALL_UNDECIDED);
        return true;
    }
    if (!is_in_front(s, PYTHON_DOMAIN_MEM) || !is_in_front(s, PYTHON_DOMAIN_OBJ))
        return false;
    if (s->arenas_get && s->arenas_set) {
        s->arenas_get(&now);
        if (now.alloc == arena_alloc)
            s->arenas_set(&arenas);
    }
    s->allocator_set(PYTHON_DOMAIN_MEM, &pymalloc);
    s->allocator_set(PYTHON_DOMAIN_OBJ, &pymalloc);
    HEAP_STORE(small_state, SMALL_UNDECIDED);
    return true;
}

bool python_small_is_on(void)
{
    return HEAP_LOAD(small_state) == SMALL_ON;
}

/* Decides early whether small objects are counted. The next sample may be long after this arena is
 * mapped. Without a decision, the objects in the arena would be counted neither individually nor as
 * an arena until then. */
static void decide_small(void)
{
    int saved = errno;
    struct heap_thread *t = &heap_thread;
    t->busy++;
    if (life_enter(t)) {
        python_detect();
        life_leave(t);
    }
    t->busy--;
    errno = saved;
}

/* Also returns true while it is undecided whether small objects are counted, because the objects in
 * this arena may later be counted individually. */
bool python_owns_map(uintptr_t return_address)
{
    uintptr_t code = HEAP_LOAD(arena_code);
    if (!code || return_address - code >= ARENA_CODE || !heap_process.wants_python_small)
        return false;
    if (HEAP_LOAD(small_state) == SMALL_UNDECIDED && !heap_thread.busy)
        decide_small();
    return HEAP_LOAD(small_state) != SMALL_REFUSED;
}
