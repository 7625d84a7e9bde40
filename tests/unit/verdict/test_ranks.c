/* Tests the comparison of a job's ranks with each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "verdict/ranks.h"

enum { MOST = 64 };
static const double MIB = 1 << 20;

struct group {
    struct verdict_result result[MOST];
    const struct verdict_result *list[MOST];
    double scratch[MOST];
    struct ranks_place place[MOST];
    struct ranks_peers peers;
    size_t n;
};

static void add_rank(struct group *g, double rate, double error, enum verdict_word word)
{
    struct verdict_result *r = &g->result[g->n];
    *r = (struct verdict_result){.word = word, .leak = verdict_word_leak(word), .confidence = 0.7};
    r->rate_bytes_per_step =
        (struct verdict_interval){true, rate, rate - 2.2 * error, rate + 2.2 * error};
    r->detectable_per_step = r->leak == VERDICT_LEAK_NO ? 0.05 * MIB : 0;
    g->list[g->n] = r;
    g->n++;
}

/* Adds N flat ranks with slightly different growth rates. */
static void add_flat(struct group *g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_rank(g, ((double)(i % 5) - 2) * 0.01 * MIB, 0.01 * MIB, VERDICT_STABLE);
}

static void compare(struct group *g)
{
    ranks_compare(g->list, g->n, g->scratch, &g->peers, g->place);
}

static double probability(const struct group *g, size_t i)
{
    return ranks_probability(&g->result[i], &g->place[i], &g->peers);
}

static void one_growing_rank_among_seven_flat_ranks_is_a_leak(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    compare(&g);
    assert_int_equal(g.peers.count, 8);
    assert_int_equal(g.peers.flat, 7);
    assert_true(g.place[7].differs);
    assert_true(probability(&g, 7) > 0.92);
    for (size_t i = 0; i < 7; i++) {
        assert_false(g.place[i].differs);
        assert_true(probability(&g, i) <= 0);
    }
}

static void equal_growth_of_all_ranks_is_not_evidence_of_a_leak(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    for (size_t i = 0; i < 8; i++)
        add_rank(&g, (5 + 0.01 * (double)i) * MIB, 0.1 * MIB, VERDICT_FILLING);
    compare(&g);
    for (size_t i = 0; i < 8; i++) {
        assert_false(g.place[i].differs);
        assert_true(probability(&g, i) <= 0);
    }
}

static void uncertain_growth_of_one_rank_among_flat_ones_is_not_a_leak(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 4 * MIB, VERDICT_UNDECIDED);
    compare(&g);
    assert_false(g.place[7].differs);
    assert_true(probability(&g, 7) < 0.75);
}

static void two_ranks_are_not_compared(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    add_flat(&g, 1);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    compare(&g);
    assert_false(g.place[1].is_compared);
    assert_true(probability(&g, 1) <= 0);
}

static void more_flat_ranks_raise_leak_probability_of_a_growing_rank(void **state)
{
    double before = 0;
    (void)state;
    for (size_t n = 2; n < 40; n++) {
        struct group g = {.n = 0};
        add_flat(&g, n);
        add_rank(&g, 0.5 * MIB, 0.01 * MIB, VERDICT_UNDECIDED);
        compare(&g);
        double p = probability(&g, n);
        /* one more flat rank may change the median and the spread a little */
        assert_true(p >= before - 0.05);
        before = fmax(before, p);
    }
    assert_true(before > 0.92);
}

static void only_the_growing_one_of_nine_ranks_is_marked_as_different(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    add_rank(&g, 0, 0, VERDICT_STABLE);
    compare(&g);
    assert_true(g.place[7].differs);
    assert_false(g.place[8].differs);
}

static void rank_scores_do_not_depend_on_the_order_of_ranks(void **state)
{
    struct group g = {.n = 0}, back = {.n = 0};
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    compare(&g);
    back.n = g.n;
    for (size_t i = 0; i < g.n; i++)
        back.list[i] = g.list[g.n - 1 - i];
    compare(&back);
    for (size_t i = 0; i < g.n; i++)
        assert_true(fabs(g.place[i].score - back.place[g.n - 1 - i].score) < 1e-9);
}

static void rank_scores_do_not_depend_on_the_unit_of_bytes(void **state)
{
    struct group g = {.n = 0}, large;
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    large = g;
    for (size_t i = 0; i < g.n; i++) {
        struct verdict_interval *rate = &large.result[i].rate_bytes_per_step;
        rate->value *= 1000;
        rate->low *= 1000;
        rate->high *= 1000;
        large.result[i].detectable_per_step *= 1000;
        large.list[i] = &large.result[i];
    }
    compare(&g);
    compare(&large);
    for (size_t i = 0; i < g.n; i++)
        assert_true(fabs(g.place[i].score - large.place[i].score) < 1e-9);
}

static void rank_with_only_noise_is_rarely_reported_as_different(void **state)
{
    uint64_t seed = 88172645463325252u;
    size_t differing = 0, groups = 200;
    (void)state;
    for (size_t k = 0; k < groups; k++) {
        struct group g = {.n = 0};
        for (size_t i = 0; i < MOST; i++) {
            double sum = 0;
            /* the sum of twelve uniform random values is nearly normal */
            for (int u = 0; u < 12; u++) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                sum += (double)(seed % 1000) / 1000;
            }
            add_rank(&g, (sum - 6) * MIB, 0, VERDICT_STABLE);
        }
        compare(&g);
        for (size_t i = 0; i < MOST; i++)
            differing += g.place[i].differs;
    }
    /* the spread of a few ranks is uncertain, so the rate of false alarms is not exactly 1 % */
    assert_true(differing <= groups / 25);
}

static void ranks_with_unknown_growth_rates_are_not_compared(void **state)
{
    struct group g = {.n = 0};
    (void)state;
    add_flat(&g, 4);
    g.result[2].rate_bytes_per_step.known = false;
    g.result[3].rate_bytes_per_step.known = false;
    compare(&g);
    assert_int_equal(g.peers.count, 2);
    g.n = 0;
    compare(&g);
    assert_int_equal(g.peers.count, 0);
}

static void rank_evidence_contains_the_median_of_all_ranks(void **state)
{
    struct group g = {.n = 0};
    char text[VERDICT_TEXT_MAX];
    (void)state;
    add_flat(&g, 7);
    add_rank(&g, 5 * MIB, 0.1 * MIB, VERDICT_UNDECIDED);
    compare(&g);
    ranks_add_evidence(&g.result[7], &g.place[7], &g.peers);
    assert_string_equal(verdict_evidence_text(text, sizeof text, &g.result[7].evidence[0]),
                        "+5.0 MiB/step in this rank; the median of all 8 ranks is -5.1 KiB/step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_growing_rank_among_seven_flat_ranks_is_a_leak),
        cmocka_unit_test(equal_growth_of_all_ranks_is_not_evidence_of_a_leak),
        cmocka_unit_test(uncertain_growth_of_one_rank_among_flat_ones_is_not_a_leak),
        cmocka_unit_test(two_ranks_are_not_compared),
        cmocka_unit_test(more_flat_ranks_raise_leak_probability_of_a_growing_rank),
        cmocka_unit_test(only_the_growing_one_of_nine_ranks_is_marked_as_different),
        cmocka_unit_test(rank_scores_do_not_depend_on_the_order_of_ranks),
        cmocka_unit_test(rank_scores_do_not_depend_on_the_unit_of_bytes),
        cmocka_unit_test(rank_with_only_noise_is_rarely_reported_as_different),
        cmocka_unit_test(ranks_with_unknown_growth_rates_are_not_compared),
        cmocka_unit_test(rank_evidence_contains_the_median_of_all_ranks),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
