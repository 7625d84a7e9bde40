/* How a hypothesis is tested: evidence is said, weighed and added up. For hypothesis*.c alone. */
#pragma once

#include "base/text.h"
#include "diagnose/hypothesis.h"

/* Log-odds. DECIDES alone rules out, or makes nearly certain. */
enum { WEAK = 1, FAIR = 2, STRONG = 4, DECIDES = 9 };

void say(struct hypothesis *h, enum evidence_side side, double weight, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void decide_by(struct hypothesis *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sizes in sentences. */
struct sizes {
    char text[6][TEXT_SIZE_MAX];
};
const char *size_of(struct sizes *s, size_t place, double bytes);   /* "98.0 MiB" */
const char *change_of(struct sizes *s, size_t place, double bytes); /* "+98.0 MiB" */

/* BYTES of what is to be explained, 0 to 1. */
double share_of(const struct question *q, double bytes);
double main_at(const struct question *q, enum sample_process_field field, double t_s);
double main_growth(const struct question *q, enum sample_process_field field);
/* Growth of main's figure NAME between the moments; NAN. */
double figure_growth(const struct question *q, const char *name);
/* Of what can leak at T_S: resident but for file cache, and swapped out. NAN. */
double leakable_at(const struct question *q, double t_s);
/* "train.py:41 collate", raw. */
enum { PLACE_MAX = 120 };
const char *place_text(char out[PLACE_MAX], const struct growth_row *row);
/* The heap's growth by profiler or else by the allocator; NAN. */
double heap_growth(const struct question *q);

typedef void hypothesis_test(const struct question *q, struct hypothesis *h);
hypothesis_test test_launcher, test_workers, test_copy_on_write, test_compile;
hypothesis_test test_data_load, test_first_touch, test_accumulation, test_eval_spike,
    test_eval_step, test_no_growth;
hypothesis_test test_python_objects, test_tensors, test_autograd, test_call_site, test_retention;
hypothesis_test test_mapped_files, test_shared_memory, test_pinned, test_gpu, test_swap, test_thp;
