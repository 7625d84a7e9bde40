/* Tests growth that is explained by a container with a maximum number of entries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "verdict/one_series.h"

enum { STEPS = 200, MOST = 400 };

static struct verdict_series bytes;
static struct verdict_limited limited;
static struct verdict_container container;

static void read_step(struct verdict_series *s, uint64_t step, uint64_t value)
{
    const struct verdict_mark end = {.kind = VERDICT_MARK_STEP, .has_step = true, .step = step};

    verdict_update(s, (int64_t)step * SECOND - 1, value);
    verdict_mark(s, (int64_t)step * SECOND, &end);
}

/* Each step adds 4 MB to the process. Until step STOPS, each step also adds an entry of
 * CONTAINER_MB to the container. */
static void run_container(uint64_t container_mb, uint64_t stops)
{
    assert_int_equal(verdict_init(&bytes, NULL), 0);
    for (uint64_t s = 1; s <= STEPS; s++) {
        uint64_t entries = s < stops ? s : stops;

        read_step(&v, s, 500 * MB + 4 * s * MB + s % 3 * MB / 10);
        read_step(&bytes, s, entries * container_mb * MB);
        container = (struct verdict_container){&bytes, (double)entries, MOST, false};
    }
    verdict_judge(&v, NULL, &r);
}

static bool find(const struct verdict_series *live)
{
    return verdict_find_limited(&v, live, &container, &limited);
}

static void assert_near(double value, double expected)
{
    assert_true(value > 0.95 * expected && value < 1.05 * expected);
}

static void growth_in_a_container_with_a_limit_is_judged_filling(void **state)
{
    char text[VERDICT_TEXT_MAX];

    (void)state;
    run_container(4, STEPS);
    assert_true(find(NULL));
    verdict_set_limited(&r, &v, NULL, &limited);
    assert_int_equal(r.word, VERDICT_FILLING);
    assert_int_equal(r.leak, VERDICT_LEAK_UNKNOWN);
    assert_false(r.alarm);
    assert_true(r.forecast.is_limited && r.forecast.has_ceiling && r.forecast.has_step);
    assert_near(r.forecast.ceiling_bytes, (500 + 4 * MOST) * (double)MB);
    assert_near((double)r.forecast.decided_at_step, MOST);
    assert_string_equal(verdict_evidence_text(text, sizeof text, &r.evidence[0]),
                        "100 % of the growth is in a container that is 50 % full; about 760 MiB "
                        "until it is full");
}

static void growth_is_not_explained_by_a_container_with_a_small_share(void **state)
{
    (void)state;
    run_container(1, STEPS);
    assert_false(find(NULL));
}

static void forecast_includes_memory_beyond_the_size_of_the_container(void **state)
{
    struct verdict_series live;

    (void)state;
    run_container(1, STEPS);
    live = bytes;
    assert_true(find(&live));
    /* each entry needs more memory in the process than the container's own size shows */
    assert_near(limited.left_bytes, 4.0 * (MOST - STEPS) * (double)MB);
}

static void container_that_outgrows_process_memory_explains_no_growth(void **state)
{
    (void)state;
    run_container(10, STEPS);
    assert_false(find(NULL));
}

static void container_without_a_limit_does_not_explain_growth(void **state)
{
    (void)state;
    run_container(4, STEPS);
    container.most = 0;
    assert_false(find(NULL));
}

static void container_that_stopped_growing_does_not_explain_new_growth(void **state)
{
    (void)state;
    run_container(8, STEPS / 2);
    assert_false(find(NULL));
}

static void growth_in_a_container_that_just_filled_is_judged_undecided(void **state)
{
    (void)state;
    run_container(4, STEPS);
    container.most = STEPS;
    assert_true(find(NULL));
    assert_false(limited.is_growing);
    verdict_set_limited(&r, &v, NULL, &limited);
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_LIMITED);
}

/* When the container is full, the process needs 500 MB, plus 4 MB for each of the container's 400
 * entries. */
static void full_container_is_forecast_to_fit_only_below_memory_limit(void **state)
{
    struct verdict_limit limit = {.known = true, .limit_bytes = 2200 * MB};

    (void)state;
    run_container(4, STEPS);
    assert_true(find(NULL));
    assert_true(verdict_limited_fits(&r, &limit, &limited));
    limit.limit_bytes = 2000 * MB;
    assert_false(verdict_limited_fits(&r, &limit, &limited));
    assert_true(verdict_limited_fits(&r, NULL, &limited));
}

static uint64_t until_half(uint64_t step)
{
    return step < STEPS / 2 ? step : STEPS / 2;
}

static void container_that_stopped_growing_explains_growth_that_ended(void **state)
{
    (void)state;
    assert_int_equal(verdict_init(&bytes, NULL), 0);
    for (uint64_t s = 1; s <= STEPS; s++) {
        read_step(&v, s, (500 + 4 * until_half(s)) * MB + s % 3 * MB / 10);
        read_step(&bytes, s, 4 * until_half(s) * MB);
    }
    container = (struct verdict_container){&bytes, STEPS / 2 - 1, STEPS / 2, false};
    assert_true(find(NULL));
    assert_false(limited.is_growing);
}

static void container_with_a_limit_does_not_change_a_plateaued_verdict(void **state)
{
    (void)state;
    run_container(4, STEPS);
    assert_true(find(NULL));
    r.word = VERDICT_PLATEAUED;
    r.leak = VERDICT_LEAK_NO;
    verdict_set_limited(&r, &v, NULL, &limited);
    assert_int_equal(r.word, VERDICT_PLATEAUED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(growth_in_a_container_with_a_limit_is_judged_filling, fresh),
        cmocka_unit_test_setup(growth_is_not_explained_by_a_container_with_a_small_share, fresh),
        cmocka_unit_test_setup(forecast_includes_memory_beyond_the_size_of_the_container, fresh),
        cmocka_unit_test_setup(container_that_outgrows_process_memory_explains_no_growth, fresh),
        cmocka_unit_test_setup(container_without_a_limit_does_not_explain_growth, fresh),
        cmocka_unit_test_setup(container_that_stopped_growing_does_not_explain_new_growth, fresh),
        cmocka_unit_test_setup(growth_in_a_container_that_just_filled_is_judged_undecided, fresh),
        cmocka_unit_test_setup(full_container_is_forecast_to_fit_only_below_memory_limit, fresh),
        cmocka_unit_test_setup(container_that_stopped_growing_explains_growth_that_ended, fresh),
        cmocka_unit_test_setup(container_with_a_limit_does_not_change_a_plateaued_verdict, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
