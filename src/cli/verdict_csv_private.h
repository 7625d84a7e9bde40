/* A table as it is judged: its groups and marks. For verdict_csv.c, which reads and feeds them,
 * verdict_csv_groups.c, which holds the groups, and verdict_csv_judge.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/verdict_csv.h"
#include "mark/mark_clock.h"
#include "verdict/tail.h"
#include "verdict/verdict.h"

enum {
    GROUPS_MAX = 4096,           /* judged at one time; 10 KB each */
    TABLE_SIZE = 4 * GROUPS_MAX, /* of the hash: a power of two */
};

struct judged_group {
    char *name; /* raw, NUL-ended */
    size_t len;
    uint64_t hash;
    int32_t pid; /* 0: not a number */
    bool speaks; /* marks of its own are in the file */
    bool is_cut; /* --until-step has been reached */
    uint64_t rows, last_row;
    double first_t, last_t;
    uint64_t last_bytes, peak_bytes;
    uint64_t steps_per_epoch, examples, batch; /* last told to the series */
    size_t next_mark;
    char phase[32]; /* cut */
    struct mark_clock clock;
    struct verdict_series series;
    struct tail tail; /* its newest readings may be its exit */
    /* Marks that stand in the row of the oldest reading held, and share its fate. */
    struct verdict_mark held[MARK_CLOCK_MARKS];
    size_t n_held;
    int64_t held_ns;
    struct verdict_result result;
};

struct table_mark {
    double t_s;
    size_t at; /* in the file, to keep the order of equals */
    struct mark mark;
    char *text; /* of phases; owned */
};

struct judged_table {
    const struct verdict_csv_options *options;
    const char *path;
    struct judged_group **groups;
    uint32_t *index; /* number + 1 */
    size_t count;
    uint64_t rows, dropped_groups, dropped_rows;
    struct table_mark *marks;
    size_t marks_count, marks_cap;
    bool has_marks_file, has_lead;
    int32_t lead_pid;
    bool has_time, has_any_step, has_first;
    double first_t, last_t;
    double cut_t; /* rows and marks behind it were not known then */
    struct err *err;
};

/* The group of that name, made at first sight; NULL: no memory. Where there are too many, those
 * with the fewest rows go. */
struct judged_group *judged_group_of(struct judged_table *t, const char *name, size_t len);
void judged_group_free(struct judged_group *g); /* NULL is fine */

/* The oldest reading held counts, and so do the marks of its row. */
void judged_group_feed_held(struct judged_group *g);
/* The marks of the file up to T_S that the group has not heard yet. */
void judged_table_say_before(const struct judged_table *t, struct judged_group *g, double t_s);

void judged_table_judge(struct judged_table *t);
int judged_table_verdicts(struct judged_table *t, struct verdicts *ret); /* 0 or -ENOMEM */
