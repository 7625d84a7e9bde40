/* The judge's inside: judge.c observes the run, judge_tick.c takes readings, judge_update.c makes
 * the verdicts; judge_end.c knows how the job ended, judge_figures.c the figures that the job
 * reports, judge_held.c live memory by the profiler, judge_turns.c replaced workers, judge_table.c
 * tables. */
#pragma once

#include "judge/judge.h"
#include "mark/mark_clock.h"
#include "verdict/tail.h"

enum {
    JUDGE_AGE_S = 3,             /* beyond the first few a process must live this long … */
    JUDGE_STATUS_PATIENCE_S = 3, /* … and its status may take so long to be read */
};

struct judge_series {
    struct verdict_series series;
    struct tail tail; /* its newest readings: not judged yet, and never if it dies now */
    struct verdict_result result; /* valid when is_judged */
    struct verdict_limit limit;   /* it was judged against */
    uint64_t first_ns, last_ns;   /* of its readings; valid when there is one */
    uint64_t last_bytes;          /* the newest reading */
    bool has_first, has_ended, is_judged;
};

/* What the judge knows of an entity: run_entity.observed. */
struct judge_entity {
    struct judge_series *series; /* NULL: not judged */
    enum verdict_word noted;     /* the last word that judge_changes passed on */
    /* of a process */
    bool has_rss, has_status, has_unique;
    bool sends_steps; /* and follows only its own */
    uint64_t rss_bytes, file_bytes, swap_bytes, unique_bytes, peak_bytes;
    uint64_t file_moved_bytes; /* between the last two readings of file_bytes */
    uint64_t status_rss_bytes; /* rss_bytes at the last of them */
    struct judge_rows *rows;   /* of a table; else NULL */
    /* of a figure */
    bool is_free_heap; /* used with the live heap, and no verdict of its own */
    uint64_t exit_ns;  /* of its process: the tick before */
};

/* Of a group of a table. */
struct judge_rows {
    struct mark_clock clock;
    uint64_t steps_per_epoch, examples, batch; /* last given to the series */
    char phase[32];                            /* cut */
    /* Marks that stand in the row of the oldest reading held, and share its fate. */
    struct verdict_mark held[MARK_CLOCK_MARKS];
    size_t n_held;
    int64_t held_ns;
};

struct judge_earlier {
    bool is_known;
    uint32_t segment;
    struct verdict_result result;
};

struct judge {
    struct judge_options options;
    struct run_observer observer;
    struct run *run;                  /* NULL before its first item, and once it has been freed */
    const struct run_entity **listed; /* by judge_update: processes by peak, the largest first */
    size_t listed_count, listed_cap;
    struct judge_series *whole;  /* the job's memory, every page counted once */
    struct judge_series *summed; /* each process counted in full; NULL where there is no whole */
    struct judge_tree tree;
    bool has_tree;
    uint32_t segment;                  /* how often the job was started again */
    struct judge_earlier earlier_leak; /* the newest, of the segments before this one */
    enum verdict_word noted;
    struct mark_clock clock;
    bool has_leader;
    uint32_t leader;     /* slot of the process whose steps are the job's */
    size_t series_count; /* of living processes */
    uint64_t begun_ns;   /* this segment's first tick */
    bool has_begun, was_signalled, has_ended, is_over, is_closed;
    struct held *held; /* of the profiler, on the run's clock */
    size_t held_count;
    bool has_limit, has_used;
    uint64_t limit_bytes, used_bytes;
    struct verdict_limit whole_limit; /* as it was at the whole's last reading */
    uint64_t tree_peak_bytes, hold_until_ns;
};

/* What is known of E; made at first sight. NULL: out of memory. */
struct judge_entity *judge_entity(struct run_entity *e);
/* What is known of E, as far as there is anything. */
static inline struct judge_entity *judge_known(const struct run_entity *e)
{
    return e->observed;
}
/* E's series, once it has a reading; else NULL. */
struct judge_series *judge_series_of(const struct run_entity *e);
/* The living processes, by slot. */
size_t judge_living(const struct judge *j, struct run_entity *const **ret);
/* The living processes, then the dead: NULL at the end, *AT begins at 0. */
struct run_entity *judge_next(const struct judge *j, enum run_kind kind, size_t *at);
struct run_entity *judge_find_pid(const struct judge *j, int32_t pid); /* living; NULL if none */

/* An empty series. To one that comes late its own first pass over the data begins with it. */
bool judge_series_restart(const struct judge *j, struct judge_series *s);
struct judge_series *judge_series_new(const struct judge *j); /* NULL: out of memory */
/* For a figure of a process that was there before it: the job's first pass is its own. */
struct judge_series *judge_series_new_figure(const struct judge *j);
void judge_series_feed(const struct judge *j, struct judge_series *s, uint64_t bytes);
/* The process, or the job, has died: the newest readings were its exit. */
void judge_series_exit(struct judge_series *s);
void judge_series_judge(struct judge_series *s, const struct verdict_limit *limit);
/* For what holds OWN_BYTES under the job's limit. */
struct verdict_limit judge_limit_for(const struct judge *j, uint64_t own_bytes);

void judge_tick(struct judge *j);
struct judge_entity *judge_group(const struct judge *j, struct run_entity *e);
void judge_row(struct judge *j, struct run_entity *e, int64_t t_ns, const struct csv_row *row);
void judge_row_mark(struct judge *j, struct run_entity *e, int64_t t_ns, const struct mark *mark);
void judge_table_update(struct judge *j);
void judge_note(struct judge *j, const char *kind, const char *text, size_t len);
/* P has no series any more: nothing may point at its result. */
void judge_unlist(struct judge *j, const struct run_entity *p);

void judge_figure_sample(struct judge *j, struct run_entity *e);
void judge_figures_judge(struct judge *j);
void judge_figures_exit(struct judge *j, int32_t pid);           /* their process has died */
const char *judge_figure_label(const struct run_entity *figure); /* "heap (live)" */
/* Where P reports its heap, the verdict on P follows it; false: it reports none. */
bool judge_figures_apply(const struct judge *j, const struct run_entity *p);
/* The same for the job, most of whose growth may be that of P. */
void judge_figures_apply_whole(const struct judge *j, const struct run_entity *p);

/* Where the profiler has samples of P, the verdict on P follows them. */
void judge_held_apply(const struct judge *j, const struct run_entity *p);

/* Of a job that has ended nothing will be known later on. */
void judge_forget_when(struct judge *j);
/* Has P been replaced by another that its parent started for the same? */
bool judge_was_replaced(const struct judge *j, const struct run_entity *p);
/* Did P replace others that have died, and neither hold more than they did nor live much longer?
 * Then its memory says nothing about the job: it will be released too. */
bool judge_is_replacement(const struct judge *j, const struct run_entity *p);
/* Was T_NS so shortly before now that it belongs to the end of a job that ends now? */
bool judge_is_just_now(const struct judge *j, uint64_t t_ns);
