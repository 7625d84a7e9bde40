/* What the live view shows at one moment: plain values, filled in by the command. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"

struct verdicts;

enum { FRAME_SPARK = 32, FRAME_GPUS = 16 };

/* A figure that may be missing, or old. */
struct frame_bytes {
    bool known;
    bool stale;
    uint64_t bytes;
};

static inline struct frame_bytes frame_figure(const struct sample *s, unsigned field)
{
    return (struct frame_bytes){.known = sample_has(s, field),
                                .stale = s->stale >> field & 1u,
                                .bytes = sample_has(s, field) ? s->v[field] : 0};
}

struct frame_row {
    uint32_t slot;            /* stable name of the row */
    struct process_info info; /* texts are another program's: the view escapes */
    struct sample sample;     /* SAMPLE_PEAK is the most it ever had */
    bool rate_known;
    double rate_bytes_per_min;
    uint64_t spark[FRAME_SPARK]; /* oldest first */
    size_t spark_count;
};

struct frame_gpu {
    char name[96]; /* raw */
    struct sample sample;
};

struct frame {
    uint64_t t_ns; /* since the watching began */
    uint64_t wall_ns;
    uint64_t interval_ns;
    const char *title;      /* "pid 4711 (python3)", "system"; may hold raw names: escaped */
    const char *notice;     /* one sentence to show, or NULL: escaped */
    struct frame_row *rows; /* any order */
    size_t count;
    /* The machine, and the job with each page counted once: unknown where the whole machine is
     * watched. */
    struct sample machine;
    struct frame_bytes headroom; /* below the limit */
    char limit_where[256];       /* "host", "/user.slice": escaped by the view; "" if unknown */
    bool tree_rate_known;
    double tree_rate_bytes_per_min;
    const struct verdicts *verdicts; /* with one on the job; NULL while there is none */
    bool step_known;
    int64_t step;
    struct frame_gpu gpu[FRAME_GPUS];
    size_t gpus;
};
