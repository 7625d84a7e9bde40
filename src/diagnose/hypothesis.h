/* The differential diagnosis: every possible explanation of memory use, tested against the
 * measurements, with evidence for and against it. */
#pragma once

#include "diagnose/facts.h"
#include "diagnose/ledger.h"

/* X(symbol, key, code, title). The key is used in JSON, the code by `ebb explain`. */
#define HYPOTHESES(X)                                                                              \
    X(LAUNCHER, "launcher", "launcher-watched", "a launcher was watched instead of the job")       \
    X(WORKERS, "workers", "large-workers", "workers are large, but do not grow")                   \
    X(DATA_LOAD, "data_load", "data-load", "data loading: one jump, then flat")                    \
    X(FIRST_TOUCH, "first_touch", "cache-fill", "filled once: a cache, or newly written memory")   \
    X(ACCUMULATION, "accumulation", "grad-accumulation", "gradient accumulation")                  \
    X(EVAL_SPIKE, "eval_spike", "event-spike", "evaluation or checkpoint: a temporary spike")      \
    X(EVAL_STEP, "eval_step", "event-stays", "evaluation or checkpoint: memory is not released")   \
    X(PYTHON_OBJECTS, "python_objects", "objects-kept", "Python objects pile up")                  \
    X(TENSORS, "tensors", "tensors-kept", "tensors pile up")                                       \
    X(AUTOGRAD, "autograd", "graph-kept", "the autograd graph is kept")                            \
    X(CALL_SITE, "call_site", "site-grows", "memory from one call site grows")                     \
    X(RETENTION, "retention", "allocator-retention",                                               \
      "the allocator retains or fragments freed memory")                                           \
    X(MAPPED_FILES, "mapped_files", "page-cache", "page cache of mapped data")                     \
    X(SHARED_MEMORY, "shared_memory", "shared-memory", "shared memory")                            \
    X(PINNED, "pinned", "pinned-memory", "pinned host memory")                                     \
    X(COPY_ON_WRITE, "copy_on_write", "copy-on-write",                                             \
      "workers copy memory shared with their parent")                                              \
    X(PROCESSES, "processes", "processes-pile-up", "processes pile up")                            \
    X(COMPILE, "compile", "recompilation", "recompilation fills the compile cache")                \
    X(GPU, "gpu", "gpu-memory", "GPU memory grows, not host memory")                               \
    X(GPU_FRAGMENTS, "gpu_fragments", "gpu-fragmentation",                                         \
      "fragmented GPU memory: only the reserved memory grows")                                     \
    X(SWAP, "swap", "swapped-out", "swapped-out memory hides the growth")                          \
    X(THP, "thp", "huge-pages", "transparent huge pages")                                          \
    X(NO_GROWTH, "no_growth", "no-growth", "nothing grows")

#define X(sym, key, code, title) HYPOTHESIS_##sym,
enum hypothesis_id { HYPOTHESES(X) HYPOTHESIS_COUNT };
#undef X
const char *hypothesis_key(enum hypothesis_id id);
const char *hypothesis_code(enum hypothesis_id id);
const char *hypothesis_title(enum hypothesis_id id);

/* Returns true if ID explains memory that the program keeps alive, for example in a container. */
bool hypothesis_is_live(enum hypothesis_id id);

/* CANNOT_TEST means that there are no measurements for or against the hypothesis. */
enum hypothesis_word { RULED_OUT, UNLIKELY, POSSIBLE, LIKELY, NEARLY_CERTAIN, CANNOT_TEST };
/* Words indexed by enum hypothesis_word; the last element is NULL. */
extern const char *const hypothesis_words[];

enum evidence_side { EVIDENCE_FOR, EVIDENCE_AGAINST, EVIDENCE_ABSENT };
enum { EVIDENCE_MAX = 8, EVIDENCE_TEXT = 240 };
struct evidence {
    enum evidence_side side;
    double weight; /* change of the log-odds, or 0 for missing measurements (ABSENT) */
    /* a sentence with measured values; names in the sentence are not escaped */
    char text[EVIDENCE_TEXT];
};

struct hypothesis {
    enum hypothesis_id id;
    enum hypothesis_word word;
    double log_odds;
    /* True if the hypothesis contradicts the verdict: its growth would end but the verdict is a
     * leak, or its growth would continue but the verdict is not a leak. */
    bool is_opposed;
    double share; /* fraction of the growth that the hypothesis would explain, 0 to 1 */
    struct evidence evidence[EVIDENCE_MAX];
    size_t n_evidence;
    /* Measurement that would decide the hypothesis, or "" if it is decided. */
    char decide[EVIDENCE_TEXT];
    const struct growth_row *site; /* call site that the hypothesis names, or NULL */
};

/* Returns the first sentence of evidence on SIDE, or NULL. */
const char *hypothesis_evidence(const struct hypothesis *h, enum evidence_side side);

/* The growth that is to be explained. */
struct question {
    const struct facts *f;
    const struct ledger *l;
    enum verdict_word word; /* verdict on the main process; undecided if it was not judged */
    /* Growth of the main process, including swap and excluding file cache; NAN if unknown. */
    double growth;
    double tree_growth; /* growth of the whole job, every page counted once; NAN if unknown */
    /* The growth to explain: the larger of growth and tree_growth, at least 0. If the job leaks,
     * at least the growth of the live heap, and at least the growth at the verdict's rate. */
    double total;
    double base; /* memory of the main process at the start of the comparison */
    double room; /* headroom: limit minus base; NAN if the limit is unknown */
    /* true if growth exceeds noise and, if it has ended, is large enough to diagnose */
    bool has_grown;
    bool is_growing; /* true if has_grown, and growth is not known to have ended */
};
void question_make(const struct facts *f, const struct ledger *l, struct question *ret);

/* Tests all hypotheses and sorts them. The hypothesis that explains most of the growth comes
 * first. */
void hypotheses_test(const struct question *q, struct hypothesis ret[HYPOTHESIS_COUNT]);
