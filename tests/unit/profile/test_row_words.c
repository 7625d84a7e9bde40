/* Tests that heap rows never contradict the verdict on the job, whatever the sampling error. */
#include "profile/growth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "profile/known_heap.h"

enum { READINGS = 40, STEPS_PER_READING = 10, SITES = 5, SEEDS = 40 };
#define KIB 1024.0
#define MIB 1048576.0
static const double z95 = 1.96;

/* A run of 20 s in which the heap is read twice per second. */
struct run {
    struct known_heap heap;
    struct names *names;
    struct profile_reading readings[READINGS];
    struct profile_held held[READINGS][KNOWN_SITES];
    struct growth_mark marks[READINGS];
    struct growth growth;
    struct err err;
    uint64_t random;
};

/* A call site: the size of its objects, and the bytes that it allocates just before reading I and
 * never frees. */
struct site_plan {
    const char *function;
    double object_bytes;
    double (*kept_bytes)(size_t i, double leak_bytes);
    double passing_bytes; /* bytes that are live at every second reading */
};

static double keeps_none(size_t i, double leak_bytes)
{
    (void)i, (void)leak_bytes;
    return 0;
}

static double keeps_leak(size_t i, double leak_bytes)
{
    return i ? leak_bytes / READINGS : 0;
}

static double keeps_half_of_leak(size_t i, double leak_bytes)
{
    return keeps_leak(i, leak_bytes) / 2;
}

static double keeps_at_start(size_t i, double leak_bytes)
{
    return i ? 0 : leak_bytes;
}

static double fills_first_fifth(size_t i, double leak_bytes)
{
    return i && i <= READINGS / 5 ? leak_bytes / (READINGS / 5) : 0;
}

static const struct site_plan plans[SITES] = {
    {"leak", 200 * KIB, keeps_leak, 0},
    {"leak_beside_batches", 16 * KIB, keeps_half_of_leak, 24 * MIB},
    {"load", 64 * KIB, keeps_at_start, 0},
    {"fill", 48 * KIB, fills_first_fifth, 0},
    {"batch", 400 * KIB, keeps_none, 32 * MIB},
};

static double random_share(struct run *r)
{
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(r->random >> 11) / 9007199254740992.0;
}

/* Adds the samples of BYTES allocated in objects of OBJECT_BYTES, one sample per INTERVAL bytes. */
static void add_samples(struct run *r, double bytes, double object_bytes, double interval,
                        double *live, double *variance)
{
    double p = -expm1(-object_bytes / interval), weight = object_bytes / p;
    for (double at = object_bytes; at <= bytes; at += object_bytes) {
        if (random_share(r) >= p)
            continue;
        *live += weight;
        *variance += weight * weight * (1 - p);
    }
}

static void read_site(struct run *r, uint32_t site, const struct site_plan *plan, double leak_bytes,
                      double interval)
{
    double kept = 0, kept_variance = 0;
    for (size_t i = 0; i < READINGS; i++) {
        add_samples(r, plan->kept_bytes(i, leak_bytes), plan->object_bytes, interval, &kept,
                    &kept_variance);
        double live = kept, variance = kept_variance;
        if (i % 2)
            add_samples(r, plan->passing_bytes, plan->object_bytes, interval, &live, &variance);
        if (live > 0)
            r->held[i][r->readings[i].count++] =
                (struct profile_held){.site = site,
                                      .live_bytes = live,
                                      .live_objects = 1,
                                      .live_variance = variance,
                                      .allocated_bytes = live + (double)i * plan->passing_bytes};
    }
}

static struct run *run_new(uint64_t seed, double leak_bytes, double interval)
{
    struct run *r = calloc(1, sizeof *r);
    const struct symbols_options options = {0};
    assert_non_null(r);
    known_heap_init(&r->heap);
    r->random = seed * 7919 + 17;
    r->heap.profile.start_ns = 1000;
    r->heap.profile.readings = r->readings;
    r->heap.profile.n_readings = READINGS;
    for (size_t i = 0; i < READINGS; i++) {
        uint64_t t_ns = 1000 + (i + 1) * UINT64_C(500000000), step = (i + 1) * STEPS_PER_READING;
        r->readings[i] = (struct profile_reading){
            .t_ns = t_ns, .has_step = true, .step = (int64_t)step, .held = r->held[i]};
        r->marks[i] =
            (struct growth_mark){t_ns, {.kind = VERDICT_MARK_STEP, .has_step = true, .step = step}};
    }
    for (size_t i = 0; i < SITES; i++) {
        uint32_t node =
            known_python(&r->heap, 0, "/home/u/train.py", plans[i].function, (uint32_t)(10 + i));
        uint32_t site = (uint32_t)r->heap.profile.n_sites++;
        r->heap.site_node[site] = node;
        read_site(r, site, &plans[i], leak_bytes, interval);
    }
    assert_int_equal(names_new(&r->heap.profile, &options, &r->names), 0);
    return r;
}

static void run_free(struct run *r)
{
    growth_fini(&r->growth);
    names_free(r->names);
    free(r);
}

static void judge_rows(struct run *r, enum verdict_word job)
{
    const struct growth_options o = {
        .minds_program = true, .job_word = job, .marks = r->marks, .n_marks = READINGS};
    growth_fini(&r->growth);
    assert_int_equal(growth_of(&r->heap.profile, r->names, &o, &r->growth, &r->err), 0);
}

static const struct growth_row *row_of(const struct run *r, const char *function)
{
    for (size_t i = 0; i < r->growth.count; i++)
        if (strcmp(r->growth.rows[i].name->function, function) == 0)
            return &r->growth.rows[i];
    return NULL;
}

static bool is_sure(const struct growth_row *row)
{
    return row && row->growth_bytes > z95 * row->growth_sigma;
}

static const double intervals[] = {64 * KIB, 512 * KIB, 2 * MIB, 4 * MIB, 8 * MIB};
enum { INTERVALS = sizeof intervals / sizeof *intervals };

/* Calls CHECK on many runs. The runs differ in their seeds, in their sampling intervals, and in the
 * size of the leak, 40 to 320 MiB. Returns the number of runs for which CHECK returned false. */
static size_t count_runs(bool (*check)(struct run *r), size_t *ret_asked)
{
    size_t failed = 0, asked = 0;
    for (size_t i = 0; i < INTERVALS; i++)
        for (double leak = 40 * MIB; leak <= 320 * MIB; leak *= 2)
            for (uint64_t seed = 0; seed < SEEDS; seed++, asked++) {
                struct run *r = run_new(seed, leak, intervals[i]);
                failed += !check(r);
                run_free(r);
            }
    *ret_asked = asked;
    return failed;
}

static bool leak_shares_the_word(struct run *r)
{
    static const char *const leaks[] = {"leak", "leak_beside_batches"};
    judge_rows(r, VERDICT_LEAKING);
    for (size_t i = 0; i < 2; i++) {
        const struct growth_row *row = row_of(r, leaks[i]);
        if (is_sure(row) && row->verdict.leak != VERDICT_LEAK_YES)
            return false;
    }
    return true;
}

static bool leak_is_first(struct run *r)
{
    judge_rows(r, VERDICT_LEAKING);
    return !is_sure(row_of(r, "leak")) || strncmp(r->growth.rows[0].name->function, "leak", 4) == 0;
}

static bool ended_growth_is_no_leak(struct run *r)
{
    judge_rows(r, VERDICT_LEAKING);
    const struct growth_row *load = row_of(r, "load"), *fill = row_of(r, "fill");
    return !(load && load->verdict.leak == VERDICT_LEAK_YES) &&
           !(fill && fill->verdict.leak == VERDICT_LEAK_YES);
}

static bool no_row_leaks(struct run *r)
{
    judge_rows(r, VERDICT_PLATEAUED);
    for (size_t i = 0; i < r->growth.count; i++)
        if (r->growth.rows[i].verdict.leak == VERDICT_LEAK_YES)
            return false;
    return true;
}

static void leaking_heap_row_is_shown_as_filling_if_the_job_is_filling(void **state)
{
    static const enum verdict_word words[] = {VERDICT_LEAKING, VERDICT_FILLING};
    struct run *r = run_new(1, 320 * MIB, 64 * KIB);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        judge_rows(r, words[i]);
        const struct growth_row *row = row_of(r, "leak");
        assert_non_null(row);
        if (row)
            assert_int_equal(row->verdict.word, words[i]);
    }
    run_free(r);
}

/* The statistical test for steady growth rejects at most 1 % of the rows that grow steadily. */
static void growing_heap_row_is_judged_leaking_if_the_job_leaks(void **state)
{
    size_t asked, failed = count_runs(leak_shares_the_word, &asked);
    (void)state;
    print_message("[          ] %zu of %zu runs whose leaking row has another verdict word\n",
                  failed, asked);
    assert_true(failed * 100 <= asked);
}

static void growing_heap_row_comes_first_if_the_job_leaks(void **state)
{
    size_t asked, failed = count_runs(leak_is_first, &asked);
    (void)state;
    print_message("[          ] %zu of %zu runs with another row first\n", failed, asked);
    assert_true(failed * 50 <= asked);
}

static void heap_row_whose_growth_ended_is_not_judged_leaking(void **state)
{
    size_t asked, failed = count_runs(ended_growth_is_no_leak, &asked);
    (void)state;
    print_message("[          ] %zu of %zu runs in which ended growth is reported as a leak\n",
                  failed, asked);
    assert_true(failed * 50 <= asked);
}

static void heap_row_of_a_healthy_job_is_never_judged_leaking(void **state)
{
    size_t asked, failed = count_runs(no_row_leaks, &asked);
    (void)state;
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_heap_row_is_judged_leaking_if_the_job_leaks),
        cmocka_unit_test(growing_heap_row_comes_first_if_the_job_leaks),
        cmocka_unit_test(heap_row_whose_growth_ended_is_not_judged_leaking),
        cmocka_unit_test(heap_row_of_a_healthy_job_is_never_judged_leaking),
        cmocka_unit_test(leaking_heap_row_is_shown_as_filling_if_the_job_is_filling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
