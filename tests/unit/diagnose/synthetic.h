/* Synthetic facts: a job over two hundred seconds, of which only what a test adds is known. */
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
    struct facts_process processes[SYNTHETIC_PROCESSES]; /* [0] is main */
    double t_s[SYNTHETIC_POINTS];
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
    double row_start[SYNTHETIC_ROWS], row_floor[SYNTHETIC_ROWS], row_mapped[SYNTHETIC_ROWS];
    struct ledger ledger;
    struct question question;
    struct hypothesis ranked[HYPOTHESIS_COUNT];
};

#define MIB(n) ((n)*1048576.0)

/* One training process without readings. Training lasts from 10 s to the end. */
void synthetic_begin(struct synthetic *s);
void synthetic_end(struct synthetic *s);
struct facts_process *synthetic_process(struct synthetic *s, enum process_role role);
/* FIELD of process P: grows from FROM at the first moment to TO at UNTIL_S, and stays there. */
void synthetic_field(struct synthetic *s, size_t p, enum sample_process_field field, double from,
                     double to, double until_s);
/* RSS of the main process and its kinds: all memory is anonymous. */
void synthetic_memory(struct synthetic *s, double from, double to, double until_s);
/* RSS of the main process is higher by HEIGHT for one second at T_S. */
void synthetic_spike(struct synthetic *s, double t_s, double height);
void synthetic_figure(struct synthetic *s, const char *name, double from, double to);
void synthetic_verdict(struct synthetic *s, size_t p, enum verdict_word word);
/* A mark for each step, one per second from 10 s on, each just after a reading. PER_EPOCH 0:
 * unknown. */
void synthetic_steps(struct synthetic *s, uint64_t per_epoch);
void synthetic_mark(struct synthetic *s, enum verdict_mark_kind kind, double t_s);
/* A call site in the heap profile. All live memory is in these rows. The memory of a row whose WORD
 * is stable is not kept. */
void synthetic_row(struct synthetic *s, const char *file, double start, double now,
                   enum verdict_word word);
/* Two censuses, at steps 20 and 180. */
void synthetic_census(struct synthetic *s, double objects_growth, double tensors_growth,
                      bool is_graph);

/* Tests all hypotheses again and returns the one called ID. */
const struct hypothesis *synthetic_test(struct synthetic *s, enum hypothesis_id id);
/* Does H have evidence on SIDE that contains TEXT (if not NULL)? */
bool has_evidence(const struct hypothesis *h, enum evidence_side side, const char *text);
