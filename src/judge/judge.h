/* Judges every process, GPU and figure (a metric that the job reports) of a run, and the job as a
 * whole. The judge observes a run while readings are added to it, either live by the engine or from
 * a recording. The same readings in the same order give the same verdicts. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quantity.h"
#include "run/run.h"
#include "verdict/verdict.h"

struct held;
struct held_window;
struct judge;

enum {
    /* maximum number of living processes judged at the same time; the largest are chosen */
    JUDGE_LIVING = 256,
    JUDGE_DEAD = 64,    /* maximum number of exited processes with a kept verdict, largest first */
    JUDGE_FIGURES = 32, /* maximum number of reported figures that are judged */
};

struct judge_options {
    struct verdict_options verdict;
    /* True if the user set a limit; otherwise the limit in the readings is used. */
    bool has_limit;
    struct quantity_size limit; /* a percentage refers to the limit in the readings */
    bool no_marks;              /* true if marks and figures are ignored */
    /* Number of examples per epoch, and batch size, for a table without columns for them; 0 if
     * unknown. */
    uint64_t examples, batch;
};

/* The verdict on the job. Word, leak and confidence in RESULT are always those of the job. If the
 * verdict on the memory of the whole job has the same word, the other fields of RESULT come from
 * it. Otherwise they come from the verdict on the deciding process, to which the rates of other
 * leaking processes are added. */
struct judge_tree {
    struct verdict_result result;
    struct verdict_tree_result of;
    const struct run_entity *grower; /* the fastest-growing process, or NULL if none grows */
    /* Time in nanoseconds from which the seconds in RESULT are counted. */
    uint64_t first_ns;
};

/* Returns 0, -EINVAL or -ENOMEM. */
int judge_new(const struct judge_options *options, struct judge **ret);
void judge_free(struct judge *j); /* call judge_free after the run is freed; J may be NULL */
/* Returns the observer for run_observe or run_read. If memory for a series cannot be allocated,
 * that series is skipped. */
struct run_observer *judge_observer(struct judge *j);

/* Handles the end of the job as described by END, which is the member "end" of run.json or the end
 * note of a recording. If the job ended by itself (status 0, not stopped, signalled or cancelled),
 * growth that lasted to the end gets a final verdict. */
void judge_end(struct judge *j, const json_t *end);
bool judge_is_over(const struct judge *j); /* true if the job ended by itself */
/* Sets the heap profiler's readings so far, one entry per process. LIST is copied. */
void judge_set_held(struct judge *j, const struct held *list, size_t count);
/* Returns the window for reading heap profiles: it ends at UNTIL_NS, and its first epoch is that of
 * the job. */
struct held_window judge_held_window(const struct judge *j, uint64_t until_ns);
/* Reads the heap profiles in the run folder PATH, up to UNTIL_NS (CLOCK_MONOTONIC). */
void judge_read_held(struct judge *j, const char *path, uint64_t until_ns);

/* Duration of a probable leak after which a running job without a known epoch is judged as
 * leaking. */
enum { JUDGE_LASTING_S = 10 };
/* Returns true if a leak has just become probable. The caller can then confirm it at once: BEFORE
 * must be another judge of the same run that has read only the items until JUDGE_LASTING_S ago. If
 * the leak was probable for BEFORE too, the next judge_update after judge_confirm judges the job as
 * leaking. */
bool judge_awaits_confirmation(const struct judge *j);
void judge_confirm(struct judge *j, const struct judge *before);

/* Updates all verdicts that the functions below return. Readings of the last TAIL_S seconds, and
 * always the newest one, are not used yet: if the process exited now, they would be part of its
 * exit. A mark shows that the process still works; all readings before the mark are used at
 * once. */
void judge_update(struct judge *j);
/* Returns NULL if there are no readings. */
const struct judge_tree *judge_tree(const struct judge *j);
/* Returns true once the job has been read and judged. */
bool judge_has_verdict(const struct judge *j);
/* Returns the verdict on a process, GPU or figure, or NULL if it is not judged. */
const struct verdict_result *judge_result(const struct run_entity *e);

/* Calls FN for every verdict word that changed since the last call. The job comes first, with
 * PROCESS set to NULL. */
typedef void judge_change_fn(void *user, const struct run_entity *process, enum verdict_word from,
                             const struct verdict_result *now);
void judge_changes(struct judge *j, judge_change_fn *fn, void *user);
