/* How facts are gathered: series that stay short, and one file for each source. For facts*.c alone.
 */
#pragma once

#include "diagnose/facts.h"
#include "trace/reader.h"

enum { THIN_FIELDS = SAMPLE_FIELDS_MAX, PROCESSES_MAX = 512, FIGURES_MAX = 256 };

/* Readings of several figures at the same moments; each point stands for EACH ticks. Zeroed but for
 * FIELDS is a valid beginning. */
struct thin {
    size_t fields;
    double *t_s;
    double *v[THIN_FIELDS];
    size_t count, cap;
    uint64_t each, pending;
};
/* One tick, a value for each field; what was not read is NAN. Out of memory it is left out. */
void thin_add(struct thin *t, double t_s, const double *v);
void thin_clear(struct thin *t);
void thin_fini(struct thin *t);
struct facts_series thin_series(const struct thin *t, size_t field);

struct store_process {
    struct thin thin;
    struct facts_process facts;
    uint32_t slot;
    bool is_gone;
};
struct store_figure {
    struct thin thin;
    struct facts_figure facts;
    uint32_t id;
};

/* Behind the facts: everything that grows while the recording is read. */
struct facts_store {
    struct store_process *processes[PROCESSES_MAX]; /* of more the largest, the living first */
    size_t count, hint;
    struct store_figure *figures[FIGURES_MAX];
    size_t figure_count;
    struct thin machine, gpu;
    uint64_t start_ns;
    double last_s;
};
void store_free(struct facts_store *s); /* NULL is fine */

/* Reads the recording at PATH into F: processes, figures, machine, cleanups. */
int facts_read_trace(const char *path, struct facts *f, struct err *err);
/* Puts what VERDICT says to the processes and the tree, and chooses main. */
void facts_take_verdict(struct facts *f, const json_t *verdict);
int facts_read_marks(const char *path, struct facts *f, struct err *err);
/* The two moments; after marks and main are known. */
void facts_choose_moments(struct facts *f);
void facts_read_heap(const char *folder, struct facts *f);
void facts_read_census(const char *folder, struct facts *f);
