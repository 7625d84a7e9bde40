/* How a hypothesis is tested: evidence is said, weighed and added up. For hypothesis*.c alone. */
#pragma once

#include "base/text.h"
#include "diagnose/hypothesis.h"

/* Log-odds. DECIDES alone rules out, or makes nearly certain. */
enum { WEAK = 1, FAIR = 2, STRONG = 4, DECIDES = 9 };

void say(struct hypothesis *h, enum evidence_side side, double weight, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void decide_by(struct hypothesis *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* By more than noise, but it has ended and is less than one would ask about. */
bool has_grown_a_little(const struct question *q);
/* There is nothing to explain, so it is not this; or too little to tell. */
void say_flat(const struct question *q, struct hypothesis *h, double weight);

/* Sizes in sentences. */
struct sizes {
    char text[6][TEXT_SIZE_MAX];
};
const char *size_of(struct sizes *s, size_t place, double bytes);   /* "98.0 MiB" */
const char *change_of(struct sizes *s, size_t place, double bytes); /* "+98.0 MiB" */

/* Are BYTES that came once and do not go on of a size that one would ask about: a tenth of what the
 * process has, or of what is left to the limit? */
bool is_worth_asking(const struct question *q, double bytes);
/* Does it say that memory goes on growing? */
bool is_leak(enum verdict_word word);
/* BYTES of what is to be explained, 0 to 1: of the growth, or of the level where there is none. */
double share_of(const struct question *q, double bytes);
double main_at(const struct question *q, enum sample_process_field field, double t_s);
double main_growth(const struct question *q, enum sample_process_field field);
/* Growth of main's figure NAME between the moments; NAN. */
double figure_growth(const struct question *q, const char *name);
/* Of what can leak at T_S: resident but for file cache, and swapped out. NAN. */
double leakable_at(const struct question *q, double t_s);
/* "train.py:41 (collate)", raw; "train.py:41 (plot) through backend_agg.py:71 (draw)" where a
 * library allocates for the program. */
enum { PLACE_MAX = 216 };
const char *place_text(char out[PLACE_MAX], const struct growth_row *row);
/* The live heap's growth as the ledger has it; NAN: nobody counted. */
double heap_growth(const struct question *q);

/* The call site that keeps what it makes, that with the most growth: RET_GROWN. NULL: none. */
const struct growth_row *keeper(const struct question *q, double *ret_grown);
/* What other lines that were reached from the same function of the program keep, and how many. */
double keeper_beside(const struct question *q, const struct growth_row *row, size_t *ret_lines);

/* Did most of the growth come in a step or two? */
bool came_at_once(const struct question *q);

/* Did an operation of torch's make what ROW holds? */
bool made_by_torch(const struct facts_heap *heap, const struct growth_row *row);
/* Did torch's compiler make what ROW holds, itself or by calling who did? */
bool made_by_compiler(const struct facts_heap *heap, const struct growth_row *row);

/* What is alive comes and goes with batches and with the garbage collector, so floors are compared:
 * the least in the second half of the time against the least in the first. */
struct floors {
    double live, held, memory; /* by how much each rose; live, and with what is free all that the
                                * allocator holds, by its own count */
    bool lets_go; /* memory's rose, and that of the live heap did not with it, nor does a call site
                   * keep much: small Python objects are not in that count */
};
struct floors floors_of(const struct question *q); /* NAN: not read */
void say_floors(struct hypothesis *h, enum evidence_side side, double weight,
                const struct floors *floors);

typedef void hypothesis_test(const struct question *q, struct hypothesis *h);
hypothesis_test test_launcher, test_workers, test_copy_on_write, test_compile;
hypothesis_test test_data_load, test_first_touch, test_accumulation, test_eval_spike,
    test_eval_step, test_no_growth;
hypothesis_test test_python_objects, test_tensors, test_autograd, test_call_site, test_retention;
hypothesis_test test_mapped_files, test_shared_memory, test_pinned, test_gpu, test_swap, test_thp;
