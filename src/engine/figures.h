/* Figures are numbers that the job reports in marks of kind series. They are kept until the next
 * tick. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

enum { FIGURES_MAX = 256, FIGURE_NAME_MAX = 79 };

struct figure {
    uint32_t id;                     /* number of the figure in the recording, never reused */
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

/* Extracts the figures in MARK, which is of kind series. A pair of NAME= and VALUE= is one figure.
 * Every other key is a figure, too, whose name is the key in lower case. Returns true if every part
 * of the mark became a figure, so that the mark itself need not be recorded. Returns false if the
 * mark has no figure, an invalid figure, or more figures than fit. */
bool figures_take(struct figures *f, const struct mark *mark);
/* Sets a figure that ebb measured for process PID. */
void figures_put(struct figures *f, int32_t pid, const char *name, uint64_t value);
/* Frees the entries of PID's figures after PID has exited. */
void figures_forget(struct figures *f, int32_t pid);
