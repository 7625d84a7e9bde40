/* The differential diagnosis: every possible explanation of the memory, tested against the
 * measurements, with evidence for and against it. */
#pragma once

#include "diagnose/facts.h"
#include "diagnose/ledger.h"

/* X(symbol, key, code, title): JSON uses the key, `ebb explain` the code. */
#define HYPOTHESES(X)                                                                              \
    X(LAUNCHER, "launcher", "launcher-watched", "a launcher was watched instead of the job")       \
    X(WORKERS, "workers", "large-workers", "workers are large, but do not grow")                   \
    X(DATA_LOAD, "data_load", "data-load", "loading the data: one jump, then flat")                \
    X(FIRST_TOUCH, "first_touch", "cache-fill", "filled once: a cache, or memory first written")   \
    X(ACCUMULATION, "accumulation", "grad-accumulation", "gradient accumulation")                  \
    X(EVAL_SPIKE, "eval_spike", "event-spike", "evaluation or checkpoint: a spike that recovers")  \
    X(EVAL_STEP, "eval_step", "event-stays", "evaluation or checkpoint: memory that stays")        \
    X(PYTHON_OBJECTS, "python_objects", "objects-kept", "Python objects pile up")                  \
    X(TENSORS, "tensors", "tensors-kept", "tensors pile up")                                       \
    X(AUTOGRAD, "autograd", "graph-kept", "the autograd graph is kept")                            \
    X(CALL_SITE, "call_site", "site-grows", "memory from one call site grows")                     \
    X(RETENTION, "retention", "allocator-retention",                                               \
      "the allocator retains freed memory, or fragments")                                          \
    X(MAPPED_FILES, "mapped_files", "page-cache", "page cache of mapped data")                     \
    X(SHARED_MEMORY, "shared_memory", "shared-memory", "shared memory")                            \
    X(PINNED, "pinned", "pinned-memory", "pinned host memory")                                     \
    X(COPY_ON_WRITE, "copy_on_write", "copy-on-write",                                             \
      "workers copy memory shared with their parent")                                              \
    X(PROCESSES, "processes", "processes-pile-up", "processes pile up")                            \
    X(COMPILE, "compile", "recompilation", "recompilation fills the compile cache")                \
    X(GPU, "gpu", "gpu-memory", "GPU memory, not host memory")                                     \
    X(GPU_FRAGMENTS, "gpu_fragments", "gpu-fragmentation",                                         \
      "GPU memory fragments: reserved grows, allocated does not")                                  \
    X(SWAP, "swap", "swapped-out", "swapped-out memory hides the growth")                          \
    X(THP, "thp", "huge-pages", "transparent huge pages")                                          \
    X(NO_GROWTH, "no_growth", "no-growth", "nothing grows")

#define X(sym, key, code, title) HYPOTHESIS_##sym,
enum hypothesis_id { HYPOTHESES(X) HYPOTHESIS_COUNT };
#undef X
const char *hypothesis_key(enum hypothesis_id id);
const char *hypothesis_code(enum hypothesis_id id);
const char *hypothesis_title(enum hypothesis_id id);

/* CANNOT_TEST: nothing that would show it was measured. */
enum hypothesis_word { RULED_OUT, UNLIKELY, POSSIBLE, LIKELY, NEARLY_CERTAIN, CANNOT_TEST };
extern const char *const hypothesis_words[]; /* indexed by enum hypothesis_word; ends with NULL */

enum evidence_side { EVIDENCE_FOR, EVIDENCE_AGAINST, EVIDENCE_ABSENT };
enum { EVIDENCE_MAX = 8, EVIDENCE_TEXT = 240 };
struct evidence {
    enum evidence_side side;
    double weight;            /* change of the log-odds; 0 for ABSENT */
    char text[EVIDENCE_TEXT]; /* a sentence with the numbers; names in it are raw */
};

struct hypothesis {
    enum hypothesis_id id;
    enum hypothesis_word word;
    double log_odds;
    bool is_opposed; /* its growth would end, but the verdict is a leak; or the reverse */
    double share;    /* part of the growth that it would explain, 0 to 1 */
    struct evidence evidence[EVIDENCE_MAX];
    size_t n_evidence;
    char decide[EVIDENCE_TEXT];    /* what would decide it; "" if it is decided */
    const struct growth_row *site; /* the call site that it names, or NULL */
};

/* The growth to be explained. */
struct question {
    const struct facts *f;
    const struct ledger *l;
    enum verdict_word word; /* verdict on the main process; undecided if it was not judged */
    double growth; /* of the main process, including swap, excluding file cache; NAN: unknown */
    double tree_growth; /* of the whole job, every page counted once; NAN: unknown */
    double total;       /* the larger of the two, at least 0: the growth to explain */
    double base;        /* memory of the main process at the start */
    double room;        /* headroom: limit minus base; NAN: no limit is known */
    bool has_grown;     /* more than noise and, if growth has ended, large enough to diagnose */
    bool is_growing;    /* has_grown, and growth is not known to have ended */
};
void question_make(const struct facts *f, const struct ledger *l, struct question *ret);

/* Tests all hypotheses and sorts them: the one that explains most of the growth first. */
void hypotheses_test(const struct question *q, struct hypothesis ret[HYPOTHESIS_COUNT]);
