/* A verdict for every process, GPU and figure of a run, and for the job as a whole. The judge
 * observes a run while it is filled, live by the engine or from a recording. The same readings in
 * the same order give the same verdicts. */
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
    JUDGE_LIVING = 256, /* living processes judged at the same time: the largest */
    JUDGE_DEAD = 64,    /* exited processes whose verdict is kept: the largest */
    JUDGE_FIGURES = 32, /* figures reported by the job that are judged */
};

struct judge_options {
    struct verdict_options verdict;
    bool has_limit;             /* given by the user; otherwise the limit in the readings is used */
    struct quantity_size limit; /* a percentage is relative to the limit in the readings */
    bool no_marks;              /* ignore marks and figures */
    uint64_t examples, batch;   /* for a table without such columns; 0: unknown */
};

/* The verdict on the job. RESULT has its word, leak and confidence. Its other fields describe the
 * memory of the whole job if the verdict on that has the same word; otherwise those of the process
 * that decides, plus the rates of other leaking processes. */
struct judge_tree {
    struct verdict_result result;
    struct verdict_tree_result of;
    const struct run_entity *grower; /* NULL: no process grows */
    uint64_t first_ns;               /* start of the seconds in RESULT */
};

int judge_new(const struct judge_options *options, struct judge **ret); /* 0, -EINVAL, -ENOMEM */
void judge_free(struct judge *j); /* call it after the run is freed; NULL is fine */
/* For run_observe or run_read. A series for which there is no memory is left out. */
struct run_observer *judge_observer(struct judge *j);

/* The job ended as described by END ("end" of run.json, or the note in a recording). If it ended
 * by itself (status 0, not stopped, signalled or cancelled), growth that lasted to the end is
 * decided. */
void judge_end(struct judge *j, const json_t *end);
bool judge_is_over(const struct judge *j); /* the job ended by itself */
/* The heap profiler's readings of each process so far. LIST is copied. */
void judge_set_held(struct judge *j, const struct held *list, size_t count);

/* Updates all verdicts; the getters below return the result. Readings of the last TAIL_S seconds,
 * and always the newest, do not count yet: if the process exits now, they are part of its exit. A
 * mark makes them count at once. */
void judge_update(struct judge *j);
const struct judge_tree *judge_tree(const struct judge *j); /* NULL: no readings */
bool judge_has_verdict(const struct judge *j);              /* on the job; false: no reading yet */
/* The verdict on a process, GPU or figure; NULL: not judged. */
const struct verdict_result *judge_result(const struct run_entity *e);

/* Calls FN for every word that changed since the last call, the job's first (PROCESS is NULL). */
typedef void judge_change_fn(void *user, const struct run_entity *process, enum verdict_word from,
                             const struct verdict_result *now);
void judge_changes(struct judge *j, judge_change_fn *fn, void *user);
