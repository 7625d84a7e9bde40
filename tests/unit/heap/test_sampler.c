/* Tests sample probabilities and weights against theory, and the interval under a simulated clock.
 * Random seeds are fixed. Results may differ from theory by five standard deviations. */
#include "heap/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fresh_table.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define BASE (UINT64_C(512) << 10)

static void assert_near(double value, double expected, double margin)
{
    if (!(fabs(value - expected) <= margin))
        fail_msg("%.17g is not within %g of %.17g", value, margin, expected);
}

static void sample_probability_is_exact_for_all_sizes(void **state)
{
    (void)state;
    for (uint64_t size = 1; size < UINT64_C(1) << 62; size = size * 5 / 3 + 1)
        for (uint64_t interval = 64; interval <= SAMPLER_INTERVAL_MAX; interval *= 4) {
            double expected = -expm1(-(double)size / (double)interval);
            assert_near(sampler_probability(size, interval) / expected, 1, 1e-13);
        }
}

static void sample_probability_is_never_zero(void **state)
{
    (void)state;
    assert_true(sampler_probability(0, SAMPLER_INTERVAL_MAX) > 0);
    assert_true(sampler_probability(1, UINT64_MAX) > 0);
    assert_true(sampler_probability(0, 0) > 0);
    assert_true(sampler_probability(UINT64_MAX, 1) == 1);
}

static void sampling_draw_is_minus_interval_times_ln_of_random_number(void **state)
{
    uint64_t random = 1, same = 1;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        uint64_t interval = UINT64_C(64) << i % 32;
        double expected = -log(1 - sampler_fraction(&same)) * (double)interval;
        int64_t drawn = sampler_draw(&random, interval);
        assert_true(drawn >= 1);
        assert_near((double)drawn, expected + 0.5, 0.5 + expected * 1e-12);
    }
}

static void sampling_draws_have_an_exponential_mean_and_tail(void **state)
{
    enum { TIMES = 400000 };
    uint64_t random = 7;
    double sum = 0, above = 0, n = TIMES;

    (void)state;
    for (int i = 0; i < TIMES; i++) {
        double x = (double)sampler_draw(&random, BASE) / (double)BASE;
        sum += x;
        above += x > 1;
    }
    assert_near(sum / n, 1, 5 / sqrt(n));
    double tail = exp(-1);
    assert_near(above / n, tail, 5 * sqrt(tail * (1 - tail) / n));
}

/* Counts down as the hot path of the hooks does. */
static bool allocate(struct heap_thread *t, size_t size, uint64_t *ret_interval)
{
    t->countdown -= (int64_t)size;
    return t->countdown < 0 && sampler_hit(t, size, ret_interval);
}

static void check_weights(size_t size, uint64_t interval)
{
    struct heap_thread t = {.random = size * 977 + interval, .interval = interval};
    double p = sampler_probability(size, interval), bytes = 0, objects = 0;
    double wanted = 400 / p;
    int times = wanted > 2000000 ? 2000000 : (int)wanted;

    heap_process.base_interval = interval;
    sampler_reset();
    t.countdown = sampler_draw(&t.random, interval) - 1;
    for (int i = 0; i < times; i++) {
        uint64_t drawn_under;
        if (!allocate(&t, size, &drawn_under))
            continue;
        assert_int_equal(drawn_under, interval);
        bytes += (double)size / sampler_probability(size, drawn_under);
        objects += 1 / sampler_probability(size, drawn_under);
    }
    /* If every block is sampled, only rounding errors remain. */
    double margin = 5 * sqrt(times * (1 - p) / p) + 1e-9 * times;
    assert_near(objects, times, margin);
    assert_near(bytes / (double)size, times, margin);
}

static void sample_weights_add_up_to_the_allocated_bytes(void **state)
{
    static const size_t sizes[] = {1,    7,     16,     24,      100,      1000,
                                   4096, 50000, 524288, 3000000, 100000000};
    static const uint64_t intervals[] = {64, 4096, 65536, BASE, 64 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t k = 0; k < sizeof(intervals) / sizeof(intervals[0]); k++)
            check_weights(sizes[i], intervals[k]);
}

static void sample_weights_of_mixed_sizes_add_up_to_allocated_bytes(void **state)
{
    struct heap_thread t = {.random = 99};
    uint64_t choice = 5, interval;
    double truth = 0, estimate = 0, variance = 0;

    (void)state;
    heap_process.base_interval = 4096;
    sampler_reset();
    for (int i = 0; i < 1000000; i++) {
        size_t size = (size_t)1 << sampler_random(&choice) % 18;
        if (i % 1000 == 0)
            sampler_set_floor(UINT64_C(4096) << i / 1000 % 5);
        truth += (double)size;
        if (allocate(&t, size, &interval)) {
            double p = sampler_probability(size, interval), weight = (double)size / p;
            estimate += weight;
            variance += weight * weight * (1 - p);
        }
    }
    assert_near(estimate, truth, 5 * sqrt(variance));
}

static void first_allocation_of_a_thread_is_sampled_at_the_usual_rate(void **state)
{
    enum { TIMES = 20000 };
    double hits = 0, p = sampler_probability(BASE, BASE);

    (void)state;
    for (int i = 0; i < TIMES; i++) {
        struct heap_thread t = {0};
        uint64_t interval = 0;
        hits += allocate(&t, BASE, &interval);
        assert_true(t.random != 0);
        assert_true(t.countdown >= 0);
        assert_int_equal(t.interval, BASE);
    }
    /* These seeds differ in every run, so seven standard deviations are allowed. */
    assert_near(hits, p * TIMES, 7 * sqrt(TIMES * p * (1 - p)));
}

static void each_new_thread_gets_a_different_random_seed(void **state)
{
    struct heap_thread t = {0};
    uint64_t interval, first;

    (void)state;
    sampler_hit(&t, 1, &interval);
    first = t.random;
    t = (struct heap_thread){0};
    sampler_hit(&t, 1, &interval);
    assert_true(t.random != first);
}

static void negative_countdown_does_not_change_the_sample_rate(void **state)
{
    enum { TIMES = 20000, SIZE = 1000 };
    struct heap_thread t = {.random = 3, .interval = 4096};
    double hits = 0, p = sampler_probability(SIZE, 4096);

    (void)state;
    heap_process.base_interval = 4096;
    sampler_reset();
    for (int i = 0; i < TIMES; i++) {
        uint64_t interval;
        t.countdown = -100; /* An allocation inside the library leaves a negative countdown. */
        hits += allocate(&t, SIZE, &interval);
    }
    assert_near(hits, p * TIMES, 5 * sqrt(TIMES * p * (1 - p)));
}

static void unsampled_allocations_are_included_in_total_allocated_bytes(void **state)
{
    struct heap_thread threads[2] = {{0}, {.random = 9}};
    uint64_t total = 0, interval;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t size = (size_t)(i % 1000) * 100 + 1;
        allocate(&threads[i % 2], size, &interval);
        total += size;
    }
    uint64_t counted = atomic_load(&heap_process.table->header.allocated_bytes);
    for (int i = 0; i < 2; i++)
        counted += (uint64_t)(threads[i].drawn - threads[i].countdown);
    assert_int_equal(counted, total);
}

static void allocation_of_zero_bytes_is_not_sampled(void **state)
{
    struct heap_thread t = {0};
    uint64_t interval = 77;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        t.countdown = -i;
        assert_false(sampler_hit(&t, 0, &interval));
        assert_true(t.countdown >= 0);
    }
    assert_int_equal(interval, 77);
}

static void largest_sizes_are_sampled_without_overflow(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t)1 << 62};
    uint64_t interval;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct heap_thread t = {.random = i + 1, .countdown = INT64_MIN};
        assert_true(sampler_hit(&t, sizes[i], &interval));
        assert_true(t.countdown >= 0);
        t = (struct heap_thread){.random = i + 1, .countdown = -1, .interval = BASE};
        assert_true(sampler_hit(&t, sizes[i], &interval));
        assert_true(t.countdown >= 0);
    }
}

static void raised_sampling_interval_applies_from_the_next_draw_on(void **state)
{
    struct heap_thread t = {.random = 1, .countdown = INT64_MIN};
    uint64_t interval;

    (void)state;
    assert_true(sampler_hit(&t, SIZE_MAX, &interval));
    assert_int_equal(interval, BASE);
    sampler_set_floor(8 * BASE);
    t.countdown -= INT64_C(1) << 40;
    assert_true(sampler_hit(&t, (size_t)1 << 40, &interval));
    assert_int_equal(interval, BASE);
    t.countdown -= INT64_C(1) << 40;
    assert_true(sampler_hit(&t, (size_t)1 << 40, &interval));
    assert_int_equal(interval, 8 * BASE);
}

static void sampling_intervals_are_rounded_up_to_64_bytes(void **state)
{
    static const uint64_t asked[][2] = {{1, 64}, {64, 64}, {65, 128}, {100000, 100032}, {0, BASE}};

    (void)state;
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        heap_process.base_interval = asked[i][0];
        sampler_reset();
        assert_int_equal(sampler_interval(), asked[i][1]);
        assert_int_equal(heap_process.table->header.interval, asked[i][1]);
    }
    sampler_set_floor(UINT64_MAX);
    assert_int_equal(sampler_interval(), SAMPLER_INTERVAL_MAX);
}

/* Simulates a thread that allocates at the rate BYTES_PER_SECOND for SECONDS, from *NOW on. Returns
 * the number of samples per second in the last 20 s. */
static int churn(uint64_t *now, double bytes_per_second, int seconds)
{
    uint64_t end = *now + (uint64_t)seconds * SECOND, random = *now + 1;
    int last = 0;
    for (;;) {
        double gap = (double)sampler_draw(&random, sampler_interval()) / bytes_per_second;
        *now += (uint64_t)(gap * 1e9);
        if (*now >= end)
            break;
        last += end - *now < 20 * SECOND;
        sampler_adapt(false, *now);
    }
    *now = end;
    return last / 20;
}

static void low_sample_rate_leaves_the_sampling_interval_unchanged(void **state)
{
    uint64_t now = SECOND;

    (void)state;
    for (int i = 0; i < 1000; i++, now += 12 * MS)
        sampler_adapt(false, now);
    assert_int_equal(sampler_interval(), BASE);
}

static void high_sample_rate_raises_the_interval_until_the_rate_falls(void **state)
{
    uint64_t now = SECOND;

    (void)state;
    for (double bytes = 1e8; bytes < 1e12; bytes *= 10)
        assert_in_range(churn(&now, bytes, 30), SAMPLER_RATE / 4, SAMPLER_RATE + SAMPLER_RATE / 10);
    assert_true(sampler_interval() >= 1024 * BASE);
    assert_int_equal(heap_process.table->header.interval, sampler_interval());
    churn(&now, 1e7, 3600);
    assert_int_equal(sampler_interval(), BASE);
    assert_int_equal(heap_process.table->header.interval, BASE);
}

static void burst_larger_than_the_token_bucket_raises_the_interval(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SAMPLER_RATE; i++)
        sampler_adapt(false, SECOND);
    assert_int_equal(sampler_interval(), BASE);
    sampler_adapt(false, SECOND);
    assert_in_range(sampler_interval(), 2 * BASE, 8 * BASE);
}

static void short_bursts_at_a_low_mean_rate_keep_the_sampling_interval(void **state)
{
    uint64_t now = SECOND;

    (void)state;
    for (int step = 0; step < 1000; step++, now += 500 * MS)
        /* The bursts add up to half of SAMPLER_RATE on average. */
        for (int i = 0; i < SAMPLER_RATE / 4; i++)
            sampler_adapt(false, now + (uint64_t)i * 20000);
    assert_int_equal(sampler_interval(), BASE);
}

static void sampling_interval_is_lowered_stepwise_in_quiet_periods(void **state)
{
    uint64_t now = SECOND;

    (void)state;
    for (int i = 0; i <= 2 * SAMPLER_RATE; i++)
        sampler_adapt(false, now);
    uint64_t raised = sampler_interval();
    sampler_adapt(false, now += 100 * MS);
    assert_int_equal(sampler_interval(), raised);
    sampler_adapt(false, now += SECOND);
    assert_int_equal(sampler_interval(), raised / 2);
    for (int i = 0; i < 10; i++)
        sampler_adapt(false, now += SECOND);
    assert_int_equal(sampler_interval(), BASE);
}

static void raised_minimum_sampling_interval_is_kept_until_a_reset(void **state)
{
    uint64_t now = SECOND;

    (void)state;
    sampler_set_floor(4 * BASE);
    assert_int_equal(sampler_interval(), 4 * BASE);
    for (int i = 0; i < 100; i++)
        sampler_adapt(false, now += 10 * SECOND);
    assert_int_equal(sampler_interval(), 4 * BASE);
    sampler_reset();
    assert_int_equal(sampler_interval(), BASE);
    assert_int_equal(sampler_floor(false), BASE);
}

static void sampling_interval_is_unchanged_if_the_clock_goes_backwards(void **state)
{
    uint64_t now = 100 * SECOND;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        now += 20 * MS;
        sampler_adapt(false, i % 2 ? now - 30 * MS : now);
    }
    assert_int_equal(sampler_interval(), BASE);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh_table, drop_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(sample_probability_is_exact_for_all_sizes),
        FRESH(sample_probability_is_never_zero),
        FRESH(sampling_draw_is_minus_interval_times_ln_of_random_number),
        FRESH(sampling_draws_have_an_exponential_mean_and_tail),
        FRESH(sample_weights_add_up_to_the_allocated_bytes),
        FRESH(sample_weights_of_mixed_sizes_add_up_to_allocated_bytes),
        FRESH(first_allocation_of_a_thread_is_sampled_at_the_usual_rate),
        FRESH(each_new_thread_gets_a_different_random_seed),
        FRESH(negative_countdown_does_not_change_the_sample_rate),
        FRESH(unsampled_allocations_are_included_in_total_allocated_bytes),
        FRESH(allocation_of_zero_bytes_is_not_sampled),
        FRESH(largest_sizes_are_sampled_without_overflow),
        FRESH(raised_sampling_interval_applies_from_the_next_draw_on),
        FRESH(sampling_intervals_are_rounded_up_to_64_bytes),
        FRESH(low_sample_rate_leaves_the_sampling_interval_unchanged),
        FRESH(high_sample_rate_raises_the_interval_until_the_rate_falls),
        FRESH(burst_larger_than_the_token_bucket_raises_the_interval),
        FRESH(short_bursts_at_a_low_mean_rate_keep_the_sampling_interval),
        FRESH(sampling_interval_is_lowered_stepwise_in_quiet_periods),
        FRESH(raised_minimum_sampling_interval_is_kept_until_a_reset),
        FRESH(sampling_interval_is_unchanged_if_the_clock_goes_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
