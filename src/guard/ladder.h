/* When to act, and how far: from readings to the next rung. Pure: no clock, no I/O, no allocation.
 *
 *   calm → warned → asked (for a checkpoint) → stopping (SIGTERM) → killed
 *
 * The guard asks when the time to the limit is no longer than a step, a checkpoint and a margin
 * take (forecast, pace), when little room is left (level), when the machine stalls on memory
 * (pressure), when a GPU is nearly full, or when a restart is due. It then waits for the
 * acknowledgement as long as memory permits, and goes on to SIGTERM once the checkpoint is there
 * and the reason still stands, or room runs out. A job that only stands still near its limit is
 * left alone. A trigger that is over for LADDER_CALM_S takes the guard back to calm. docs/guard.md
 * has the lines and why they are where they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/tempo.h"

enum {
    LADDER_CALM_S = 10,
    LADDER_AGAIN_S = 60, /* at least, between two requests of one reason */
    LADDER_PACE_S = 6,   /* how long a rise must have lasted to be believed without the verdict */
    LADDER_WHY_MAX = 240
};

enum ladder_rung { LADDER_CALM, LADDER_WARNED, LADDER_ASKED, LADDER_STOPPING, LADDER_KILLED };

enum ladder_trigger {
    LADDER_BY_NOTHING,
    LADDER_BY_FORECAST, /* the verdict's time to the limit */
    LADDER_BY_PACE,     /* the same from the rise of the last seconds, near the limit */
    LADDER_BY_LEVEL,
    LADDER_BY_PRESSURE, /* PSI */
    LADDER_BY_GPU,
    LADDER_BY_PLAN, /* --restart-every */
    LADDER_TRIGGERS
};
const char *ladder_trigger_name(enum ladder_trigger trigger);

/* Zero means the default in brackets. */
struct ladder_rules {
    uint64_t
        reserve_bytes;   /* the level: act when less than this is left [ladder_default_reserve] */
    double margin_s;     /* on top of step and checkpoint [2] */
    double checkpoint_s; /* of a checkpoint never yet measured [10] */
    double wait_s;       /* longest wait for an acknowledgement, memory or not [600] */
    double grace_s;      /* between SIGTERM and the kill [10] */
    double pressure;     /* share of the time everything stalled, 0 to 1 [0.3] */
    bool no_forecast, no_level, no_pressure;       /* triggers left out; no_forecast: pace, too */
    bool no_warn, no_checkpoint, no_term, no_kill; /* rungs left out */
};
/* 5 % of the limit, at least 64 MiB and at most 4 GiB, and never more than a fifth of it. */
uint64_t ladder_default_reserve(uint64_t limit_bytes);
/* Room at which SIGTERM is sent although no checkpoint was acknowledged, and at which the reflex
 * kills, for a given reserve: a half and an eighth. While a checkpoint is being written SIGTERM
 * waits until a quarter. */
uint64_t ladder_term_room(uint64_t reserve_bytes);
uint64_t ladder_kill_room(uint64_t reserve_bytes);

/* One limit and how it stands. */
struct ladder_gauge {
    bool known;
    uint64_t limit_bytes, used_bytes, room_bytes;
    double pace_bytes_per_s; /* of the last moments */
};

enum ladder_ack { LADDER_NO_ACK, LADDER_ACK_STARTED, LADDER_ACK_DONE, LADDER_ACK_FAILED };

struct ladder_input {
    uint64_t now_ns;
    struct ladder_gauge gauge[2];
    bool forecast_known; /* the verdict says that the limit will be reached */
    double forecast_s;   /* the earliest, from now; to the limit with the least room */
    bool pressure_known;
    double pressure; /* share of the last seconds */
    bool gpu_known;
    uint64_t gpu_limit_bytes, gpu_used_bytes; /* of the device nearest to its limit */
    bool gpu_forecast_known;
    double gpu_forecast_s;
    bool plan_due;       /* a planned restart */
    bool can_ask;        /* there is somebody to ask for a checkpoint */
    enum ladder_ack ack; /* to the newest request; ignored in the moment of asking */
    bool is_killed;      /* the reflex has done it */
};

/* What was decided; SAY is worth telling even where nothing is to be done. */
enum ladder_act {
    LADDER_DO_NOTHING,
    LADDER_DO_WARN,
    LADDER_DO_ASK,
    LADDER_DO_TERM,
    LADDER_DO_KILL,
    LADDER_DO_STAND_DOWN
};
const char *ladder_act_name(enum ladder_act act);

enum { LADDER_PAST = 16 };
struct ladder {
    struct ladder_rules rules; /* with the defaults filled in, the reserve's aside */
    enum ladder_rung rung;
    enum ladder_trigger trigger; /* the strongest so far of those that brought us to this rung */
    uint64_t begun_ns;           /* of this rung */
    /* private */
    uint64_t over_ns;    /* since when no trigger holds; 0: one does */
    uint64_t asked_ns;   /* of this episode; 0: not asked */
    double asked_left_s; /* until SIGTERM, when that was asked */
    uint64_t done_ns;    /* when its checkpoint was seen to be there; 0: not */
    unsigned holding;    /* bits of the triggers that hold */
    unsigned episode;    /* of those that have held since calm */
    unsigned vain;       /* requests that turned out not to be needed */
    uint64_t quiet_until_ns[LADDER_TRIGGERS];
    uint64_t mark_bytes[2]; /* used when asked, then when the checkpoint was there */
    bool is_still[2];       /* it stood still within the reserve ... */
    uint64_t still_room[2]; /* ... with this much left */
    double slow_pace[2];    /* bytes a second, sustained over LADDER_PACE_S; 0: none */
    struct ladder_past {
        uint64_t t_ns, used_bytes;
    } past[2][LADDER_PAST]; /* a reading a second or so, in a ring */
    uint32_t n_past[2];
    uint64_t pressed_ns; /* since when the pressure is high; 0: it is not */
};

struct ladder_decision {
    enum ladder_act act;
    enum ladder_trigger trigger;
    char why[LADDER_WHY_MAX]; /* "1.2 GiB left of 24 GiB, rising by 165 MiB/s: full in 7 s; a step
                                 and a checkpoint take 8 s" */
};

int ladder_init(struct ladder *l, const struct ladder_rules *rules); /* 0, -EINVAL */
/* Called on every tick, and when the reflex wakes the loop. At most one act a call: call again
 * until it is LADDER_DO_NOTHING. TEMPO gives step, checkpoint and the rise during one. */
void ladder_step(struct ladder *l, const struct ladder_input *in, const struct tempo *tempo,
                 struct ladder_decision *ret);
/* How long step, checkpoint and margin take together, as they are known now. */
double ladder_need_s(const struct ladder *l, const struct tempo *tempo);
/* A new segment begins: calm again. */
void ladder_segment(struct ladder *l);
