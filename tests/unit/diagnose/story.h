/* Made-up facts: a job of some processes over two hundred seconds, of which only that is known
 * which a test puts there. */
#pragma once

#include "diagnose/facts.h"
#include "diagnose/hypothesis.h"

enum { STORY_POINTS = 201, STORY_PROCESSES = 8, STORY_ROWS = 4, STORY_MARKS = 1024 };

struct story {
    struct facts f;
    struct facts_process processes[STORY_PROCESSES]; /* [0] is main */
    double t_s[STORY_POINTS];
    double v[STORY_PROCESSES][SAMPLE_PROCESS_COUNT][STORY_POINTS];
    struct facts_mark marks[STORY_MARKS];
    struct facts_figure figures[4];
    double figure_v[4][STORY_POINTS];
    double charge_v[STORY_POINTS];
    double gpu_v[STORY_POINTS];
    struct profile profile;
    uint32_t site_node;
    struct name names[STORY_ROWS];
    struct growth_row rows[STORY_ROWS];
    double row_start[STORY_ROWS], row_floor[STORY_ROWS], row_mapped[STORY_ROWS];
    struct ledger ledger;
    struct question question;
    struct hypothesis ranked[HYPOTHESIS_COUNT];
};

#define MIB(n) ((n)*1048576.0)

/* One process that trains, of which nothing was read. Training is from 10 s to the end. */
void story_begin(struct story *s);
void story_end(struct story *s);
struct facts_process *story_process(struct story *s, enum process_role role);
/* A field of process P: from FROM to TO between the moments, which it keeps from UNTIL_S on. */
void story_field(struct story *s, size_t p, enum sample_process_field field, double from, double to,
                 double until_s);
/* RSS and its kinds of main: all of it anonymous. */
void story_memory(struct story *s, double from, double to, double until_s);
/* RSS of main rises by HEIGHT for one second at T_S. */
void story_spike(struct story *s, double t_s, double height);
void story_figure(struct story *s, const char *name, double from, double to);
void story_verdict(struct story *s, size_t p, enum verdict_word word);
/* A mark for each step, one a second from 10 s on, each behind a reading; PER_EPOCH 0: not told. */
void story_steps(struct story *s, uint64_t per_epoch);
void story_mark(struct story *s, enum verdict_mark_kind kind, double t_s);
/* The profiler ran; all that lives is in the rows. One that is stable comes and goes. */
void story_row(struct story *s, const char *file, double start, double now, enum verdict_word word);
/* Two censuses, at steps 20 and 180. */
void story_census(struct story *s, double objects_growth, double tensors_growth, bool is_graph);

/* Tests all hypotheses anew; the one called ID. */
const struct hypothesis *story_ask(struct story *s, enum hypothesis_id id);
/* Does it have evidence on that side? With TEXT: in which it occurs. */
bool story_says(const struct hypothesis *h, enum evidence_side side, const char *text);
