/* The judge's inside, shared by judge.c (who is judged), judge_tick.c (on which readings) and
 * judge_update.c (what comes of it); judge_end.c hears how the job ended, judge_figure.c has the
 * job's own figures, judge_held.c what the profiler knows of one that sent none, and judge_turns.c
 * tells who gives way to the next. */
#pragma once

#include "judge/judge.h"
#include "mark/mark_clock.h"

enum {
    JUDGE_SEAT_AGE_S = 3,        /* beyond the first few a process must live this long … */
    JUDGE_STATUS_PATIENCE_S = 3, /* … and its status may take so long to be read */
};

struct judge {
    struct judge_options options;
    struct judge_process **living; /* by slot */
    size_t count, cap, hint;
    struct judge_process *gone[JUDGE_GONE];
    size_t gone_count;
    const struct judge_process **listed; /* by judge_update */
    size_t listed_count;
    struct judge_gpu gpu[JUDGE_GPUS];
    struct judge_figure series[JUDGE_FIGURES];
    struct judge_series *whole;
    struct judge_series
        *apart; /* the same with each process in full; NULL where there is no whole */
    struct judge_tree tree;
    bool has_tree;
    uint32_t segment;                  /* how often the job was started again */
    struct judge_earlier earlier_leak; /* the newest, of the segments before this one */
    enum verdict_word told;
    struct mark_clock clock;
    bool has_leader;
    uint32_t leader; /* slot of the process whose steps are the job's */
    size_t seats;
    uint64_t seen;
    /* the machine */
    uint64_t tick_ns, first_tick_ns, begun_ns; /* begun: this segment's first */
    bool is_ticked, has_begun, was_signalled, has_ended, is_over;
    struct held *held; /* of the profiler */
    size_t held_count;
    bool has_low, has_charge, has_limit, has_used;
    uint64_t low_bytes, charge_bytes, limit_bytes, used_bytes;
    struct verdict_limit whole_limit; /* as it was at the whole's last reading */
    uint64_t tree_peak_bytes, hold_until_ns;
};

/* An empty series. To one that comes late its own first pass over the data begins with it. */
bool judge_series_restart(const struct judge *j, struct judge_series *s);
struct judge_series *judge_series_new(const struct judge *j); /* NULL: out of memory */
/* For a figure of a process that was there before it: the job's first pass is its own. */
struct judge_series *judge_series_new_figure(const struct judge *j);
void judge_series_feed(const struct judge *j, struct judge_series *s, uint64_t bytes);
/* The process, or the job, has died: the newest readings were its exit. */
void judge_series_exit(struct judge_series *s);
void judge_series_judge(struct judge_series *s, const struct verdict_limit *limit);
/* What somebody who holds OWN_BYTES has to keep below. */
struct verdict_limit judge_limit_for(const struct judge *j, uint64_t own_bytes);
void judge_figure_sample(struct judge *j, uint32_t id, const char *full,
                         const struct sample *sample);
void judge_figure_judge(struct judge *j);
void judge_figure_die(struct judge *j, int32_t pid); /* whose figures they are is gone */
void judge_figure_clear(struct judge *j);
/* Of a job that has ended nothing will be known later on. */
void judge_forget_when(struct judge *j);
/* What the profiler has of P is heard, once P itself has been judged. */
void judge_held_tell(const struct judge *j, struct judge_process *p);
/* What P tells of its heap is heard, once P itself has been judged; false if it tells nothing. */
bool judge_figure_tell(const struct judge *j, struct judge_process *p);
/* The same for the whole tree, most of whose growth may be that of P; it has been judged. */
void judge_figure_tell_whole(const struct judge *j, const struct judge_process *p);
struct judge_process *judge_find(struct judge *j, uint32_t slot); /* living; NULL if none */
/* Has P given way to another that its parent started for the same? What it held is given back. */
bool judge_was_replaced(const struct judge *j, const struct judge_process *p);
/* Did P follow on others that have gone, and neither hold more than they did nor live much longer?
 * Then what it takes says nothing about the job: it will be given back too. */
bool judge_takes_turns(const struct judge *j, const struct judge_process *p);
/* Was T_NS so shortly before now that it belongs to the end of a job that ends now? */
bool judge_is_just_now(const struct judge *j, uint64_t t_ns);
/* Did P live, or go so shortly before now that it went with the job? */
bool judge_just_went(const struct judge *j, const struct judge_process *p);
/* P's result is gone: nothing that was listed may point at it. */
void judge_unlist(struct judge *j, const struct judge_process *p);
