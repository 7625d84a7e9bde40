/* Where the resident memory of the growing process is: every byte with a name, now and at the
 * start. Entries are resident bytes, with bounds where they are estimates, and add up to RSS. */
#pragma once

#include "diagnose/facts.h"

/* X(symbol, word, sentence) */
#define LEDGER_ENTRIES(X)                                                                          \
    X(HEAP_SITE, "heap", "allocated at a call site, and alive")                                    \
    X(HEAP_OTHER, "heap, other sites", "allocated elsewhere, and alive")                           \
    X(HEAP, "live heap", "alive by the allocator's own count")                                     \
    X(OBJECTS, "Python objects", "beside the heap; at most what the census counted")               \
    X(RETAINED, "allocator-retained",                                                              \
      "the allocator has it and it is not alive: freed and kept, or lost between")                 \
    X(ARENAS, "Python arenas", "mapped for small Python objects, and none lives there")            \
    X(TOUCHED, "first written", "asked for before in large pieces, and written to since, at most") \
    X(HUGE, "huge pages", "anonymous, and nothing else: what came with a page of megabytes")       \
    X(FILES, "mapped files", "page cache that is mapped in, libraries too")                        \
    X(SHARED, "shared memory", "tmpfs, or shared with other processes")                            \
    X(STACKS, "stacks", "of threads")                                                              \
    X(PINNED, "pinned", "page-locked for a GPU")                                                   \
    X(UNSHARED, "copy-on-write", "its parent's until one of them wrote to it")                     \
    X(UNEXPLAINED, "unexplained", "nothing that was measured tells what it is")

#define X(sym, word, text) LEDGER_##sym,
enum ledger_kind { LEDGER_ENTRIES(X) LEDGER_KINDS };
#undef X
const char *ledger_word(enum ledger_kind kind);
const char *ledger_text(enum ledger_kind kind);

enum { LEDGER_SITES = 12, LEDGER_MAX = LEDGER_SITES + LEDGER_KINDS };
struct ledger_entry {
    enum ledger_kind kind;
    const struct growth_row *site; /* of HEAP_SITE; of PINNED and SHARED where it is known */
    double start_bytes, now_bytes, low_bytes, high_bytes; /* bounds of now */
    double growth_bytes;
};

struct ledger {
    bool is_known;
    double start_s, now_s; /* the two moments */
    double rss_start_bytes, rss_now_bytes;
    struct ledger_entry entries[LEDGER_MAX]; /* the most growth first; UNEXPLAINED last */
    size_t count;
    double named_growth_share; /* of RSS's growth, 0 to 1; NAN where it did not grow */
    bool knows_retained;       /* RETAINED is a reading: of the heaps' pages, or the allocator's */
    bool is_by_pages;          /* the former */
    struct ledger_scale {
        double start, growth, now;
    } scale;                     /* resident bytes of one that was sampled; for ledger.c alone */
    double untouched_bytes;      /* asked for at the start and not resident then, at least */
    bool is_shared[GROWTH_ROWS]; /* the row maps shared memory: it is no part of the heap */
};

/* At the last reading, and at the first after training began. Never more than RSS. */
void ledger_make(const struct facts *f, struct ledger *ret);
/* What of the kind there is now, and by how much it grew; 0 where there is no such entry. */
double ledger_now(const struct ledger *l, enum ledger_kind kind);
double ledger_growth(const struct ledger *l, enum ledger_kind kind);
/* By how much what is alive on the heap grew, whoever counted it. */
double ledger_live_growth(const struct ledger *l);
/* By how much row I of the heap's did. */
double ledger_row_growth(const struct facts *f, const struct ledger *l, size_t i);
/* Who made what is pinned, shared, or was asked for before: NULL where it is not known. */
const struct growth_row *ledger_site(const struct ledger *l, enum ledger_kind kind);
/* By how much that grew which allocators keep: Python's arenas, and what malloc told that it has
 * free, else all that is unexplained. */
double ledger_beside_growth(const struct ledger *l);
