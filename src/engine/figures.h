/* Figures are metrics that the job reports in series marks. They are stored until the next tick. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { FIGURES_MAX = 256, FIGURE_NAME_MAX = 79 };

struct figure {
    uint32_t id;                     /* id of the figure in the recording, never reused */
    int32_t pid;                     /* process that sent the figure; 0 if unknown */
    char name[FIGURE_NAME_MAX + 16]; /* NAME@PID, or only NAME if the sender is unknown */
    uint64_t value;
    bool is_fresh; /* a value was received since the last tick */
    bool is_named; /* the name was written to the recording */
};

struct figures {
    struct figure at[FIGURES_MAX];
    size_t count;
    uint32_t next_id;
};

/* Extracts the figures from MARK, a series mark. NAME= and VALUE= together are one figure. Every
 * other key that does not describe the mark itself is a figure too; its name is the key in lower
 * case. Returns true if MARK contained only valid figures, all of which were stored; the mark
 * itself need not be recorded then. Returns false if MARK contains no figure or an invalid one, or
 * if there is no room. */
bool figures_take(struct figures *f, const struct mark *mark);
/* Stores a figure that ebb measured for process PID. */
void figures_put(struct figures *f, int32_t pid, const char *name, uint64_t value);
/* Removes PID's figures after PID has exited. */
void figures_forget(struct figures *f, int32_t pid);
