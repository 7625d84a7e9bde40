/* The content of the live view at one moment, as plain values that the command fills in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"

struct verdicts;

enum { FRAME_SPARK = 32, FRAME_GPUS = 16 };

/* A value that may be missing or not current. */
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
    uint32_t slot;            /* number that identifies the row in successive frames */
    struct process_info info; /* texts come from other programs, and the view escapes them */
    struct sample sample;     /* SAMPLE_PEAK is the maximum over the life of the process */
    bool rate_known;
    double rate_bytes_per_min;
    uint64_t spark[FRAME_SPARK]; /* oldest first */
    size_t spark_count;
};

struct frame_gpu {
    char name[96]; /* not escaped */
    struct sample sample;
};

struct frame {
    uint64_t t_ns; /* time in nanoseconds since watching began */
    uint64_t wall_ns;
    uint64_t interval_ns;
    /* title, such as "pid 4711 (python3)" or "system"; may contain raw names, which the view
     * escapes */
    const char *title;
    const char *notice;     /* one sentence to show, or NULL; the view escapes it */
    struct frame_row *rows; /* rows in any order */
    size_t count;
    /* The memory of the machine, and the job's memory with shared pages counted once. The job's
     * memory is unknown if the whole machine is watched. */
    struct sample machine;
    struct frame_bytes headroom; /* headroom: distance to the limit in bytes */
    /* Location of the limit, such as "host" or "/user.slice", or "" if unknown; the view escapes
     * it. */
    char limit_where[256];
    bool tree_rate_known;
    double tree_rate_bytes_per_min;
    /* Verdicts, including the one on the job; NULL if there are none yet. */
    const struct verdicts *verdicts;
    bool step_known;
    int64_t step;
    struct frame_gpu gpu[FRAME_GPUS];
    size_t gpus;
};
