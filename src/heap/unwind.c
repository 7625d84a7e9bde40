/* Walks the stack from frame to frame, by rules from a cache. Even if a rule is wrong or a frame is
 * corrupt, the walk reads nothing outside the current stack, only moves towards the outermost
 * frame, and ends. */
#include "heap/unwind.h"

#include <elf.h>
#include <errno.h>
#include <sys/auxv.h>

#include "heap/cfi.h"
#include "heap/modules.h"
#include "heap/unwind_stack.h"

enum {
    CACHE_BITS = 15,
    STEP_MAX_BYTES = 16 << 20, /* maximum size of a frame in bytes */
};

struct registers {
    uintptr_t ip, sp, fp;
    bool is_fp_known;
    bool is_exact; /* true if ip is the current instruction, false if ip is a return address */
};

/* ---- cached rules by address ---- */

struct location {
    struct cfi_rule rule;
    uint32_t module;
    uintptr_t base;
};

#ifdef __x86_64__
/* A slot of the cache is two words, written without a lock. The key matches only if the same writer
 * wrote both words. */
struct slot {
    _Atomic(uint64_t) key, rule;
};
static struct slot cache[1 << CACHE_BITS];

static uint64_t mix_address(uint64_t v)
{
    return v * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t rule_key(uintptr_t ip, uint32_t generation)
{
    return (uint64_t)ip << 16 | (generation & 0xffff);
}

static struct slot *rule_slot(uintptr_t ip)
{
    return &cache[mix_address(ip) >> (64 - CACHE_BITS)];
}

static void fetch_rule(uintptr_t ip)
{
    __builtin_prefetch(rule_slot(ip));
}

/* Layout of a rule in the cache. Offsets are stored in words. If an offset is unaligned or too
 * large, the part of the rule that needs it is stored as unknown. */
enum {
    MODULE_BITS = 11,
    CFA_BITS = 4,
    FP_BITS = 3,
    CFA_OFFSET_BITS = 22,
    FP_OFFSET_BITS = 16,
    CFA_AT = MODULE_BITS,
    FP_AT = CFA_AT + CFA_BITS,
    CFA_OFFSET_AT = FP_AT + FP_BITS,
    FP_OFFSET_AT = CFA_OFFSET_AT + CFA_OFFSET_BITS,
};
_Static_assert(FP_OFFSET_AT + FP_OFFSET_BITS <= 64, "a rule is one word");
_Static_assert(HEAP_MODULES < 1 << MODULE_BITS, "a rule has enough bits for a module number");
_Static_assert(sizeof modules_bases == sizeof(uintptr_t) << MODULE_BITS,
               "every module number in a rule has a base");

static bool rule_fits(int32_t offset, int bits)
{
    return offset % 8 == 0 && offset / 8 >= -(1 << (bits - 1)) && offset / 8 < 1 << (bits - 1);
}

static uint64_t rule_field(uint64_t v, int at, int bits)
{
    return (v & ((UINT64_C(1) << bits) - 1)) << at;
}

static int32_t signed_field(uint64_t packed, int at, int bits)
{
    return (int32_t)((int64_t)(packed << (64 - at - bits)) >> (64 - bits));
}

static uint64_t pack(const struct location *location)
{
    const struct cfi_rule *r = &location->rule;
    int32_t cfa_offset = r->cfa == CFI_CFA_PLT ? r->cfa_offset * 8 : r->cfa_offset;
    uint64_t packed = location->module;
    if (!rule_fits(cfa_offset, CFA_OFFSET_BITS))
        return packed;
    packed |= rule_field(r->cfa, CFA_AT, CFA_BITS);
    packed |= rule_field((uint64_t)(cfa_offset / 8), CFA_OFFSET_AT, CFA_OFFSET_BITS);
    if (!rule_fits(r->fp_offset, FP_OFFSET_BITS))
        return packed | rule_field(CFI_FP_LOST, FP_AT, FP_BITS);
    packed |= rule_field(r->fp, FP_AT, FP_BITS);
    return packed | rule_field((uint64_t)(r->fp_offset / 8), FP_OFFSET_AT, FP_OFFSET_BITS);
}

static void rule_unpack(uint64_t packed, struct location *ret)
{
    int32_t cfa_offset = signed_field(packed, CFA_OFFSET_AT, CFA_OFFSET_BITS);
    ret->module = packed & ((1 << MODULE_BITS) - 1);
    ret->rule.cfa = (enum cfi_cfa)(packed >> CFA_AT & ((1 << CFA_BITS) - 1));
    ret->rule.fp = (enum cfi_fp)(packed >> FP_AT & ((1 << FP_BITS) - 1));
    ret->rule.cfa_offset = ret->rule.cfa == CFI_CFA_PLT ? cfa_offset : cfa_offset * 8;
    ret->rule.fp_offset = signed_field(packed, FP_OFFSET_AT, FP_OFFSET_BITS) * 8;
}

/* Returns the rule at IP. If IP has no rule but the next byte has one, the stack ends here: a
 * program that creates a stack may write the address of a function's first instruction to the top
 * of the stack, as if it were a return address. */
static struct cfi_rule rule_at(const struct module_map *map, uintptr_t ip)
{
    struct cfi_section section = {.bytes = (const uint8_t *)map->eh_start,
                                  .len = map->eh_len,
                                  .address = map->eh_start,
                                  .header = map->eh_header};
    struct cfi_rule rule = {0};
    if (!map->eh_header)
        return rule;
    int r = cfi_find(&section, ip, &rule);
    if (r == -ENOENT && cfi_find(&section, ip + 1, &rule) == 0)
        rule = (struct cfi_rule){.cfa = CFI_CFA_END};
    return rule;
}

#define IN_NO_LIBRARY UINT64_MAX /* a value that no packed rule has */

/* Finds the rule at IP. Returns it packed, so that the walk keeps it in registers. */
__attribute__((noinline)) static uint64_t find_rule(uintptr_t ip, uint32_t generation)
{
    struct slot *slot = rule_slot(ip);
    struct module_map map;
    if (!modules_map(ip, &map))
        return IN_NO_LIBRARY;
    struct location location = {.rule = rule_at(&map, ip), .module = modules_add(&map)};
    bool is_busy = location.module == MODULE_BUSY;
    if (is_busy)
        location.module = MODULE_NONE;
    uint64_t packed = pack(&location);
    if (!is_busy) {
        HEAP_STORE(slot->rule, packed);
        HEAP_STORE(slot->key, rule_key(ip, generation) ^ mix_address(packed));
    }
    return packed;
}

/* Finds the rule and the module of IP. Returns false if IP is in no library. */
static bool location_from(uintptr_t ip, uint32_t generation, struct location *ret)
{
    const struct slot *slot = rule_slot(ip);
    uint64_t packed = HEAP_LOAD(slot->rule);
    uint64_t key = HEAP_LOAD(slot->key);
    if (HEAP_UNLIKELY((key ^ mix_address(packed)) != rule_key(ip, generation)))
        packed = find_rule(ip, generation);
    if (HEAP_UNLIKELY(packed == IN_NO_LIBRARY))
        return false;
    rule_unpack(packed, ret);
    ret->base = HEAP_LOAD(modules_bases[ret->module]);
    return true;
}

/* ---- one step ---- */

static bool cfa_of(const struct cfi_rule *rule, const struct registers *r, struct unwind_extent *e,
                   uintptr_t *ret)
{
    bool is_by_sp = rule->cfa == CFI_CFA_SP || rule->cfa == CFI_CFA_SP_POINTER;
    uintptr_t from = is_by_sp ? r->sp : r->fp;
    if (rule->cfa == CFI_CFA_PLT) {
        *ret = r->sp + ((int32_t)(r->ip & 15) >= rule->cfa_offset ? 16 : 8);
        return true;
    }
    if (!is_by_sp && !r->is_fp_known)
        return false;
    *ret = from + (uintptr_t)(intptr_t)rule->cfa_offset;
    if (rule->cfa == CFI_CFA_SP_POINTER || rule->cfa == CFI_CFA_FP_POINTER)
        return unwind_read(e, *ret, ret);
    return true;
}

static void restore_fp(const struct cfi_rule *rule, uintptr_t cfa, struct registers *r,
                       struct unwind_extent *e)
{
    uintptr_t from = rule->fp == CFI_FP_AT_CFA ? cfa : r->fp;
    if (rule->fp == CFI_FP_SAME)
        return;
    r->is_fp_known = rule->fp != CFI_FP_LOST && (rule->fp == CFI_FP_AT_CFA || r->is_fp_known) &&
                     unwind_read(e, from + (uintptr_t)(intptr_t)rule->fp_offset, &r->fp);
}

/* Steps out of a signal handler. At the handler's return, sp points to the ucontext that the kernel
 * pushed. The interrupted code may run on another stack. */
static bool step_signal(struct registers *r, struct unwind_extent *e)
{
    enum { UCONTEXT_FP = 120, UCONTEXT_SP = 160, UCONTEXT_IP = 168 };
    uintptr_t at = r->sp;

    if (!unwind_read(e, at + UCONTEXT_FP, &r->fp) || !unwind_read(e, at + UCONTEXT_SP, &r->sp) ||
        !unwind_read(e, at + UCONTEXT_IP, &r->ip))
        return false;
    r->is_fp_known = true;
    r->is_exact = true;
    if (r->sp < at || r->sp - at > STEP_MAX_BYTES)
        *e = unwind_extent(&heap_thread, r->sp);
    return true;
}

static bool step(const struct cfi_rule *rule, struct registers *r, struct unwind_extent *e)
{
    uintptr_t cfa;
    if (rule->cfa == CFI_CFA_SIGNAL)
        return step_signal(r, e);
    if (rule->cfa == CFI_CFA_NONE || !cfa_of(rule, r, e, &cfa) || cfa <= r->sp ||
        cfa - r->sp > STEP_MAX_BYTES || !unwind_read(e, cfa - sizeof(uintptr_t), &r->ip))
        return false;
    restore_fp(rule, cfa, r, e);
    r->sp = cfa;
    r->is_exact = false;
    return true;
}

#define READ_REGISTERS(r)                                                                          \
    __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"                          \
                     : "=r"((r)->ip), "=r"((r)->sp), "=r"((r)->fp))

#else

static void fetch_rule(uintptr_t ip)
{
    (void)ip;
}

/* On other architectures the walk follows the chain of frame records (the caller's record, then the
 * return address), which the platform's ABI requires of all code. */
static bool location_from(uintptr_t ip, uint32_t generation, struct location *ret)
{
    (void)generation;
    ret->rule = (struct cfi_rule){.cfa = CFI_CFA_FP};
    ret->module = modules_find(ip, &ret->base);
    return ret->base || ret->module != MODULE_NONE;
}

static bool step(const struct cfi_rule *rule, struct registers *r, struct unwind_extent *e)
{
    uintptr_t at = r->fp;
    (void)rule;
    if (at == 0) { /* a zero marks the end of the chain */
        r->ip = 0;
        return true;
    }
    if (at < r->sp || at - r->sp > STEP_MAX_BYTES || !unwind_read(e, at, &r->fp) ||
        !unwind_read(e, at + sizeof(uintptr_t), &r->ip))
        return false;
    r->sp = at + 2 * sizeof(uintptr_t);
    r->is_exact = false;
    return true;
}

#define READ_REGISTERS(r)                                                                          \
    do {                                                                                           \
        (r)->fp = (uintptr_t)__builtin_frame_address(0);                                           \
        (r)->sp = (r)->fp;                                                                         \
        (r)->ip = (uintptr_t)unwind_here;                                                          \
    } while (0)
#endif

/* ---- the walk ---- */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

/* Returns the size of this library's own code; 0 if it is linked into the program. */
static uintptr_t own_bytes(void)
{
    static _Atomic(uintptr_t) known; /* length + 1, or 0 until it is known */
    uintptr_t len = HEAP_LOAD(known);

    if (!len) {
        uintptr_t headers = getauxval(AT_PHDR), start = (uintptr_t)__ehdr_start;
        bool is_program = headers - start < (uintptr_t)etext - start;
        len = is_program ? 1 : (uintptr_t)etext - start + 1;
        HEAP_STORE(known, len);
    }
    return len - 1;
}

enum end { END_WHOLE, END_FULL, END_LOST };

static enum end unwind_walk(struct registers *r, struct unwind_frame *ret, size_t max,
                            size_t *ret_count)
{
    struct unwind_extent e = unwind_extent(&heap_thread, r->sp);
    uint32_t generation = modules_generation();
    uintptr_t own = own_bytes();
    size_t n = 0;
    for (bool is_inner = true;; is_inner = false) {
        uintptr_t call = r->ip - (r->is_exact ? 0 : 1);
        struct location location;

        *ret_count = n;
        if (!r->ip)
            return END_WHOLE;
        if (n == max)
            return END_FULL;
        if (!location_from(call, generation, &location))
            return END_LOST;
        if (!is_inner && (n > 0 || call - (uintptr_t)__ehdr_start >= own)) {
            ret[n++] =
                (struct unwind_frame){.ip = call, .base = location.base, .module = location.module};
            *ret_count = n;
        }
        if (location.rule.cfa == CFI_CFA_END)
            return END_WHOLE;
        if (!step(&location.rule, r, &e))
            return END_LOST;
    }
}

void unwind_expect(const struct unwind_frame *frames, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fetch_rule(frames[i].ip);
}

__attribute__((noinline)) size_t unwind_here(struct unwind_frame *ret, size_t max, bool *ret_whole)
{
    struct registers r = {.is_fp_known = true, .is_exact = true};
    size_t n;
    READ_REGISTERS(&r);
    enum end end = unwind_walk(&r, ret, max, &n);
    if (end == END_LOST)
        heap_drop(HEAP_DROP_UNWIND);
    *ret_whole = end == END_WHOLE;
    return n;
}
