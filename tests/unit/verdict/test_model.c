/* Tests the trend of a series, the features of the evidence, and the probability of a leak. */
#include "verdict/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "verdict/verdict.h"

enum { N = 60 };
static const double MB = 1e6;

/* Returns the trend of N readings, SLOW seconds apart. At the elapsed fraction X of the time,
 * memory is K * Y(X) bytes. */
static struct trend trend_shaped(double y(double part), double k, double slow)
{
    double x[N], bytes[N];
    struct trend t;
    for (int i = 0; i < N; i++) {
        x[i] = slow * i;
        bytes[i] = k * y((double)i / (N - 1));
    }
    trend_of_points(x, bytes, N, 0, &t);
    return t;
}

static double line(double part)
{
    return (500 + 300 * part) * MB;
}

static double small_line(double part)
{
    return (500 + 10 * part) * MB;
}

static double ramp(double part)
{
    return (500 + 300 * fmin(1, 3 * part)) * MB;
}

static double flat(double part)
{
    return 500 * MB + 0 * part;
}

static double leak_probability(const struct model_evidence *e)
{
    double f[MODEL_COUNT], c[MODEL_COUNT];
    assert_true(model_features(e, f));
    return model_probability(f, MODEL_OVER, c);
}

static struct model_evidence resident(double y(double part))
{
    return (struct model_evidence){.resident = trend_shaped(y, 1, 1), .moment = MODEL_OVER};
}

/* Returns evidence in which every series has the same shape. */
static struct model_evidence everywhere(double y(double part))
{
    struct model_evidence e = resident(y);
    struct trend t = e.resident;
    e.live = t;
    e.sites = (struct model_sites){.known = true, .kept = t, .by_work = t, .settled = t};
    e.sites.grown = t.third * t.growth / 2;
    e.sites.grown_late = t.third * t.growth / 4;
    return e;
}

static void linear_growth_is_forecast_to_continue(void **state)
{
    struct trend t = trend_shaped(line, 1, 1);
    (void)state;
    assert_true(t.known);
    assert_true(fabs(t.growth - 300 * MB) < 1 * MB);
    assert_true(fabs(t.third - 1) < 0.05 && fabs(t.sixth - 1) < 0.05);
    assert_true(t.forecast > 250 * MB && t.forecast < 350 * MB);
    assert_true(t.lasting > 0);
}

static void memory_is_forecast_to_be_constant_after_growth_stopped(void **state)
{
    struct trend t = trend_shaped(ramp, 1, 1);
    (void)state;
    assert_true(t.third == 0);
    assert_true(t.forecast < 10 * MB);
    assert_true(t.lasting < 0);
}

static void model_features_do_not_depend_on_the_unit_of_bytes(void **state)
{
    static double (*const shapes[])(double) = {line, small_line, ramp, flat};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model_evidence a = resident(shapes[i]), b = a, c = a;
        double fa[MODEL_COUNT], fb[MODEL_COUNT], fc[MODEL_COUNT];
        b.resident = trend_shaped(shapes[i], 1024, 1);
        c.resident = trend_shaped(shapes[i], 1, 50);
        model_features(&a, fa);
        model_features(&b, fb);
        model_features(&c, fc);
        for (size_t k = 0; k < MODEL_COUNT; k++) {
            assert_true(fabs(fa[k] - fb[k]) < 1e-3);
            assert_true(fabs(fa[k] - fc[k]) < 1e-6);
        }
    }
}

static void model_calls_lasting_growth_a_leak_but_not_a_full_cache(void **state)
{
    struct model_evidence grows = everywhere(line), stands = everywhere(flat),
                          filled = everywhere(ramp);
    (void)state;
    assert_int_equal(verdict_leak_of(leak_probability(&grows), true), VERDICT_LEAK_YES);
    assert_int_equal(verdict_leak_of(leak_probability(&stands), true), VERDICT_LEAK_NO);
    assert_int_equal(verdict_leak_of(leak_probability(&filled), true), VERDICT_LEAK_NO);
}

static void more_evidence_of_growth_never_lowers_leak_probability(void **state)
{
    struct model_evidence e = resident(line);
    double before = leak_probability(&e);
    (void)state;
    e.sites = (struct model_sites){.known = true, .kept = e.resident, .by_work = e.resident};
    double kept = leak_probability(&e);
    e.sites.settled = e.resident;
    double settled = leak_probability(&e);
    e.sites.grown = 150 * MB;
    e.sites.grown_late = 75 * MB;
    double grown = leak_probability(&e);
    assert_true(before <= kept && kept <= settled && settled <= grown);
}

static void contributions_of_model_features_add_up_to_the_log_odds(void **state)
{
    struct model_evidence e = everywhere(line), none = resident(flat);
    double f[MODEL_COUNT], c[MODEL_COUNT], bias[MODEL_COUNT], sum = 0;
    (void)state;
    model_features(&e, f);
    double p = model_probability(f, MODEL_OVER, c);
    for (size_t i = 0; i < MODEL_COUNT; i++)
        sum += c[i];
    model_features(&none, f);
    memset(f, 0, sizeof f);
    double p0 = model_probability(f, MODEL_OVER, bias);
    assert_true(fabs(log(p / (1 - p)) - log(p0 / (1 - p0)) - sum) < 1e-6);
}

static void model_has_no_features_for_too_few_readings(void **state)
{
    const double x[] = {0, 1, 2}, y[] = {1, 2, 3};
    struct model_evidence e = {.moment = MODEL_OVER};
    double f[MODEL_COUNT];
    (void)state;
    trend_of_points(x, y, 3, 0, &e.resident);
    assert_false(e.resident.known);
    assert_false(model_features(&e, f));
    trend_of_points(x, y, 0, 0, &e.resident);
    assert_false(e.resident.known);
}

static void every_model_feature_has_a_name_and_a_text(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODEL_COUNT; i++) {
        assert_true(strlen(model_feature_name((enum model_feature)i)) > 0);
        assert_true(strlen(model_feature_text((enum model_feature)i)) > 10);
    }
}

static const struct verdict_limit limit = {true, 1000 << 20, 0};

/* Adds SECONDS seconds of readings to a series; Y returns the memory at the elapsed fraction of
 * that time. */
static void feed(struct verdict_series *v, double y(double part), int seconds)
{
    assert_int_equal(verdict_init(v, NULL), 0);
    for (int i = 0; i < 5 * seconds; i++)
        verdict_update(v, (int64_t)i * 200000000, (uint64_t)y(i / (5.0 * seconds)));
}

static void model_probability_decides_an_undecided_verdict(void **state)
{
    struct verdict_series v;
    struct verdict_result r;
    (void)state;
    feed(&v, flat, 60);
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    r.probability = 0.95;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 1000, false);
    assert_int_equal(r.word, VERDICT_LEAKING);
    /* Without a known epoch, confidence is at most 90 %. */
    assert_true(r.confidence == 0.9 && r.rate_bytes_per_min.known);
    assert_int_equal(r.evidence[0].code, VERDICT_SAID_WEIGHED);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    r.probability = 0.05;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 0, false);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    assert_true(r.confidence == 0.95);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 0,
                   true); /* the growth is outside the heap */
    assert_int_equal(r.word, VERDICT_UNDECIDED);
    assert_true(r.confidence <= 0.65);
}

static void out_of_memory_forecast_is_dropped_if_there_is_no_leak(void **state)
{
    const struct verdict_evidence oom = {.code = VERDICT_SAID_PEAK_OOM, .value = {1, 60, 120, 0}};
    struct verdict_series v;
    struct verdict_result r;
    (void)state;
    feed(&v, flat, 60);
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    r.word = VERDICT_UNDECIDED;
    r.leak = VERDICT_LEAK_UNKNOWN;
    verdict_put_evidence_first(&r, &oom);
    r.probability = 0.05;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 0, false);
    assert_int_equal(r.leak, VERDICT_LEAK_NO);
    for (uint32_t i = 0; i < r.n_evidence; i++)
        assert_int_not_equal(r.evidence[i].code, VERDICT_SAID_PEAK_OOM);
}

static void leaking_verdict_of_a_job_that_ended_overrides_the_model(void **state)
{
    struct verdict_series v;
    struct verdict_result r;
    (void)state;
    feed(&v, line, 1200);
    verdict_job_over(&v);
    verdict_judge(&v, NULL, &r);
    assert_int_equal(r.word, VERDICT_LEAKING);
    r.probability = 0.1;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 0, false);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(r.confidence <= 0.65);
}

static void running_job_is_judged_leaking_only_if_nearly_certain(void **state)
{
    struct verdict_series v;
    struct verdict_result r;
    (void)state;
    feed(&v, flat, 60);
    verdict_judge(&v, &limit, &r);
    enum verdict_word before = r.word;
    r.probability = 0.9;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 1 << 20, false);
    assert_int_equal(r.word, before);
    r.probability = 0.99;
    verdict_settle(&r, &v, &limit, verdict_leak_of(r.probability, v.is_over), 1 << 20, false);
    assert_int_equal(r.word, VERDICT_LEAKING);
    assert_true(r.oom.known && r.oom.eta_s_low > 0 && r.oom.eta_s_low < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_growth_is_forecast_to_continue),
        cmocka_unit_test(memory_is_forecast_to_be_constant_after_growth_stopped),
        cmocka_unit_test(model_features_do_not_depend_on_the_unit_of_bytes),
        cmocka_unit_test(model_calls_lasting_growth_a_leak_but_not_a_full_cache),
        cmocka_unit_test(more_evidence_of_growth_never_lowers_leak_probability),
        cmocka_unit_test(contributions_of_model_features_add_up_to_the_log_odds),
        cmocka_unit_test(model_has_no_features_for_too_few_readings),
        cmocka_unit_test(every_model_feature_has_a_name_and_a_text),
        cmocka_unit_test(model_probability_decides_an_undecided_verdict),
        cmocka_unit_test(out_of_memory_forecast_is_dropped_if_there_is_no_leak),
        cmocka_unit_test(leaking_verdict_of_a_job_that_ended_overrides_the_model),
        cmocka_unit_test(running_job_is_judged_leaking_only_if_nearly_certain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
