/* The jury's inside, shared by jury.c (who is judged), jury_tick.c (on which readings) and
 * jury_judge.c (what comes of it); jury_end.c hears how the job ended, jury_series.c has the job's
 * own figures, jury_held.c what the profiler knows of one that sent none, and jury_turns.c tells
 * who gives way to the next. */
#pragma once

#include "engine/jury.h"
#include "profile/mark_clock.h"

enum {
    JURY_SEAT_AGE_S = 3,        /* beyond the first few a process must live this long … */
    JURY_STATUS_PATIENCE_S = 3, /* … and its status may take so long to be read */
};

struct jury {
    struct jury_options options;
    struct jury_process **living; /* by slot */
    size_t count, cap, hint;
    struct jury_process *gone[JURY_GONE];
    size_t gone_count;
    const struct jury_process **listed; /* by jury_judge */
    size_t listed_count;
    struct jury_gpu gpu[JURY_GPUS];
    struct jury_series series[JURY_SERIES];
    struct jury_seat *whole;
    struct jury_seat *apart; /* the same with each process in full; NULL where there is no whole */
    struct jury_tree tree;
    bool has_tree;
    uint32_t segment;                 /* how often the job was started again */
    struct jury_earlier earlier_leak; /* the newest, of the segments before this one */
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
bool jury_seat_restart(const struct jury *j, struct jury_seat *s);
struct jury_seat *jury_seat_new(const struct jury *j); /* NULL: out of memory */
/* For a figure of a process that was there before it: the job's first pass is its own. */
struct jury_seat *jury_seat_new_figure(const struct jury *j);
void jury_seat_feed(const struct jury *j, struct jury_seat *s, uint64_t bytes);
/* The process, or the job, has died: the newest readings were its exit. */
void jury_seat_die(struct jury_seat *s);
void jury_seat_judge(struct jury_seat *s, const struct verdict_limit *limit);
/* What somebody who holds OWN_BYTES has to keep below. */
struct verdict_limit jury_limit_for(const struct jury *j, uint64_t own_bytes);
void jury_series_sample(struct jury *j, uint32_t id, const char *full, const struct sample *sample);
void jury_series_judge(struct jury *j);
void jury_series_die(struct jury *j, int32_t pid); /* whose figures they are is gone */
void jury_series_clear(struct jury *j);
/* Of a job that has ended nothing will be known later on. */
void jury_forget_when(struct jury *j);
/* What the profiler has of P is heard, once P itself has been judged. */
void jury_held_tell(const struct jury *j, struct jury_process *p);
/* What P tells of its heap is heard, once P itself has been judged; false if it tells nothing. */
bool jury_series_tell(const struct jury *j, struct jury_process *p);
/* The same for the whole tree, most of whose growth may be that of P; it has been judged. */
void jury_series_tell_whole(const struct jury *j, const struct jury_process *p);
struct jury_process *jury_find(struct jury *j, uint32_t slot); /* living; NULL if none */
/* Has P given way to another that its parent started for the same? What it held is given back. */
bool jury_was_replaced(const struct jury *j, const struct jury_process *p);
/* Did P follow on others that have gone, and neither hold more than they did nor live much longer?
 * Then what it takes says nothing about the job: it will be given back too. */
bool jury_takes_turns(const struct jury *j, const struct jury_process *p);
/* Was T_NS so shortly before now that it belongs to the end of a job that ends now? */
bool jury_is_just_now(const struct jury *j, uint64_t t_ns);
/* Did P live, or go so shortly before now that it went with the job? */
bool jury_just_went(const struct jury *j, const struct jury_process *p);
/* P's result is gone: nothing that was listed may point at it. */
void jury_unlist(struct jury *j, const struct jury_process *p);
