/* Holds back the newest readings of a series. When a process exits, its memory is released within a
 * second or two, and readings from that time do not show its normal memory use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "verdict/verdict.h"

/* The readings of a table are held back longer, for TAIL_TABLE_S, because exits take longer on a
 * busy machine. A longer delay is possible, because a table is judged after the job has ended. */
enum { TAIL_HELD = 64, TAIL_S = 3, TAIL_TABLE_S = 10, TAIL_FED = 3 };

struct tail_reading {
    int64_t t_ns;
    uint64_t bytes;
};

/* A zeroed struct is valid and empty. */
struct tail {
    struct tail_reading held[TAIL_HELD]; /* ring buffer */
    uint32_t first, count;
    struct tail_reading
        fed[TAIL_FED]; /* ring buffer of the last readings that were passed on, to detect a fall */
    uint32_t n_fed;
    bool is_table; /* true if readings are held back for TAIL_TABLE_S instead of TAIL_S */
};

/* Holds back the reading. Passes on to V the readings that are older than TAIL_S (TAIL_TABLE_S for
 * a table) and, if the buffer is full, the oldest one. The newest reading is always held back. */
void tail_update(struct tail *tail, struct verdict_series *v, int64_t t_ns, uint64_t bytes);

/* Returns true if the oldest reading that is held back must be passed on before a reading at T_NS
 * is added. */
bool tail_is_due(const struct tail *tail, int64_t t_ns);

/* Passes on to V the oldest reading that is held back, if there is one. */
void tail_feed(struct tail *tail, struct verdict_series *v);

/* Passes on to V all readings that are held back. A mark shows that the process was alive after
 * those readings. Call this before verdict_mark. */
void tail_release(struct tail *tail, struct verdict_series *v);

/* Drops the readings that are held back, because the process has exited. At most half of all
 * readings of the process are dropped; the others are passed on to V. */
void tail_drop(struct tail *tail, struct verdict_series *v);

/* Handles the end of a table, at which the process may have exited. If the readings that are held
 * back end in a fall, the fall is treated as the exit and dropped. It is a fall if each of its
 * readings is below all readings of the TAIL_S seconds before it, and the last one is more than 5 %
 * below. These seconds may include the last TAIL_FED readings that were passed on earlier. All
 * readings before the fall are passed on. */
void tail_end(struct tail *tail, struct verdict_series *v);

/* Returns true if tail_end would drop all readings that are held back. */
bool tail_all_falls(const struct tail *tail);
