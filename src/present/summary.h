/* The end of a run in words: how it ended, its memory, the guard, what to ask for next time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf;
struct diagnosis;
struct doc;
struct outcome;
struct outcome_measured;
struct profile_row;
struct verdicts;

/* Facts that are missing are left out of the text. All but OUTCOME may be NULL. */
struct summary {
    const struct outcome *outcome;
    const struct verdicts *verdicts;
    const struct profile_row *growing; /* call sites that grow */
    size_t n_growing;
    const struct diagnosis *diagnosis;
};

void summary_doc(struct doc *d, const struct summary *s);
/* For a terminal of WIDTH columns, 40 to 100 of which are used; 0: 80. */
void summary_terminal(struct buf *out, const struct summary *s, bool colour, int width);

/* Segments, the guard's acts, what was left and did not come back (summary_guard.c). */
void summary_guard(struct doc *d, const struct outcome *o);
/* The largest processes as run.json has them. */
void summary_processes(struct doc *d, const struct outcome_measured *m);
/* The segments of a job that was started again; nothing for one. BRIEF: as a summary has them. */
void summary_segments(struct doc *d, const struct outcome *o, bool is_brief);
