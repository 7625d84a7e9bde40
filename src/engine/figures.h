/* Figures that the job reports in series marks, kept until the next tick. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { FIGURES_MAX = 256, FIGURE_NAME_MAX = 79 };

struct figure {
    uint32_t id;                     /* number in the recording; never reused */
    int32_t pid;                     /* process that sent it; 0: unknown */
    char name[FIGURE_NAME_MAX + 16]; /* NAME@PID; only NAME if the sender is unknown */
    uint64_t value;
    bool is_fresh; /* received since the last tick */
    bool is_named; /* the name has been written to the recording */
};

struct figures {
    struct figure at[FIGURES_MAX];
    size_t count;
    uint32_t next_id;
};

/* Takes the figures in MARK, of kind series: pairs of NAME= and VALUE=; every other key is a figure
 * named by the key in lower case. True: all of the mark was taken, so it need not be recorded as a
 * mark. False: it has no figure, an invalid one, or more than fit. */
bool figures_take(struct figures *f, const struct mark *mark);
/* Takes a figure of PID that ebb measured itself. */
void figures_put(struct figures *f, int32_t pid, const char *name, uint64_t value);
/* Frees the places of PID's figures; PID has exited. */
void figures_forget(struct figures *f, int32_t pid);
