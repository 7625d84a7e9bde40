/* Functions that test hypotheses, each as a sum of weighted evidence; private to hypothesis*.c. */
#pragma once

#include <math.h>

#include "base/number.h"
#include "base/text.h"
#include "diagnose/hypothesis.h"

/* Weights of evidence, in log-odds. One STRONG piece of evidence without any contrary evidence
 * rules a hypothesis out or makes it nearly certain. DECIDES does so even if there is STRONG
 * contrary evidence. */
enum { WEAK = 1, FAIR = 2, STRONG = 4, DECIDES = 9 };

void evidence_add(struct hypothesis *h, enum evidence_side side, double weight, const char *fmt,
                  ...) __attribute__((format(printf, 4, 5)));
#define evidence_for(h, weight, ...) evidence_add(h, EVIDENCE_FOR, weight, __VA_ARGS__)
#define evidence_against(h, weight, ...) evidence_add(h, EVIDENCE_AGAINST, weight, __VA_ARGS__)
#define evidence_absent(h, ...) evidence_add(h, EVIDENCE_ABSENT, 0, __VA_ARGS__)
void decide_by(struct hypothesis *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns true for growth that exceeds noise, but has ended and is too small to diagnose. */
bool has_grown_a_little(const struct question *q);
/* Adds evidence against H: memory did not grow, or grew too little to diagnose. */
void evidence_add_no_growth(const struct question *q, struct hypothesis *h, double weight);

/* These macros format values for use in a sentence. The text is valid until the end of the
 * enclosing block. */
#define SIZE(bytes) /* such as "98.0 MiB" */                                                       \
    text_size((char[TEXT_SIZE_MAX]){""}, number_to_u64(round(bytes)))
#define CHANGE(bytes) /* such as "+98.0 MiB" */                                                    \
    text_size_signed((char[TEXT_SIZE_MAX]){""}, number_to_i64(bytes))
#define PLACE(row) place_text((char[PLACE_MAX]){""}, row)
#define KEPT(list, i) kept_text((char[KEPT_TEXT_MAX]){""}, list, i)

/* Returns true if growth of BYTES that has ended is large enough to diagnose: more than a tenth of
 * the process's memory at the start, or of the headroom. */
bool is_worth_diagnosing(const struct question *q, double bytes);
/* Returns true if growth seems to have ended: LATE is the part of GROWTH in the second half of the
 * compared time. */
bool is_mostly_early(double growth, double late);
/* Returns true if WORD means that memory keeps growing. */
bool is_leak(enum verdict_word word);
/* Returns BYTES as a fraction, 0 to 1, of the growth to explain, or of all memory if there was
 * no growth. */
double share_of(const struct question *q, double bytes);
double main_at(const struct question *q, enum sample_process_field field, double t_s);
double main_growth(const struct question *q, enum sample_process_field field);
/* Returns the growth of the figure NAME of the main process between the two moments, or NAN. */
double figure_growth(const struct question *q, const char *name);
/* Returns the part of the process's memory that can leak, at T_S: resident memory without file
 * cache, plus swap. NAN if unknown. */
double leakable_at(const struct question *q, double t_s);
/* Return the minimum of leakable_at over the first half and over the second half of the compared
 * time. Unlike the values at the two moments, these minima exclude peaks. */
double early_baseline(const struct question *q);
double late_baseline(const struct question *q);
/* Size of a buffer for a code location such as "train.py:41 (collate)", unescaped, or "train.py:41
 * (plot) through backend_agg.py:71 (draw)" if a library allocates for the program. */
enum { PLACE_MAX = 216 };
const char *place_text(char out[PLACE_MAX], const struct growth_row *row);
/* Returns the growth of the memory that is charged to the job but that none of its processes maps:
 * files in /dev/shm or another tmpfs. Returns 0 if this is not most of the growth. */
double unmapped_growth(const struct question *q);
/* Returns the growth of the live heap in the ledger, or NAN if it was not counted. */
double heap_growth(const struct question *q);

/* Returns the call site that grew most, by RET_GROWN bytes, among those whose allocations stay
 * alive; NULL if there is none. */
const struct growth_row *keeping_site(const struct question *q, double *ret_grown);
/* Returns the first growing container of the main process that IS_WANTED accepts, or NULL. */
typedef bool container_test(const struct question *q, const struct kept *k);
const struct kept *find_container(const struct question *q, container_test *is_wanted);
/* Accepts a container without a maximum number of entries whose bytes explain much of the growth of
 * a job that keeps growing. */
container_test is_piling_container;
/* Returns the total growth of the other lines in ROW's function whose allocations stay alive, and
 * sets RET_LINES to their number. */
double keeping_sites_beside(const struct question *q, const struct growth_row *row,
                            size_t *ret_lines);

/* Returns true if most of the growth occurred within two steps. */
bool came_at_once(const struct question *q);

/* Returns true if IS_WANTED accepts a frame on the call path of ROW's largest call site. */
bool has_frame(const struct facts_heap *heap, const struct growth_row *row,
               bool (*is_wanted)(const struct name *frame));
/* Returns true if an operation of torch allocated ROW's memory. */
bool made_by_torch(const struct facts_heap *heap, const struct growth_row *row);
/* Returns true if torch's compiler, or a function that it called, allocated ROW's memory. */
bool made_by_compiler(const struct facts_heap *heap, const struct growth_row *row);

/* Changes of baselines. Live memory varies with batches and garbage collection, so the minimum in
 * the second half of the compared time is compared with the minimum in the first half. */
struct floors {
    /* Growth of three baselines: of the live heap, of all memory held by the allocator (live and
     * free, by its own count), and of resident memory. */
    double live, held, memory;
    /* True if the baseline of resident memory grew, the baseline of the live heap did not, and no
     * call site keeps much memory alive. Call sites are checked because the allocator's own count
     * of the live heap excludes small Python objects. */
    bool is_freed;
};
struct floors baselines_of(const struct question *q); /* NAN if not read */
void evidence_add_baselines(struct hypothesis *h, enum evidence_side side, double weight,
                            const struct floors *floors);

typedef void hypothesis_test(const struct question *q, struct hypothesis *h);
hypothesis_test test_launcher, test_workers, test_copy_on_write, test_compile, test_processes;
hypothesis_test test_data_load, test_first_touch, test_accumulation, test_eval_spike,
    test_eval_step, test_no_growth;
hypothesis_test test_python_objects, test_tensors, test_autograd, test_call_site, test_retention;
hypothesis_test test_mapped_files, test_shared_memory, test_pinned, test_gpu, test_swap, test_thp;
hypothesis_test test_gpu_fragments;
