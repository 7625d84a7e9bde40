/* A verdict for every process, GPU and figure of a run, and for the job as a whole. The judge
 * observes a run while it is filled: live by the engine, or from a recording. The same readings in
 * the same order give the same verdict. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quantity.h"
#include "run/run.h"
#include "verdict/verdict.h"

struct held;
struct judge;

enum {
    JUDGE_LIVING = 256, /* living processes that are judged at one time, the largest */
    JUDGE_DEAD = 64,    /* of the dead, the largest */
    JUDGE_FIGURES = 32, /* of those that the job reports */
};

struct judge_options {
    struct verdict_options verdict;
    bool has_limit;             /* given by the user; else the one in the readings */
    struct quantity_size limit; /* a share is of the one in the readings */
    bool no_marks;              /* as if the job had sent neither marks nor figures */
    uint64_t examples, batch;   /* of a table whose columns have none; 0: unknown */
};

/* The verdict on the job. RESULT has its word, leak and confidence; the rest is of the job's memory
 * where that agrees with the word, else of the process that decides, with the rates of others that
 * leak too. */
struct judge_tree {
    struct verdict_result result;
    struct verdict_tree_result of;
    const struct run_entity *grower; /* NULL: none grows */
    uint64_t first_ns;               /* RESULT counts its seconds from here */
};

int judge_new(const struct judge_options *options, struct judge **ret); /* 0, -EINVAL, -ENOMEM */
void judge_free(struct judge *j); /* after its run; NULL is fine */
/* For run_observe or run_read. Out of memory a series is left out. */
struct run_observer *judge_observer(struct judge *j);

/* The job has ended as in END ("end" of run.json, or the note of a recording). If it did so by
 * itself, with status 0 and neither stopped, signalled nor cancelled, growth that lasted to its end
 * is judged without waiting for more. */
void judge_end(struct judge *j, const json_t *end);
/* Whether samples of the profiler could help: the job has ended by itself, and either sent no marks
 * or is not decided. LIST has live memory that grew to the end; it is copied. */
bool judge_wants_held(const struct judge *j);
void judge_set_held(struct judge *j, const struct held *list, size_t count);

/* Works out all verdicts anew; what follows is of the last such moment. Readings of the last TAIL_S
 * seconds, and the newest in any case, do not count yet: if the process dies within that time they
 * were its exit. A mark ends the wait. */
void judge_update(struct judge *j);
const struct judge_tree *judge_tree(const struct judge *j); /* NULL: nothing was ever read */
/* Of a process, GPU or figure; NULL: it is not judged. */
const struct verdict_result *judge_result(const struct run_entity *e);

/* Every word that has changed since the last call, the job's first (PROCESS NULL). */
typedef void judge_change_fn(void *user, const struct run_entity *process, enum verdict_word from,
                             const struct verdict_result *now);
void judge_changes(struct judge *j, judge_change_fn *fn, void *user);
