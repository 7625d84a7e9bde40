/* Decides when and how the guard acts: receives readings and returns the next action. Uses no
 * clock, no I/O and no allocation.
 *
 *   calm → warned → requested (a checkpoint) → stopping (SIGTERM) → killed
 *
 * A checkpoint is requested when the limit will be reached in less time than a step, a checkpoint
 * and a margin take (forecast, pace), when headroom is small (level), when processes stall on
 * memory (pressure), or when a restart is due. The guard waits for the acknowledgement as long as
 * memory permits. It sends SIGTERM once the checkpoint is written and the trigger is still active,
 * or when headroom falls to the SIGTERM line. A job whose memory is steady near the limit is left
 * alone. The guard is calm again when no trigger was active for LADDER_CALM_S.
 * docs/reference/guard.md explains the thresholds.
 *
 * Each GPU has its own gauge. A GPU has no kill line: if it is full, no process is killed, only an
 * allocation fails, and many healthy jobs fill the memory of their GPU. A GPU without a limit set
 * by the user has no SIGTERM line either: only the forecast stops the job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "guard/timing.h"

enum {
    LADDER_CALM_S = 10,
    LADDER_AGAIN_S = 60, /* minimum time between two requests by the same trigger */
    LADDER_PACE_S = 6,   /* minimum duration of growth for LADDER_BY_PACE, in seconds */
    LADDER_WHY_MAX = 240,
    LADDER_HOST_GAUGES = 2,
    LADDER_GPUS = 16,
    LADDER_GAUGES = LADDER_HOST_GAUGES + LADDER_GPUS
};

enum ladder_rung { LADDER_CALM, LADDER_WARNED, LADDER_REQUESTED, LADDER_STOPPING, LADDER_KILLED };

/* Triggers, from the weakest to the strongest. */
enum ladder_trigger {
    LADDER_BY_NOTHING,
    /* like LADDER_BY_FORECAST, but based on growth in the last seconds, and only near the limit */
    LADDER_BY_PACE,
    LADDER_BY_PRESSURE, /* memory pressure (PSI) */
    LADDER_BY_FORECAST, /* the verdict's forecast of the time until the limit is reached */
    LADDER_BY_LEVEL,
    LADDER_BY_PLAN, /* --restart-every */
    LADDER_TRIGGERS
};
const char *ladder_trigger_name(enum ladder_trigger trigger);

/* Settings of the guard. A value of 0 means the default. */
struct ladder_rules {
    /* headroom below which the level trigger becomes active (default: ladder_default_reserve) */
    uint64_t reserve_bytes;
    /* safety margin in seconds, added to the duration of a step and a checkpoint (default 2) */
    double margin_s;
    /* assumed duration of a checkpoint in seconds until one has been measured (default 10) */
    double checkpoint_s;
    double wait_s;  /* maximum wait for an acknowledgement in seconds (default 600) */
    double grace_s; /* seconds between SIGTERM and the kill (default 10) */
    /* the pressure trigger's threshold: the share of time in which all processes stall on memory, 0
     * to 1 (default 0.3) */
    double pressure;
    /* disabled triggers; no_forecast also disables LADDER_BY_PACE */
    bool no_forecast, no_level, no_pressure;
    bool no_warn, no_checkpoint, no_term, no_kill; /* disabled rungs */
};
/* The default reserve: 5 % of the limit, but at least 64 MiB and at most 4 GiB, and never more than
 * a fifth of the limit. */
uint64_t ladder_default_reserve(uint64_t limit_bytes);
/* Two thresholds for headroom: below the first, SIGTERM is sent even without an acknowledged
 * checkpoint; below the second, the reflex kills the job. They are one half and one eighth of the
 * reserve. While a checkpoint is being written, SIGTERM is delayed until headroom is a quarter of
 * the reserve. */
uint64_t ladder_term_headroom(uint64_t reserve_bytes);
uint64_t ladder_kill_headroom(uint64_t reserve_bytes);

/* One limit, and the memory in use that counts against it. */
struct ladder_gauge {
    bool known;
    uint64_t limit_bytes, used_bytes, room_bytes;
    double pace_bytes_per_s; /* growth rate over the last half second */
    /* GPUs only: */
    bool is_card; /* the limit is the total memory of the GPU, not a limit that the user set */
    /* true if the verdict on this GPU forecasts that the limit will be reached */
    bool forecast_known;
    double forecast_s; /* shortest time in which the limit may be reached */
};

enum ladder_ack { LADDER_NO_ACK, LADDER_ACK_STARTED, LADDER_ACK_DONE, LADDER_ACK_FAILED };

struct ladder_input {
    uint64_t now_ns;
    /* the gauges of host memory, then one gauge per GPU in the order of device indices */
    struct ladder_gauge gauge[LADDER_GAUGES];
    bool forecast_known; /* the verdict forecasts that the host's limit will be reached */
    double forecast_s;   /* shortest time in which the host's limit may be reached */
    bool pressure_known;
    double pressure;     /* share of the last seconds in which all processes stalled on memory */
    bool plan_due;       /* --restart-every: a restart is due */
    bool can_request;    /* a checkpoint can be requested */
    enum ladder_ack ack; /* answer to the newest request; ignored at the tick of the request */
    bool is_killed;      /* the reflex has killed the job */
};

enum ladder_act {
    LADDER_DO_NOTHING,
    LADDER_DO_WARN,
    LADDER_DO_REQUEST,
    LADDER_DO_TERM,
    LADDER_DO_KILL,
    LADDER_DO_STAND_DOWN
};
const char *ladder_act_name(enum ladder_act act);

enum { LADDER_PAST = 16 };
struct ladder {
    /* a copy of the rules with all defaults filled in except the reserve's */
    struct ladder_rules rules;
    enum ladder_rung rung;
    /* the strongest trigger since the ladder was last calm, or the one that stopped the job */
    enum ladder_trigger trigger;
    uint64_t begun_ns; /* start time of the current rung */
    /* private */
    /* when the last active trigger ended; 0 while a trigger is active */
    uint64_t over_ns;
    uint64_t requested_ns; /* when a checkpoint was requested in this episode, or 0 */
    /* estimated time until SIGTERM at the moment of the checkpoint request */
    double requested_left_s;
    uint64_t done_ns; /* when the checkpoint was written, or 0 */
    unsigned holding; /* bit mask of active triggers */
    /* bit mask of triggers that have been active since the ladder was last calm */
    unsigned episode;
    unsigned unneeded; /* number of checkpoints that turned out to be unnecessary */
    uint64_t quiet_until_ns[LADDER_TRIGGERS];
    /* per gauge: memory in use at the last request or checkpoint */
    uint64_t mark_bytes[LADDER_GAUGES];
    bool is_steady[LADDER_GAUGES];           /* true if memory was steady within the reserve */
    uint64_t steady_headroom[LADDER_GAUGES]; /* headroom at which memory was steady */
    /* growth rate in bytes/s if it was sustained for LADDER_PACE_S, else 0 */
    double slow_pace[LADDER_GAUGES];
    struct ladder_past {
        uint64_t t_ns, used_bytes;
    } past[LADDER_GAUGES][LADDER_PAST]; /* ring buffer with about one reading per second */
    uint32_t n_past[LADDER_GAUGES];
    uint64_t pressed_ns; /* start of the current period of high pressure, or 0 */
};

struct ladder_decision {
    enum ladder_act act;
    enum ladder_trigger trigger;
    bool has_gpu;
    unsigned gpu;             /* GPU whose memory is the reason, if has_gpu */
    char why[LADDER_WHY_MAX]; /* "1.2 GiB left of 24 GiB, growing by 165 MiB/s: …" */
};

int ladder_init(struct ladder *l, const struct ladder_rules *rules); /* returns 0 or -EINVAL */
/* Call this at every tick, and when the reflex wakes the loop. It decides on at most one action, so
 * call it again until it returns LADDER_DO_NOTHING. TIMING contains the measured durations of steps
 * and checkpoints. */
void ladder_step(struct ladder *l, const struct ladder_input *in, const struct timing *timing,
                 struct ladder_decision *ret);
/* Returns the time that a step and a checkpoint take together, plus the margin. Uses measured
 * durations if available. */
double ladder_need_s(const struct ladder *l, const struct timing *timing);
/* Resets the ladder to calm, because a new segment begins. */
void ladder_segment(struct ladder *l);
