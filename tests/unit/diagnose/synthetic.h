/* Synthetic facts: a job of 200 seconds about which nothing is known except the facts that a test
 * adds. */
#pragma once

#include "diagnose/facts.h"
#include "diagnose/hypothesis.h"

enum {
    SYNTHETIC_POINTS = 201,
    SYNTHETIC_PROCESSES = 8,
    SYNTHETIC_ROWS = 4,
    SYNTHETIC_MARKS = 1024
};

struct synthetic {
    struct facts f;
    struct facts_process processes[SYNTHETIC_PROCESSES]; /* the first process is the main process */
    double t_s[SYNTHETIC_POINTS], rare_t_s[SYNTHETIC_POINTS];
    double v[SYNTHETIC_PROCESSES][SAMPLE_PROCESS_COUNT][SYNTHETIC_POINTS];
    struct facts_mark marks[SYNTHETIC_MARKS];
    struct facts_figure figures[4];
    double figure_v[4][SYNTHETIC_POINTS];
    double charge_v[SYNTHETIC_POINTS];
    double gpu_v[SYNTHETIC_POINTS], gpu_reserved_v[SYNTHETIC_POINTS];
    struct profile profile;
    uint32_t site_node;
    struct name names[SYNTHETIC_ROWS];
    struct growth_row rows[SYNTHETIC_ROWS];
    struct facts_site sites[SYNTHETIC_ROWS];
    struct ledger ledger;
    struct question question;
    struct hypothesis ranked[HYPOTHESIS_COUNT];
};

#define MIB(n) ((n)*1048576.0)

/* Sets up one training process without readings; training lasts from 10 s to the end. */
void synthetic_begin(struct synthetic *s);
void synthetic_end(struct synthetic *s);
struct facts_process *synthetic_process(struct synthetic *s, enum process_role role);
/* Makes FIELD of process P grow from FROM at the start to TO at UNTIL_S, and then stay constant. */
void synthetic_field(struct synthetic *s, size_t p, enum sample_process_field field, double from,
                     double to, double until_s);
/* Removes all NAN readings from FIELD of the main process. Call this for at most one field per
 * test. */
void synthetic_remove_nan(struct synthetic *s, enum sample_process_field field);
/* Sets the RSS of the main process, all of it anonymous memory. */
void synthetic_memory(struct synthetic *s, double from, double to, double until_s);
/* Adds a spike of HEIGHT bytes to the RSS of the main process, for one second at T_S. */
void synthetic_spike(struct synthetic *s, double t_s, double height);
void synthetic_figure(struct synthetic *s, const char *name, double from, double to);
void synthetic_verdict(struct synthetic *s, size_t p, enum verdict_word word);
/* Adds a step mark every second from 10 s on, just after each reading. PER_EPOCH is 0 if
 * unknown. */
void synthetic_steps(struct synthetic *s, uint64_t per_epoch);
void synthetic_mark(struct synthetic *s, enum verdict_mark_kind kind, double t_s);
/* Adds a call site to the heap profile. The live memory of the heap is the sum over all call sites.
 * WORD is the verdict on the site; if it is stable, the site's baseline has not grown. */
void synthetic_row(struct synthetic *s, const char *file, double start, double now,
                   enum verdict_word word);
/* Adds two censuses, at steps 20 and 180. */
void synthetic_census(struct synthetic *s, double objects_growth, double tensors_growth,
                      bool is_graph);

/* Tests all hypotheses again and returns the result for ID. */
const struct hypothesis *synthetic_test(struct synthetic *s, enum hypothesis_id id);
/* Returns true if H has evidence on SIDE, containing TEXT if that is not NULL. */
bool has_evidence(const struct hypothesis *h, enum evidence_side side, const char *text);
