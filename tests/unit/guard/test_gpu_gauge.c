/* Tests which memory use of a GPU is compared with which limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/quantity.h"
#include "guard/gpu_gauge.h"
#include "guard/ladder.h"
#include "run/run.h"
#include "verdict/verdict.h"

#define GIB (UINT64_C(1) << 30)

static const struct quantity_size no_limit;

static struct run_entity gpu_with(uint64_t total, uint64_t used, uint64_t job)
{
    struct run_entity e = {.kind = RUN_GPU};
    sample_put(&e.last, GPU_TOTAL, total);
    sample_put(&e.last, GPU_USED, used);
    sample_put(&e.last, GPU_JOB, job);
    return e;
}

static void set_torch(struct run_entity *e, uint64_t allocated, uint64_t peak, uint64_t reserved)
{
    sample_put(&e->last, GPU_ALLOCATED, allocated);
    sample_put(&e->last, GPU_PEAK, peak);
    sample_put(&e->last, GPU_RESERVED, reserved);
}

static void gpu_headroom_is_unknown_without_readings(void **state)
{
    (void)state;
    struct run_entity e = {.kind = RUN_GPU};
    struct ladder_gauge g = {0};
    const struct quantity_size half = {.is_percent = true, .permyriad = 5000};
    gpu_gauge_read(&e, NULL, &no_limit, &g);
    set_torch(&e, GIB, GIB, GIB);
    /* a percentage, while the total memory of the GPU is unknown */
    gpu_gauge_read(&e, NULL, &half, &g);
    assert_false(g.known);
}

static void gpu_memory_cached_by_pytorch_is_treated_as_free(void **state)
{
    (void)state;
    struct run_entity e = gpu_with(80 * GIB, 70 * GIB, 61 * GIB);
    struct ladder_gauge g = {0};
    gpu_gauge_read(&e, NULL, &no_limit, &g);
    assert_true(g.known && g.is_card);
    assert_int_equal(g.room_bytes, 10 * GIB);
    /* PyTorch has reserved 60 GiB, but never used more than 20 GiB of it at the same time. */
    set_torch(&e, 5 * GIB, 20 * GIB, 60 * GIB);
    gpu_gauge_read(&e, NULL, &no_limit, &g);
    assert_int_equal(g.limit_bytes, 80 * GIB);
    assert_int_equal(g.used_bytes, 30 * GIB);
    assert_int_equal(g.room_bytes, 50 * GIB);
}

static void gpu_used_only_by_other_jobs_is_not_guarded(void **state)
{
    (void)state;
    struct run_entity e = gpu_with(80 * GIB, 79 * GIB, 0);
    struct ladder_gauge g = {0};
    gpu_gauge_read(&e, NULL, &no_limit, &g);
    assert_false(g.known);
    /* PyTorch reports memory for this job. The driver does not, because it sees other pids. */
    set_torch(&e, GIB, GIB, GIB);
    gpu_gauge_read(&e, NULL, &no_limit, &g);
    assert_true(g.known);
}

static void gpu_gauge_uses_the_limit_with_less_headroom(void **state)
{
    (void)state;
    const struct quantity_size limit = {.bytes = 40 * GIB};
    struct ladder_gauge g = {0};
    struct run_entity e = gpu_with(80 * GIB, 50 * GIB, 35 * GIB);
    gpu_gauge_read(&e, NULL, &limit, &g);
    assert_true(g.known && !g.is_card);
    assert_int_equal(g.limit_bytes, 40 * GIB);
    assert_int_equal(g.room_bytes, 5 * GIB);
    e = gpu_with(80 * GIB, 77 * GIB, 35 * GIB); /* other jobs have nearly filled the GPU */
    gpu_gauge_read(&e, NULL, &limit, &g);
    assert_true(g.is_card);
    assert_int_equal(g.room_bytes, 3 * GIB);
}

static void gpu_limit_applies_to_pytorch_reading_if_driver_has_none(void **state)
{
    (void)state;
    const struct quantity_size limit = {.bytes = 4 * GIB};
    struct run_entity e = {.kind = RUN_GPU};
    struct ladder_gauge g = {0};
    set_torch(&e, GIB, 3 * GIB, 8 * GIB);
    gpu_gauge_read(&e, NULL, &limit, &g);
    assert_true(g.known && !g.is_card);
    assert_int_equal(g.room_bytes, GIB);
}

static void gpu_forecast_and_gpu_headroom_refer_to_the_same_limit(void **state)
{
    (void)state;
    const struct quantity_size limit = {.bytes = 40 * GIB};
    struct run_entity e = gpu_with(80 * GIB, 35 * GIB, 35 * GIB);
    struct verdict_result r = {.leak = VERDICT_LEAK_YES};
    struct ladder_gauge g = {0};
    r.rate_bytes_per_min = (struct verdict_interval){true, GIB, GIB, 2 * GIB};
    r.oom.known = r.oom.has_t = true;
    r.oom.eta_s_low = 1000;
    gpu_gauge_read(&e, &r, &no_limit, &g);
    assert_true(g.forecast_known && g.forecast_s == 1000);
    gpu_gauge_read(&e, &r, &limit, &g);
    assert_true(g.forecast_known && g.forecast_s == 150);
    r.leak = VERDICT_LEAK_UNKNOWN;
    gpu_gauge_read(&e, &r, &limit, &g);
    assert_false(g.forecast_known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_headroom_is_unknown_without_readings),
        cmocka_unit_test(gpu_memory_cached_by_pytorch_is_treated_as_free),
        cmocka_unit_test(gpu_used_only_by_other_jobs_is_not_guarded),
        cmocka_unit_test(gpu_gauge_uses_the_limit_with_less_headroom),
        cmocka_unit_test(gpu_limit_applies_to_pytorch_reading_if_driver_has_none),
        cmocka_unit_test(gpu_forecast_and_gpu_headroom_refer_to_the_same_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
