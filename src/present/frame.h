/* What the live view shows at one moment: plain values, filled in by the command. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verdicts;

enum { FRAME_SPARK = 32, FRAME_GPUS = 16 };

/* A figure that may be missing, or old. */
struct frame_bytes {
    bool known;
    bool stale;
    uint64_t bytes;
};

struct frame_row {
    int32_t pid;
    int32_t ppid;
    uint32_t slot;    /* stable name of the row */
    const char *role; /* of our own words */
    const char *name; /* raw bytes of another program: the view escapes */
    size_t name_len;
    const char *command; /* raw, NUL between arguments */
    size_t command_len;
    struct frame_bytes rss, anon, file, shmem, swap, unique, peak, gpu;
    bool rate_known;
    double rate_bytes_per_min;
    uint64_t spark[FRAME_SPARK]; /* oldest first */
    size_t spark_count;
};

struct frame_gpu {
    const char *name; /* raw */
    struct frame_bytes used, total, job;
};

struct frame {
    uint64_t t_ns; /* since the watching began */
    uint64_t wall_ns;
    uint64_t interval_ns;
    const char *title;      /* "pid 4711 (python3)", "system"; may hold raw names: escaped */
    struct frame_row *rows; /* any order */
    size_t count;
    /* machine */
    struct frame_bytes total, available, swap_total, swap_free, limit, limit_used, headroom;
    const char *limit_where; /* "host", "/user.slice": escaped by the view; NULL if unknown */
    bool psi_known;
    uint32_t psi_some_permyriad, psi_full_permyriad;
    /* the job, each page counted once; unknown where the whole machine is watched */
    struct frame_bytes tree_low, tree_high;
    bool tree_rate_known;
    double tree_rate_bytes_per_min;
    const struct verdicts *verdicts; /* with one on the job; NULL while there is none */
    bool step_known;
    int64_t step;
    struct frame_gpu gpu[FRAME_GPUS];
    size_t gpus;
    const char *notice; /* one sentence to show, or NULL: escaped */
};
