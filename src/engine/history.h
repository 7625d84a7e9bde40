/* What is kept of each process: its history while it lives, and of the many that have gone the
 * largest ones and a sum for each role. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/track.h"
#include "proc/sample.h"
#include "proc/tree.h"

struct history {
    struct process_info info;
    uint32_t slot;
    uint64_t born_ns, died_ns; /* died 0: lives */
    struct track rss;
    struct sample last; /* its last readings */
    uint64_t unique_peak_bytes;
    uint64_t unmeasured_bytes; /* the most that has come since its unique memory was measured … */
    uint64_t unmeasured_from;  /* … which was before this tick of struct peak */
    uint64_t gpu_peak_bytes;
    uint64_t status_last_ns;
    uint64_t status_rss_bytes;    /* RSS when status was last read */
    uint32_t rate_samples_block;  /* the rate below was worked out at this many blocks … */
    uint64_t rate_block_start_ns; /* … and this open one */
    bool rate_known;
    double rate_bytes_per_min;
};

enum { HISTORY_GONE_MAX = 64 };
struct history_gone {
    struct history largest[HISTORY_GONE_MAX]; /* by peak, in no order */
    size_t count;
    uint64_t seen[ROLE_COUNT];       /* all that have gone, by role */
    uint64_t peak_bytes[ROLE_COUNT]; /* the largest of them */
};

/* Takes over the newest readings of NODE into H. */
void history_update(struct history *h, const struct proc_node *node, uint64_t now_ns);
/* The same at TICK of struct peak: BYTES of S have come since its unique memory was measured. */
void history_unmeasured(struct history *h, const struct sample *s, uint64_t bytes, uint64_t tick);
bool history_rate(struct history *h, double *ret_bytes_per_min);
/* H's process has gone: counted, and kept if it is among the largest. */
void history_bury(struct history_gone *gone, const struct history *h);
