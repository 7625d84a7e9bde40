/* Internals of the judge. judge.c observes the run, judge_tick.c adds readings, judge_update.c
 * makes the verdicts, judge_end.c handles the end of the job, judge_figures.c judges reported
 * figures, judge_model.c combines all evidence, judge_replaced.c recognizes replaced workers, and
 * judge_table.c judges tables. */
#pragma once

#include "judge/judge.h"
#include "mark/mark_clock.h"
#include "verdict/tail.h"

enum {
    JUDGE_AGE_S = 3, /* processes that exit before this age in seconds are not judged */
    /* longest wait in seconds for the first reading of a new process's status */
    JUDGE_STATUS_PATIENCE_S = 3,
};

struct judge_series {
    struct verdict_series series;
    /* Newest readings, which are not judged yet and will be dropped if they turn out to be part of
     * an exit. */
    struct tail tail;
    struct verdict_result result; /* valid if is_judged */
    struct verdict_limit limit;   /* limit that the series was judged against */
    uint64_t first_ns, last_ns;   /* times of the first and newest reading; valid if has_first */
    uint64_t last_bytes;          /* value of the newest reading */
    /* Time since which a leak has been probable in the running job, or 0 if it is not probable. */
    uint64_t probable_since_ns;
    bool has_first, has_ended, is_judged;
};

/* The judge's state for an entity, stored in run_entity.observed. */
struct judge_entity {
    struct judge_series *series; /* NULL if not judged */
    enum verdict_word noted;     /* verdict word that judge_changes last reported */
    /* processes only */
    bool has_rss, has_status, has_unique;
    bool sends_steps; /* true if the process reports steps; then only its own marks apply to it */
    uint64_t rss_bytes, file_bytes, swap_bytes, unique_bytes, peak_bytes;
    uint64_t file_moved_bytes; /* change of file_bytes between its last two readings */
    uint64_t status_rss_bytes; /* rss_bytes at the last reading of file_bytes */
    struct judge_rows *rows;   /* rows of a table; NULL for other inputs */
    unsigned gpu_field;        /* for a GPU, the sampled field that is judged */
    /* figures only */
    /* True if the figure is only evidence for the verdict on its process and has no verdict of its
     * own. */
    bool is_evidence;
    /* time of the last tick before the exit of the process that reports the figure */
    uint64_t exit_ns;
};

/* State of one group of table rows. */
struct judge_rows {
    struct mark_clock clock;
    uint64_t steps_per_epoch, examples, batch; /* last values passed to the series */
    char phase[32];                            /* current phase, truncated */
    /* Marks of the row whose reading is the oldest one that is held back. They are passed to the
     * series or dropped together with that reading. */
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
    /* The observed run; NULL before the first item and after the run was freed. */
    struct run *run;
    const struct run_entity **listed; /* processes by peak, largest first; set by judge_update */
    size_t listed_count, listed_cap;
    struct judge_series *whole; /* memory of the job with every page counted once */
    struct judge_series
        *summed; /* memory of the job summed over its processes; NULL if WHOLE is NULL */
    struct judge_tree tree;
    struct verdict_result own_result; /* verdict on the job in this segment alone */
    bool has_tree;
    uint32_t segment;                  /* number of restarts of the job */
    struct judge_earlier earlier_leak; /* most recent leak in an earlier segment */
    struct judge_earlier longest;      /* the earlier segment with the most samples */
    enum verdict_word noted;
    struct mark_clock clock;
    bool has_leader;
    uint32_t leader;     /* slot of the process whose steps are used for the whole job */
    size_t series_count; /* number of series of living processes */
    uint64_t begun_ns;   /* first tick of this segment */
    bool has_begun, was_signalled, has_ended, is_over, is_closed;
    struct held *held; /* readings of the heap profiler, with times on the run's clock */
    size_t held_count;
    bool has_limit, has_used;
    uint64_t limit_bytes, used_bytes;
    struct verdict_limit whole_limit; /* limit at the newest reading of WHOLE */
    uint64_t tree_peak_bytes, hold_until_ns;
};

/* Returns the judge's state for E, created on first use, or NULL if out of memory. */
struct judge_entity *judge_entity(struct run_entity *e);
/* Returns the judge's state for E, or NULL if it has none. */
static inline struct judge_entity *judge_known(const struct run_entity *e)
{
    return e->observed;
}
/* Returns E's series if it has a reading, else NULL. */
struct judge_series *judge_series_of(const struct run_entity *e);
/* Sets RET to the living processes, ordered by slot, and returns their number. */
size_t judge_living(const struct judge *j, struct run_entity *const **ret);
/* Iterates over the living entities of KIND, then over the exited ones. *AT starts at 0. Returns
 * NULL at the end. */
struct run_entity *judge_next(const struct judge *j, enum run_kind kind, size_t *at);

/* Empties a series. Its first epoch begins now. */
bool judge_series_restart(const struct judge *j, struct judge_series *s);
/* Creates a series; returns NULL if out of memory. */
struct judge_series *judge_series_new(const struct judge *j);
/* Creates a series for a figure that appears later than its process. If the job is still in its
 * first epoch, the series takes over the start of that epoch. */
struct judge_series *judge_series_new_figure(const struct judge *j);
void judge_series_feed(const struct judge *j, struct judge_series *s, uint64_t bytes);
/* Ends a series whose process or job has exited. Drops the newest readings, which were part of the
 * exit. */
void judge_series_exit(struct judge_series *s);
void judge_series_judge(struct judge_series *s, const struct verdict_limit *limit);
/* Returns the limit for a series. OWN_BYTES is the part of the job's memory that the series
 * measures; all other used memory counts as memory of others. */
struct verdict_limit judge_limit_for(const struct judge *j, uint64_t own_bytes);

void judge_tick(struct judge *j);
struct judge_entity *judge_group(const struct judge *j, struct run_entity *e);
void judge_row(struct judge *j, struct run_entity *e, int64_t t_ns, const struct csv_row *row);
void judge_row_mark(struct judge *j, struct run_entity *e, int64_t t_ns, const struct mark *mark);
void judge_table_update(struct judge *j);
void judge_note(struct judge *j, const char *kind, const char *text, size_t len);
/* Removes all pointers to the verdict on P, whose series has been dropped. */
void judge_unlist(struct judge *j, const struct run_entity *p);

void judge_figure_sample(struct judge *j, struct run_entity *e);
void judge_figures_judge(struct judge *j);
/* Ends the figures of process PID, which has exited. */
void judge_figures_exit(struct judge *j, int32_t pid);
/* Returns the display name of a figure, such as "heap (live)". */
const char *judge_figure_label(const struct run_entity *figure);
/* Returns the series of the live heap that P reports, or NULL. */
struct judge_series *judge_live_heap(const struct judge *j, const struct run_entity *p);
/* Returns the fraction, 0 to 1, of P's growth that is outside the heap reported by P; 0 if
 * unknown. */
double judge_outside_heap(const struct judge *j, const struct run_entity *p);
/* Revises the verdict on P using the heap figures that P reports, if any. */
void judge_figures_apply(const struct judge *j, const struct run_entity *p);
/* Revises the verdict on the job using the heap figures that process P reports. They matter for the
 * job if P causes most of its growth. */
void judge_figures_apply_whole(const struct judge *j, const struct run_entity *p);

/* Removes from all forecasts the time at which the verdict will be known, because the job has
 * ended. */
void judge_drop_forecasts(struct judge *j);
/* Returns true if P has exited and its parent started another process for the same purpose. */
bool judge_was_replaced(const struct judge *j, const struct run_entity *p);
/* Returns true if P is one of a series of similar processes that replace each other: P replaced
 * others, does not use more memory and has not lived much longer than they did. Another process
 * will then replace P as well, so P's memory will be released, and its growth is not evidence about
 * the job. */
bool judge_is_replacement(const struct judge *j, const struct run_entity *p);
/* Returns true if T_NS is so recent that it would be part of the end of the job if the job ended
 * now. */
bool judge_is_just_now(const struct judge *j, uint64_t t_ns);
