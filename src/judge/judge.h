/* Ticks and marks of one job as judged series: one for each process, one for the whole tree with
 * its memory counted once, one for each GPU, one for each figure in bytes that the job sends. Fed
 * by the engine while the job runs and by a recording afterwards: the same readings in the same
 * order, so the same verdict. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quantity.h"
#include "mark/mark.h"
#include "proc/sample.h"
#include "verdict/tail.h"
#include "verdict/verdict.h"

struct err;
struct held;
struct judge;
struct trace_reader;

enum {
    JUDGE_LIVING = 256, /* living processes that are judged at one time, the largest */
    JUDGE_GONE = 64,    /* of those that have gone, the largest */
    JUDGE_GPUS = 16,
    JUDGE_FIGURES = 32, /* figures of the job's own */
};

struct judge_options {
    struct verdict_options verdict;
    uint64_t start_ns;          /* what is told in seconds counts from here */
    bool has_limit;             /* given by the user; else the one in the readings */
    struct quantity_size limit; /* a share is of the one in the readings */
    bool is_table;              /* of a CSV: there is no status to wait for */
    bool by_step;               /* its time is made up: what counts is the step */
    bool no_marks; /* as if the job had sent nothing: neither marks nor figures of its own */
};

/* A series under way and what was last said of it. */
struct judge_series {
    struct verdict_series series;
    struct tail tail; /* its newest readings: not judged yet, and never if it dies now */
    struct verdict_result result; /* valid when is_judged */
    struct verdict_limit limit;   /* it was judged against */
    uint64_t first_ns, last_ns;   /* of its readings; valid when there is one */
    uint64_t last_bytes;          /* the newest reading */
    bool has_first, has_ended, is_judged;
};

struct judge_process {
    uint32_t slot;
    struct process_id id;
    int32_t parent; /* pid of who started it */
    enum process_role role;
    uint16_t name_len;
    char name[PROCESS_COMM_MAX]; /* raw */
    uint64_t born_ns, died_ns;   /* died 0: lives */
    bool has_rss, has_status, has_unique;
    bool speaks; /* sends steps of its own, and follows only those */
    uint64_t rss_bytes, file_bytes, swap_bytes, unique_bytes, peak_bytes;
    uint64_t file_moved_bytes; /* between the last two readings of file_bytes */
    uint64_t then_bytes;       /* rss_bytes at the last of them */
    enum verdict_word told;
    struct judge_series *seat; /* NULL: not judged */
};

struct judge_gpu {
    uint32_t id;
    char name[96]; /* raw */
    uint64_t total_bytes, used_bytes;
    struct judge_series *seat; /* NULL: the job has never used it */
};

/* A figure that the job sends itself (marks of kind series) and whose name ends in "_bytes". */
struct judge_figure {
    uint32_t id;
    int32_t pid;   /* who sends it; 0 unknown */
    char name[64]; /* raw */
    bool is_gone;
    uint64_t gone_ns;          /* valid when it is */
    bool is_aside;             /* heard with another one, and no verdict of its own */
    struct judge_series *seat; /* NULL: a free place */
};

/* The tree's verdict. RESULT has its word, leak and confidence; the figures are those of the whole
 * where it agrees with the word, else of the process that decides, with the rates of others that
 * leak too. */
struct judge_tree {
    struct verdict_result result;
    struct verdict_tree_result of;
    const struct judge_process *grower; /* NULL: none grows */
    uint64_t first_ns;                  /* what RESULT counts its seconds from */
};

/* What was said of a segment when it was over. */
struct judge_earlier {
    bool is_there;
    uint32_t segment;
    struct verdict_result result;
};

int judge_new(const struct judge_options *options, struct judge **ret); /* 0, -EINVAL, -ENOMEM */
void judge_free(struct judge *j);                                       /* NULL is fine */

/* ---- feeding; out of memory a series is left out ---- */

void judge_process_event(struct judge *j, uint64_t t_ns, enum process_event_kind kind,
                         uint32_t slot, const struct process_info *info);
void judge_mark(struct judge *j, const struct mark *mark);
/* The job was started again (a note "segment" in a recording): what was before is another story. */
void judge_segment(struct judge *j);
/* The job has ended as END says ("end" of run.json, a note "end" in a recording). If it did so by
 * itself, with status 0 and neither stopped, signalled nor cancelled, growth that lasted to its end
 * is judged without waiting for more. */
void judge_end(struct judge *j, const json_t *end);
/* Has a job ended by itself that told nothing, neither marks nor figures, or of which something is
 * still open? Then it is worth asking the profiler: what its processes held by its samples, where
 * that grew to the end (LIST is copied). */
bool judge_wants_held(const struct judge *j);
void judge_hear_held(struct judge *j, const struct held *list, size_t count);
/* Any note of a recording, TEXT being JSON: segments, signals and the end are heard. */
void judge_note(struct judge *j, const char *kind, const char *text, size_t len);
/* The limit where no reading tells one: of a recording's header. */
void judge_limit(struct judge *j, uint64_t limit_bytes);
void judge_tick_begin(struct judge *j, uint64_t t_ns);
/* One entity at this tick, the machine first. NAME is of GPUs, and NAME@PID of series. */
void judge_sample(struct judge *j, enum sample_entity_kind kind, uint32_t id, const char *name,
                  const struct sample *sample);
void judge_tick_end(struct judge *j);

/* Feeds a recording from where it stands to its end, or to the last item at or before UNTIL_NS.
 * 0 or -errno. */
int judge_replay(struct judge *j, struct trace_reader *reader, uint64_t until_ns, struct err *err);

/* ---- asking ---- */

/* Works out all verdicts anew; what follows is of the last such moment. Readings of the last
 * TAIL_S seconds, and the newest in any case, do not count yet: if the process dies within that
 * time they were its exit. A mark that it hears ends the wait. */
void judge_update(struct judge *j);
const struct judge_tree *judge_tree(const struct judge *j); /* NULL: nothing was ever read */
uint32_t judge_segment_now(const struct judge *j);          /* from 0 */
const struct judge_earlier *judge_earlier_leak(const struct judge *j); /* NULL: none leaked */
/* The living that are judged and the largest of the gone; by peak, the largest first. */
size_t judge_process_count(const struct judge *j);
const struct judge_process *judge_process_at(const struct judge *j, size_t i);
/* How many there were besides: too short-lived or too small to judge. */
uint64_t judge_left_out(const struct judge *j);
const struct judge_gpu *judge_gpu_next(const struct judge *j, size_t *at); /* NULL at the end */
const struct judge_figure *judge_figure_next(const struct judge *j, size_t *at); /* likewise */
const char *judge_figure_label(const struct judge_figure *s);                    /* "heap (live)" */
uint64_t judge_start_ns(const struct judge *j);

/* Every word that is not what was last told, the tree's first (PROCESS NULL). */
typedef void judge_change_fn(void *user, const struct judge_process *process,
                             enum verdict_word from, const struct verdict_result *now);
void judge_changes(struct judge *j, judge_change_fn *fn, void *user);

/* The tree's verdict from those of its members and, where there is one, of the whole (else NULL):
 * the rule of struct judge_tree. Returns which result the figures are of: a member's index, or N.
 */
size_t judge_tree_result(const struct verdict_member *members, size_t n,
                         const struct verdict_result *whole, struct verdict_tree_result *ret_tree,
                         struct verdict_result *ret);
