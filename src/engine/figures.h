/* Figures that the job reports in series marks, kept until the next tick. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { FIGURES_MAX = 64, FIGURE_NAME_MAX = 48 };

struct figure {
    uint32_t id;                     /* in the recording; never used again */
    int32_t pid;                     /* its sender; 0 unknown */
    char name[FIGURE_NAME_MAX + 16]; /* NAME@PID; NAME alone where the sender is not known */
    uint64_t value;
    bool is_fresh; /* received since the last tick */
    bool is_named; /* the recording knows its name */
};

struct figures {
    struct figure at[FIGURES_MAX];
    size_t count;
    uint32_t next_id;
};

/* Takes the figures in MARK, of kind series: NAME= and VALUE=, or any other keys, each a figure
 * that is called like it in small letters. True: all of it is here, and the mark need not be kept
 * besides. False: it has none, one that is not whole, or one more than there is room for. */
bool figures_take(struct figures *f, const struct mark *mark);
/* PID has died: its figures make room. */
void figures_forget(struct figures *f, int32_t pid);
