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
struct jury;
struct trace_reader;

enum {
    JURY_SEATS = 256, /* living processes that are judged at one time, the largest */
    JURY_GONE = 64,   /* of those that have gone, the largest */
    JURY_GPUS = 16,
    JURY_SERIES = 32, /* figures of the job's own */
};

struct jury_options {
    struct verdict_options verdict;
    uint64_t start_ns;          /* what is told in seconds counts from here */
    bool has_limit;             /* given by the user; else the one in the readings */
    struct quantity_size limit; /* a share is of the one in the readings */
    bool is_table;              /* of a CSV: there is no status to wait for */
    bool by_step;               /* its time is made up: what counts is the step */
    bool no_marks; /* as if the job had sent nothing: neither marks nor figures of its own */
};

/* A series under way and what was last said of it. */
struct jury_seat {
    struct verdict_series series;
    struct tail tail; /* its newest readings: not judged yet, and never if it dies now */
    struct verdict_result result; /* valid when is_judged */
    struct verdict_limit limit;   /* it was judged against */
    uint64_t first_ns, last_ns;   /* of its readings; valid when there is one */
    uint64_t last_bytes;          /* the newest reading */
    bool has_first, has_ended, is_judged;
};

struct jury_process {
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
    struct jury_seat *seat; /* NULL: not judged */
};

struct jury_gpu {
    uint32_t id;
    char name[96]; /* raw */
    uint64_t total_bytes, used_bytes;
    struct jury_seat *seat; /* NULL: the job has never used it */
};

/* A figure that the job sends itself (marks of kind series) and whose name ends in "_bytes". */
struct jury_series {
    uint32_t id;
    int32_t pid;   /* who sends it; 0 unknown */
    char name[64]; /* raw */
    bool is_gone;
    uint64_t gone_ns;       /* valid when it is */
    bool is_aside;          /* heard with another one, and no verdict of its own */
    struct jury_seat *seat; /* NULL: a free place */
};

/* The tree's verdict. RESULT has its word, leak and confidence; the figures are those of the whole
 * where it agrees with the word, else of the process that decides, with the rates of others that
 * leak too. */
struct jury_tree {
    struct verdict_result result;
    struct verdict_tree_result of;
    const struct jury_process *grower; /* NULL: none grows */
    uint64_t first_ns;                 /* what RESULT counts its seconds from */
};

/* What was said of a segment when it was over. */
struct jury_earlier {
    bool is_there;
    uint32_t segment;
    struct verdict_result result;
};

int jury_new(const struct jury_options *options, struct jury **ret); /* 0, -EINVAL, -ENOMEM */
void jury_free(struct jury *j);                                      /* NULL is fine */

/* ---- feeding; out of memory a series is left out ---- */

void jury_process_event(struct jury *j, uint64_t t_ns, enum process_event_kind kind, uint32_t slot,
                        const struct process_info *info);
void jury_mark(struct jury *j, const struct mark *mark);
/* The job was started again (a note "segment" in a recording): what was before is another story. */
void jury_segment(struct jury *j);
/* The job has ended as END says ("end" of run.json, a note "end" in a recording). If it did so by
 * itself, with status 0 and neither stopped, signalled nor cancelled, growth that lasted to its end
 * is judged without waiting for more. */
void jury_end(struct jury *j, const json_t *end);
/* Has a job ended by itself that told nothing, neither marks nor figures, or of which something is
 * still open? Then it is worth asking the profiler: what its processes held by its samples, where
 * that grew to the end (LIST is copied). */
bool jury_wants_held(const struct jury *j);
void jury_hear_held(struct jury *j, const struct held *list, size_t count);
/* Any note of a recording, TEXT being JSON: segments, signals and the end are heard. */
void jury_note(struct jury *j, const char *kind, const char *text, size_t len);
/* The limit where no reading tells one: of a recording's header. */
void jury_limit(struct jury *j, uint64_t limit_bytes);
void jury_tick_begin(struct jury *j, uint64_t t_ns);
/* One entity at this tick, the machine first. NAME is of GPUs, and NAME@PID of series. */
void jury_sample(struct jury *j, enum sample_entity_kind kind, uint32_t id, const char *name,
                 const struct sample *sample);
void jury_tick_end(struct jury *j);

/* Feeds a recording from where it stands to its end, or to the last item at or before UNTIL_NS.
 * 0 or -errno. */
int jury_replay(struct jury *j, struct trace_reader *reader, uint64_t until_ns, struct err *err);

/* ---- asking ---- */

/* Works out all verdicts anew; what follows is of the last such moment. Readings of the last
 * TAIL_S seconds, and the newest in any case, do not count yet: if the process dies within that
 * time they were its exit. A mark that it hears ends the wait. */
void jury_judge(struct jury *j);
const struct jury_tree *jury_tree(const struct jury *j); /* NULL: nothing was ever read */
uint32_t jury_segment_now(const struct jury *j);         /* from 0 */
const struct jury_earlier *jury_earlier_leak(const struct jury *j); /* NULL: none leaked */
/* The living that are judged and the largest of the gone; by peak, the largest first. */
size_t jury_process_count(const struct jury *j);
const struct jury_process *jury_process_at(const struct jury *j, size_t i);
/* How many there were besides: too short-lived or too small to judge. */
uint64_t jury_left_out(const struct jury *j);
const struct jury_gpu *jury_gpu_next(const struct jury *j, size_t *at);       /* NULL at the end */
const struct jury_series *jury_series_next(const struct jury *j, size_t *at); /* likewise */
const char *jury_series_label(const struct jury_series *s);                   /* "heap (live)" */
uint64_t jury_start_ns(const struct jury *j);

/* Every word that is not what was last told, the tree's first (PROCESS NULL). */
typedef void jury_change_fn(void *user, const struct jury_process *process, enum verdict_word from,
                            const struct verdict_result *now);
void jury_changes(struct jury *j, jury_change_fn *fn, void *user);

/* The tree's verdict from those of its members and, where there is one, of the whole (else NULL):
 * the rule of struct jury_tree. Returns which result the figures are of: a member's index, or N. */
size_t jury_tree_result(const struct verdict_member *members, size_t n,
                        const struct verdict_result *whole, struct verdict_tree_result *ret_tree,
                        struct verdict_result *ret);
