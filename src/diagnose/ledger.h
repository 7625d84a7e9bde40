/* Divides the resident memory of the growing process, now and at the start, into entries. Entries
 * are in resident bytes, with bounds if they are estimates, and add up to RSS. */
#pragma once

#include "diagnose/facts.h"

/* X(symbol, word, sentence) for each kind of entry. */
#define LEDGER_ENTRIES(X)                                                                          \
    X(HEAP_SITE, "heap", "live, allocated at this call site")                                      \
    X(HEAP_OTHER, "heap, other sites", "live, allocated at other call sites")                      \
    X(HEAP, "live heap", "live, according to the allocator's own count")                           \
    X(OBJECTS, "Python objects", "outside the heap; upper bound from the census")                  \
    X(RETAINED, "allocator-retained",                                                              \
      "freed but retained by the allocator, or lost to fragmentation")                             \
    X(ARENAS, "Python arenas", "mapped for small Python objects, but empty")                       \
    X(TOUCHED, "first written",                                                                    \
      "allocated before the start, first written to after it; upper bound")                        \
    X(HUGE, "huge pages", "resident as part of a huge page, but not allocated")                    \
    X(FILES, "mapped files", "mapped page cache, including libraries")                             \
    X(SHARED, "shared memory", "tmpfs, or shared with other processes")                            \
    X(STACKS, "stacks", "thread stacks")                                                           \
    X(PINNED, "pinned", "page-locked for a GPU")                                                   \
    X(UNSHARED, "copy-on-write", "shared with the parent until one process wrote to the pages")    \
    X(UNEXPLAINED, "unexplained", "not attributed by any measurement")

#define X(sym, word, text) LEDGER_##sym,
enum ledger_kind { LEDGER_ENTRIES(X) LEDGER_KINDS };
#undef X
const char *ledger_word(enum ledger_kind kind);
const char *ledger_text(enum ledger_kind kind);

enum { LEDGER_SITES = 12, LEDGER_MAX = LEDGER_SITES + LEDGER_KINDS };
struct ledger_entry {
    enum ledger_kind kind;
    /* the call site: always set for HEAP_SITE; set for PINNED, SHARED and TOUCHED if known */
    const struct growth_row *site;
    /* low_bytes and high_bytes are bounds of now_bytes. */
    double start_bytes, now_bytes, low_bytes, high_bytes;
    double growth_bytes;
};

struct ledger {
    bool is_known;
    double start_s, now_s; /* the two compared moments, in seconds */
    double rss_start_bytes, rss_now_bytes;
    /* Sorted: the entry with the most growth first, UNEXPLAINED last. */
    struct ledger_entry entries[LEDGER_MAX];
    size_t count;
    /* Attributed fraction of RSS growth, 0 to 1; NAN if RSS did not grow. */
    double named_growth_share;
    /* True if RETAINED was measured, by counting heap pages or by the allocator's own count. */
    bool knows_retained;
    bool is_by_pages; /* true if RETAINED was measured by counting heap pages */
    struct ledger_scale {
        double start, growth, now;
    } scale; /* resident bytes per sampled byte; private to ledger.c */
    /* Lower bound of the bytes allocated but not resident at the start. */
    double untouched_bytes;
    /* True for a row that maps shared memory, which is not part of the heap. */
    bool is_shared[GROWTH_ROWS];
};

/* Compares the last moment with the first moment after training began. The entries never exceed RSS
 * in total. */
void ledger_make(const struct facts *f, struct ledger *ret);
/* Returns the growth of all entries of KIND, or 0 if there are none. */
double ledger_growth(const struct ledger *l, enum ledger_kind kind);
/* Returns the growth of the live heap, from the best available count. */
double ledger_live_growth(const struct ledger *l);
/* Returns the growth of row I of the heap profile. */
double ledger_row_growth(const struct facts *f, const struct ledger *l, size_t i);
/* Returns the call site of pinned, shared or first-written memory, or NULL if unknown. */
const struct growth_row *ledger_site(const struct ledger *l, enum ledger_kind kind);
/* Returns the growth of memory that allocators retain: empty Python arenas, and memory retained by
 * malloc. If the latter was not measured, it is assumed to be all unexplained memory. */
double ledger_beside_growth(const struct ledger *l);
