/* The differential diagnosis: every explanation that memory may have, each tested against what was
 * measured, with what speaks for it and against it. */
#pragma once

#include "diagnose/facts.h"
#include "diagnose/ledger.h"

/* X(symbol, key, title) */
#define HYPOTHESES(X)                                                                              \
    X(LAUNCHER, "launcher", "a launcher was watched instead of the job")                           \
    X(WORKERS, "workers", "workers are large, but do not grow")                                    \
    X(DATA_LOAD, "data_load", "loading the data: one jump, then flat")                             \
    X(FIRST_TOUCH, "first_touch", "filled once: a cache, or memory first written")                 \
    X(ACCUMULATION, "accumulation", "gradient accumulation")                                       \
    X(EVAL_SPIKE, "eval_spike", "evaluation or checkpoint: a spike that recovers")                 \
    X(EVAL_STEP, "eval_step", "evaluation or checkpoint: memory that stays")                       \
    X(PYTHON_OBJECTS, "python_objects", "Python objects pile up")                                  \
    X(TENSORS, "tensors", "tensors pile up")                                                       \
    X(AUTOGRAD, "autograd", "the autograd graph is kept")                                          \
    X(CALL_SITE, "call_site", "a call site keeps what it makes")                                   \
    X(RETENTION, "retention", "the allocator keeps what was freed, or fragments")                  \
    X(MAPPED_FILES, "mapped_files", "page cache of mapped data")                                   \
    X(SHARED_MEMORY, "shared_memory", "shared memory")                                             \
    X(PINNED, "pinned", "pinned host memory")                                                      \
    X(COPY_ON_WRITE, "copy_on_write", "workers copy what they only read")                          \
    X(COMPILE, "compile", "recompilation fills the compile cache")                                 \
    X(GPU, "gpu", "GPU memory, not the host's")                                                    \
    X(SWAP, "swap", "memory swapped out hides the growth")                                         \
    X(THP, "thp", "transparent huge pages")                                                        \
    X(NO_GROWTH, "no_growth", "nothing grows")

#define X(sym, key, title) HYPOTHESIS_##sym,
enum hypothesis_id { HYPOTHESES(X) HYPOTHESIS_COUNT };
#undef X
const char *hypothesis_key(enum hypothesis_id id);
const char *hypothesis_title(enum hypothesis_id id);

/* CANNOT_TEST: what it would show in was not measured. */
enum hypothesis_word { RULED_OUT, UNLIKELY, POSSIBLE, LIKELY, NEARLY_CERTAIN, CANNOT_TEST };
extern const char *const hypothesis_words[]; /* by enum hypothesis_word; ended by NULL */

enum evidence_side { EVIDENCE_FOR, EVIDENCE_AGAINST, EVIDENCE_ABSENT };
enum { EVIDENCE_MAX = 8, EVIDENCE_TEXT = 240 };
struct evidence {
    enum evidence_side side;
    double weight;            /* log-odds it moves; 0 for ABSENT */
    char text[EVIDENCE_TEXT]; /* a sentence with the numbers it is about; names in it are raw */
};

struct hypothesis {
    enum hypothesis_id id;
    enum hypothesis_word word;
    double log_odds;
    double share; /* of what is to be explained, 0 to 1, if it is true */
    struct evidence evidence[EVIDENCE_MAX];
    size_t n_evidence;
    char decide[EVIDENCE_TEXT];    /* what would decide it; "" where it is decided */
    const struct growth_row *site; /* the call site it names; NULL */
};

/* What the hypotheses are about. */
struct question {
    const struct facts *f;
    const struct ledger *l;
    enum verdict_word word; /* on main; undecided where it was not judged */
    double growth;          /* of main, of what can leak: file cache is none, swap is; NAN */
    double tree_growth;     /* of the whole job, pages counted once; NAN */
    double total;           /* the larger of the two, at least 0: what is to be explained */
    double base;            /* what main had at the start */
    double room;            /* what the limit leaves above base; NAN: no limit is known */
    bool has_grown;  /* beyond noise; where it has ended, by as much as one would ask about */
    bool is_growing; /* and it has not ended, as far as is known */
};
void question_ask(const struct facts *f, const struct ledger *l, struct question *ret);

/* Tests all of them; ranked: the one that explains most of the growth first. From measured facts
 * only. */
void hypotheses_test(const struct question *q, struct hypothesis ret[HYPOTHESIS_COUNT]);
