/* Tests the ranking of call sites, the verdict on each, and the selection by step. */
#include "profile/growth.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "profile/known_heap.h"

enum { READINGS = 200, SAMPLES = 64, STEPS_A_READING = 5 };
#define READING_S 10.0
#define MIB 1048576.0
static const uint64_t start_ns = 1000;
static const uint64_t second_ns = 1000000000;

/* Describes a job of 2,000 s whose heap is read every 10 s, with five steps between readings. */
struct story {
    struct known_heap heap;
    struct names *names;
    struct profile_reading readings[READINGS];
    struct profile_held held[READINGS][KNOWN_SITES];
    /* The profile has one snapshot in the middle and one at the end. */
    struct profile_snapshot snapshots[2];
    struct profile_sample samples[2][SAMPLES];
    struct growth_mark marks[READINGS];
    struct growth growth;
    struct err err;
};

/* cmocka's own comparison takes arguments of type float, which is too imprecise. */
#define assert_near(value, wanted, by) near(value, wanted, by, __LINE__)
static void near(double value, double wanted, double by, int line)
{
    if (!(value >= wanted - by && value <= wanted + by))
        fail_msg("line %d: %g is not %g", line, value, wanted);
}

/* Returns the live MiB of a site at reading I. */
typedef double shape_fn(size_t i);

static uint64_t reading_ns(size_t i)
{
    return start_ns + (uint64_t)((double)(i + 1) * READING_S) * second_ns;
}

static int64_t reading_step(size_t i)
{
    return (int64_t)(i + 1) * STEPS_A_READING;
}

static int setup(void **state)
{
    struct story *s = calloc(1, sizeof *s);
    const struct symbols_options options = {0};
    known_heap_init(&s->heap);
    s->heap.profile.start_ns = start_ns;
    s->heap.profile.readings = s->readings;
    s->heap.profile.n_readings = READINGS;
    s->heap.profile.snapshots = s->snapshots;
    s->heap.profile.n_snapshots = 2;
    for (size_t i = 0; i < READINGS; i++) {
        s->readings[i] = (struct profile_reading){
            .t_ns = reading_ns(i), .has_step = true, .step = reading_step(i), .held = s->held[i]};
        s->marks[i] = (struct growth_mark){
            reading_ns(i),
            {.kind = VERDICT_MARK_STEP, .has_step = true, .step = (uint64_t)reading_step(i)}};
    }
    for (size_t i = 0; i < 2; i++)
        s->snapshots[i] = (struct profile_snapshot){
            .t_ns = reading_ns(i ? READINGS - 1 : READINGS / 2), .samples = s->samples[i]};
    assert_int_equal(names_new(&s->heap.profile, &options, &s->names), 0);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct story *s = *state;
    growth_fini(&s->growth);
    names_free(s->names);
    free(s);
    return 0;
}

static uint32_t hold(struct story *s, uint32_t node, shape_fn *shape)
{
    struct profile *p = &s->heap.profile;
    assert_true(p->n_sites < KNOWN_SITES);
    uint32_t site = (uint32_t)p->n_sites++;
    s->heap.site_node[site] = node;
    for (size_t i = 0; i < READINGS; i++) {
        double bytes = shape(i) * MIB;
        if (bytes > 0 || i == READINGS - 1)
            s->held[i][s->readings[i].count++] =
                (struct profile_held){.site = site,
                                      .live_bytes = bytes,
                                      .live_objects = bytes / 1024,
                                      .live_variance = bytes * 0.25 * MIB,
                                      .allocated_bytes = bytes * 2};
    }
    return site;
}

/* Adds a call site whose stack has only one frame, of a Python function. */
static uint32_t site(struct story *s, const char *function, shape_fn *shape)
{
    return hold(s, known_python(&s->heap, 0, "/home/u/train.py", function, 10), shape);
}

/* Adds a sample to all snapshots that were taken after its allocation. */
static void sample(struct story *s, uint32_t of, double born_s, uint64_t bytes)
{
    uint64_t born_ns = start_ns + (uint64_t)(born_s * 1e9);
    for (size_t i = 0; i < 2; i++) {
        struct profile_snapshot *snapshot = &s->snapshots[i];
        if (born_ns > snapshot->t_ns)
            continue;
        assert_true(snapshot->count < SAMPLES);
        s->samples[i][snapshot->count++] =
            (struct profile_sample){.site = of, .size = bytes, .born_ns = born_ns};
    }
}

static int judge(struct story *s, struct growth_options options)
{
    options.marks = s->marks;
    options.n_marks = READINGS;
    growth_fini(&s->growth);
    return growth_of(&s->heap.profile, s->names, &options, &s->growth, &s->err);
}

static const struct growth_row *row(const struct story *s, const char *function)
{
    for (size_t i = 0; i < s->growth.count; i++)
        if (strcmp(s->growth.rows[i].name->function, function) == 0)
            return &s->growth.rows[i];
    fail_msg("no row of %s", function);
    return NULL;
}

static double leaks(size_t i)
{
    return 1 + 0.25 * (double)i;
}

static double leaks_much(size_t i)
{
    return 10 + 2 * (double)i;
}

static double flat(size_t i)
{
    (void)i;
    return 900;
}

static double fills_and_stops(size_t i)
{
    return i < 40 ? 5 * (double)i : 200;
}

static double begins_late(size_t i)
{
    return i < 120 ? 0 : 0.5 * (double)(i - 120);
}

/* The memory is live at every third reading, including the last. */
static double churns(size_t i)
{
    return i % 3 == (READINGS - 1) % 3 ? 300 : 0;
}

static double shrinks(size_t i)
{
    return 100 - 0.25 * (double)i;
}

static double nothing(size_t i)
{
    (void)i;
    return 0;
}

static void leaking_call_site_is_ranked_before_a_larger_flat_one(void **state)
{
    struct story *s = *state;
    site(s, "load_model", flat);
    site(s, "cache", fills_and_stops);
    site(s, "batch", churns);
    site(s, "leak", leaks);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_int_equal(s->growth.count, 4);
    const struct growth_row *first = &s->growth.rows[0];
    assert_string_equal(first->name->function, "leak");
    assert_int_equal(first->verdict.word, VERDICT_LEAKING);
    assert_true(first->verdict.rate_bytes_per_step.known &&
                first->verdict.rate_bytes_per_min.known);
    assert_near(first->verdict.rate_bytes_per_step.value / (0.25 * MIB / STEPS_A_READING), 1, .1);
    assert_near(first->verdict.rate_bytes_per_min.value / (0.25 * MIB * 60 / READING_S), 1, 0.1);
    assert_int_equal(row(s, "load_model")->verdict.leak, VERDICT_LEAK_NO);
}

static void faster_leaking_call_site_is_ranked_first(void **state)
{
    struct story *s = *state;
    site(s, "leak", leaks);
    site(s, "leak_much", leaks_much);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak_much");
    assert_string_equal(s->growth.rows[1].name->function, "leak");
    assert_int_equal(s->growth.rows[1].verdict.leak, VERDICT_LEAK_YES);
}

static void call_site_of_a_cache_that_stopped_growing_is_not_a_leak(void **state)
{
    struct story *s = *state;
    site(s, "cache", fills_and_stops);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    const struct growth_row *r = row(s, "cache");
    assert_int_equal(r->verdict.word, VERDICT_PLATEAUED);
    assert_true(r->growth_bytes > 100 * MIB);
}

static void growth_of_call_site_that_appears_late_is_measured_from_zero(void **state)
{
    struct story *s = *state;
    site(s, "model", flat);
    site(s, "evaluate", begins_late);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    const struct growth_row *r = &s->growth.rows[0];
    assert_string_equal(r->name->function, "evaluate");
    /* The growth is the baseline of the last tenth of the run minus the live bytes at the start,
     * which are 0. */
    assert_near(r->growth_bytes, 0.5 * (READINGS - READINGS / 10 - 120) * MIB, 1);
}

static void batch_that_is_live_at_the_last_reading_is_not_growth(void **state)
{
    struct story *s = *state;
    site(s, "batch", churns);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    const struct growth_row *r = row(s, "batch");
    assert_near(r->growth_bytes, 0, 0);
    assert_near(r->live_bytes, 300 * MIB, 1);
    assert_int_not_equal(r->verdict.leak, VERDICT_LEAK_YES);
}

static void shrinking_call_site_has_negative_growth(void **state)
{
    struct story *s = *state;
    site(s, "shrinks", shrinks);
    site(s, "leak", leaks);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak");
    assert_true(row(s, "shrinks")->growth_bytes < -40 * MIB);
    assert_int_equal(row(s, "shrinks")->verdict.leak, VERDICT_LEAK_NO);
}

static void call_site_without_live_bytes_has_no_row(void **state)
{
    struct story *s = *state;
    site(s, "gone", nothing);
    site(s, "leak", leaks);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_int_equal(s->growth.count, 1);
}

static void growth_smaller_than_the_sampling_error_is_not_ranked_first(void **state)
{
    struct story *s = *state;
    uint32_t noisy = site(s, "noisy", leaks_much);
    site(s, "leak", leaks);
    for (size_t i = 0; i < READINGS; i++)
        for (size_t k = 0; k < s->readings[i].count; k++)
            if (s->held[i][k].site == noisy)
                s->held[i][k].live_variance = 400 * MIB * (400 * MIB);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak");
    assert_true(row(s, "noisy")->growth_sigma > 400 * MIB);
}

static void live_bytes_have_95_percent_confidence_bounds(void **state)
{
    struct story *s = *state;
    uint32_t a = site(s, "model", flat);
    site(s, "leak", leaks);
    s->held[READINGS - 1][a - 1].live_variance = 100 * MIB * MIB;
    s->held[READINGS - 1][a].live_variance = 4e6 * MIB * MIB;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    const struct growth_row *r = row(s, "model");
    assert_near(r->live_low, (900 - 19.6) * MIB, 1);
    assert_near(r->live_high, (900 + 19.6) * MIB, 1);
    assert_near(row(s, "leak")->live_low, 0, 0);
    assert_near(s->growth.live_bytes, (900 + 1 + 0.25 * (READINGS - 1)) * MIB, 1);
    assert_true(s->growth.live_low <= s->growth.live_bytes);
    assert_true(s->growth.live_high > s->growth.live_bytes + 3900 * MIB);
    assert_near(s->growth.allocated_bytes, s->growth.live_bytes * 2, 1);
}

static void growth_result_has_the_time_span_and_steps_of_the_run(void **state)
{
    struct story *s = *state;
    site(s, "leak", leaks);
    s->readings[0].has_step = false;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_near(s->growth.span_s, READINGS * READING_S, 1e-6);
    assert_true(s->growth.has_steps);
    assert_int_equal(s->growth.first_step, reading_step(1));
    assert_int_equal(s->growth.last_step, reading_step(READINGS - 1));
}

/* ---- ages ---- */

static void age_of_a_heap_row_is_the_age_of_the_median_byte(void **state)
{
    struct story *s = *state;
    uint32_t a = site(s, "model", flat);
    sample(s, a, 100, 3000);
    sample(s, a, 1500, 2000);
    sample(s, a, 1900, 2000);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_near(row(s, "model")->age_s, 500, 1e-3);
    assert_near(row(s, "model")->survivor_bytes, 3000, 1e-3);
}

static void heap_rows_have_no_age_if_no_snapshot_exists(void **state)
{
    struct story *s = *state;
    site(s, "model", flat);
    s->heap.profile.n_snapshots = 0;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_near(row(s, "model")->age_s, 0, 0);
    assert_near(row(s, "model")->survivor_bytes, 0, 0);
}

/* ---- grouping call sites into rows ---- */

/* The function "native" is called by two lines of one Python function, and once without Python. */
static void tell_stacks(struct story *s)
{
    struct known_heap *h = &s->heap;
    uint32_t here = known_python(h, 0, "/home/u/train.py", "f", 10);
    uint32_t there = known_python(h, 0, "/home/u/train.py", "f", 20);
    uint32_t other = known_python(h, 0, "/home/u/train.py", "g", 30);
    uint32_t data = known_python(h, 0, "/home/u/data.py", "f", 10);
    hold(s, known_native(h, here, 1, 0x10), leaks);
    hold(s, known_native(h, here, 1, 0x20), leaks);
    hold(s, known_native(h, there, 1, 0x10), leaks_much);
    hold(s, other, leaks);
    hold(s, data, leaks);
    hold(s, known_native(h, 0, 2, 0x10), leaks);
}

static void heap_rows_are_grouped_by_the_requested_key(void **state)
{
    static const struct {
        enum growth_by by;
        size_t rows, of_first;
    } asked[] = {
        {GROWTH_BY_LOCATION, 5, 1}, {GROWTH_BY_FUNCTION, 4, 3}, {GROWTH_BY_FILE, 3, 4},
        {GROWTH_BY_LIB, 3, 3},      {GROWTH_BY_STACK, 6, 1},
    };
    struct story *s = *state;
    tell_stacks(s);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        assert_int_equal(judge(s, (struct growth_options){.by = asked[i].by}), 0);
        assert_int_equal(s->growth.count, asked[i].rows);
        assert_int_equal(s->growth.rows[0].sites, asked[i].of_first);
        assert_near(s->growth.live_bytes,
                    (5 * leaks(READINGS - 1) + leaks_much(READINGS - 1)) * MIB, 1);
    }
}

static void heap_row_shows_the_call_site_with_the_most_live_bytes(void **state)
{
    struct story *s = *state;
    tell_stacks(s);
    assert_int_equal(judge(s, (struct growth_options){.by = GROWTH_BY_FUNCTION}), 0);
    const struct growth_row *r = &s->growth.rows[0];
    assert_int_equal(r->site, 3);
    assert_int_equal(r->name->line, 20);
    assert_string_equal(r->native->function, "libgone.so.1+0x10");
    assert_near(r->live_bytes, (2 * leaks(READINGS - 1) + leaks_much(READINGS - 1)) * MIB, 1);
}

static double large(size_t i)
{
    return i < READINGS / 4 ? 0 : 900;
}

static void heap_row_shows_the_stack_of_the_call_site_that_keeps_growing(void **state)
{
    struct story *s = *state;
    struct known_heap *h = &s->heap;
    const char *file = "/home/u/train.py";
    uint32_t weights = known_python(h, 0, file, "load", 10);
    uint32_t batches = known_python(h, 0, file, "evaluate", 20);
    hold(s, known_python(h, weights, file, "read", 30), large);
    uint32_t grows = hold(s, known_python(h, batches, file, "read", 30), leaks);
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_int_equal(s->growth.count, 1);
    const struct growth_row *r = &s->growth.rows[0];
    assert_int_equal(r->site, grows);
    assert_int_equal(r->n_program, 2);
    assert_string_equal(r->program[0]->function, "read");
    assert_string_equal(r->program[1]->function, "evaluate");
}

/* ---- small call sites of one function ---- */

#define LIBRARY "/home/u/venv/lib/python3.11/site-packages/plots/figure.py"

/* Adds COUNT call sites: different library functions, all called from the node ABOVE. */
static void draw(struct story *s, uint32_t above, size_t count, shape_fn *shape)
{
    static const char *const names[] = {"axis", "canvas", "figure", "font",   "grid",  "legend",
                                        "line", "patch",  "spine",  "ticker", "title", "text"};
    assert_true(count <= sizeof names / sizeof *names);
    for (size_t i = 0; i < count; i++)
        hold(s, known_python(&s->heap, above, LIBRARY, names[i], 10), shape);
}

static void small_call_sites_under_one_user_function_share_a_row(void **state)
{
    struct story *s = *state;
    uint32_t main = known_python(&s->heap, 0, "/home/u/train.py", "main", 5);
    draw(s, known_python(&s->heap, main, "/home/u/train.py", "plot", 30), 12, leaks);
    assert_int_equal(judge(s, (struct growth_options){.minds_program = true}), 0);
    assert_int_equal(s->growth.count, 1);
    const struct growth_row *r = &s->growth.rows[0];
    double one = leaks(READINGS - READINGS / 10) - leaks(0);
    assert_near(r->growth_bytes, 12 * one * MIB, 1);
    assert_near(r->live_bytes, 12 * leaks(READINGS - 1) * MIB, 1);
    assert_near(s->growth.live_bytes, r->live_bytes, 1);
    assert_int_equal(r->verdict.word, VERDICT_LEAKING);
    assert_string_equal(r->program[0]->function, "plot");
    assert_string_equal(r->program[1]->function, "main");
    assert_int_equal(r->n_places, 12);
    for (size_t i = 0; i < GROWTH_PLACES_MAX; i++) {
        assert_string_equal(r->places[i].name->file, LIBRARY);
        assert_near(r->places[i].growth_bytes, one * MIB, 1);
    }
    for (size_t i = 1; i < s->heap.profile.n_sites; i++)
        assert_int_equal(s->growth.row_of_site[i], 0);
}

static void heap_rows_are_not_merged_unless_requested(void **state)
{
    struct story *s = *state;
    draw(s, known_python(&s->heap, 0, "/home/u/train.py", "plot", 30), 12, leaks);
    assert_int_equal(judge(s, (struct growth_options){.by = GROWTH_BY_LOCATION}), 0);
    assert_int_equal(s->growth.count, 12);
    assert_int_equal(s->growth.rows[0].n_places, 0);
    for (size_t i = 0; i < 12; i++)
        assert_int_equal(s->growth.row_of_site[s->growth.rows[i].site], i);
    assert_int_equal(judge(s, (struct growth_options){.by = GROWTH_BY_PROGRAM}), 0);
    assert_int_equal(s->growth.count, 1);
    assert_string_equal(s->growth.rows[0].name->function, "plot");
}

static void call_sites_that_grow_fast_or_not_at_all_keep_separate_rows(void **state)
{
    struct story *s = *state;
    uint32_t plot = known_python(&s->heap, 0, "/home/u/train.py", "plot", 30);
    hold(s, known_python(&s->heap, plot, LIBRARY, "raster", 10), leaks_much);
    hold(s, known_python(&s->heap, plot, LIBRARY, "cache", 20), flat);
    draw(s, plot, 3, leaks);
    assert_int_equal(judge(s, (struct growth_options){.minds_program = true}), 0);
    assert_int_equal(s->growth.count, 3);
    assert_string_equal(s->growth.rows[0].name->function, "raster");
    assert_int_equal(s->growth.rows[0].n_places, 0);
    assert_int_equal(s->growth.rows[1].n_places, 3);
    assert_near(s->growth.rows[1].live_bytes, 3 * leaks(READINGS - 1) * MIB, 1);
    assert_string_equal(s->growth.rows[2].name->function, "cache");
}

static void small_call_sites_of_different_functions_keep_separate_rows(void **state)
{
    struct story *s = *state;
    site(s, "leak_much", leaks_much);
    draw(s, known_python(&s->heap, 0, "/home/u/train.py", "plot", 30), 1, leaks);
    draw(s, known_python(&s->heap, 0, "/home/u/train.py", "log", 40), 1, leaks);
    draw(s, 0, 2, leaks);
    assert_int_equal(judge(s, (struct growth_options){.minds_program = true}), 0);
    assert_int_equal(s->growth.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(s->growth.rows[i].n_places, 0);
}

static void library_line_has_one_row_per_calling_user_function(void **state)
{
    struct story *s = *state;
    uint32_t load = known_python(&s->heap, 0, "/home/u/train.py", "load", 30);
    uint32_t keep = known_python(&s->heap, 0, "/home/u/train.py", "keep", 40);
    hold(s, known_python(&s->heap, load, LIBRARY, "read", 10), flat);
    hold(s, known_python(&s->heap, keep, LIBRARY, "read", 10), leaks);
    assert_int_equal(judge(s, (struct growth_options){.minds_program = true}), 0);
    assert_int_equal(s->growth.count, 2);
    assert_string_equal(s->growth.rows[0].program[0]->function, "keep");
    assert_int_equal(s->growth.rows[0].verdict.word, VERDICT_LEAKING);
    assert_string_equal(s->growth.rows[1].program[0]->function, "load");
    assert_int_equal(s->growth.rows[1].verdict.leak, VERDICT_LEAK_NO);
    assert_int_equal(judge(s, (struct growth_options){.by = GROWTH_BY_LOCATION}), 0);
    assert_int_equal(s->growth.count, 1);
}

static void heap_diff_between_two_steps_does_not_merge_rows(void **state)
{
    struct story *s = *state;
    draw(s, known_python(&s->heap, 0, "/home/u/train.py", "plot", 30), 12, leaks);
    const struct growth_options options = {
        .minds_program = true, .kind = GROWTH_DIFF, .from_step = 100, .to_step = 500};
    assert_int_equal(judge(s, options), 0);
    assert_int_equal(s->growth.count, 12);
}

static double is_loaded(size_t i)
{
    return i < 30 ? 0 : 500;
}

static void memory_loaded_before_the_first_step_is_not_growth(void **state)
{
    struct story *s = *state;
    site(s, "load_model", is_loaded);
    site(s, "leak", leaks);
    for (size_t i = 0; i < 40; i++)
        s->readings[i].has_step = false;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_near(row(s, "load_model")->growth_bytes, 0, 0);
    assert_near(row(s, "leak")->growth_bytes,
                (leaks(READINGS - (READINGS - 40) / 10) - leaks(40)) * MIB, 1);
    for (size_t i = 40; i < 120;
         i++) /* Now more than half of the run passes before the first step. */
        s->readings[i].has_step = false;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_near(row(s, "load_model")->growth_bytes, 500 * MIB, 1);
}

static void unknown_call_sites_form_one_row_without_a_stack(void **state)
{
    struct story *s = *state;
    uint32_t a = site(s, "leak", leaks);
    sample(s, 4000000000, 100, 1000);
    for (size_t i = 0; i < READINGS; i++)
        s->held[i][0].site = a + 1000;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_int_equal(s->growth.count, 1);
    assert_string_equal(s->growth.rows[0].name->function, "(no stack)");
    assert_near(s->growth.rows[0].live_bytes, leaks(READINGS - 1) * MIB, 1);
}

/* ---- by step ---- */

static void since_option_counts_only_allocations_after_the_given_step(void **state)
{
    struct story *s = *state;
    uint32_t old = site(s, "model", flat), young = site(s, "leak", leaks);
    sample(s, old, 100, 5000);
    sample(s, young, 100, 5000);
    sample(s, young, 1200, 700);
    sample(s, young, 1900, 300);
    assert_int_equal(judge(s, (struct growth_options){.kind = GROWTH_SINCE, .from_step = 500}), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak");
    assert_near(s->growth.rows[0].growth_bytes, 1000, 1e-3);
    assert_near(row(s, "model")->growth_bytes, 0, 0);
}

static void diff_option_shows_the_difference_of_two_readings(void **state)
{
    struct story *s = *state;
    site(s, "model", flat);
    site(s, "leak", leaks);
    site(s, "late", begins_late);
    site(s, "shrinks", shrinks);
    struct growth_options options = {.kind = GROWTH_DIFF, .from_step = 5, .to_step = 505};
    assert_int_equal(judge(s, options), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak");
    assert_near(s->growth.rows[0].growth_bytes, 25 * MIB, 1);
    assert_near(row(s, "model")->growth_bytes, 0, 0);
    assert_near(row(s, "late")->growth_bytes, 0, 0);
    assert_near(row(s, "shrinks")->growth_bytes, -25 * MIB, 1);
    assert_string_equal(s->growth.rows[s->growth.count - 1].name->function, "shrinks");
    options = (struct growth_options){.kind = GROWTH_DIFF, .from_step = 505, .to_step = 5};
    assert_int_equal(judge(s, options), 0);
    assert_near(row(s, "leak")->growth_bytes, -25 * MIB, 1);
}

static void error_for_an_unknown_step_names_the_known_range(void **state)
{
    struct story *s = *state;
    site(s, "leak", leaks);
    struct growth_options beyond[] = {
        {.kind = GROWTH_SINCE, .from_step = 7777},
        {.kind = GROWTH_DIFF, .from_step = 7777, .to_step = 10},
        {.kind = GROWTH_DIFF, .from_step = 10, .to_step = 7777},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        s->err.text[0] = '\0';
        assert_int_equal(judge(s, beyond[i]), -ENODATA);
        assert_non_null(strstr(s->err.text, "7777"));
        assert_non_null(strstr(s->err.text, "5 to 1000"));
    }
    for (size_t i = 0; i < READINGS; i++)
        s->readings[i].has_step = false;
    assert_int_equal(judge(s, beyond[0]), -ENODATA);
    assert_non_null(strstr(s->err.text, "reported no steps"));
}

static void survivors_predate_the_from_step_and_are_live_at_the_to_step(void **state)
{
    struct story *s = *state;
    uint32_t a = site(s, "model", flat), b = site(s, "leak", leaks);
    struct growth_options options = {.kind = GROWTH_SURVIVORS, .from_step = 100, .to_step = 600};
    sample(s, a, 100, 500);
    sample(s, b, 90, 3000);
    sample(s, b, 300, 4000);
    sample(s, b, 1100, 7000); /* The sample was allocated after the first snapshot. */
    assert_int_equal(judge(s, options), 0);
    assert_string_equal(s->growth.rows[0].name->function, "leak");
    assert_near(s->growth.rows[0].growth_bytes, 3000, 0);
    assert_near(row(s, "model")->growth_bytes, 500, 0);
    options.from_step = 600;
    options.to_step = 1000;
    assert_int_equal(judge(s, options), 0);
    assert_near(row(s, "leak")->growth_bytes, 14000, 0);
}

static void listing_survivors_without_a_snapshot_or_step_is_an_error(void **state)
{
    struct story *s = *state;
    const int64_t bad[][2] = {{100, 400}, {7777, 1000}, {100, 7777}, {600, 100}};
    sample(s, site(s, "leak", leaks), 90, 3000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct growth_options options = {
            .kind = GROWTH_SURVIVORS, .from_step = bad[i][0], .to_step = bad[i][1]};
        s->err.text[0] = '\0';
        assert_int_equal(judge(s, options), -ENODATA);
        assert_true(s->err.text[0] != '\0');
    }
}

static void growth_up_to_a_given_time_ignores_later_readings(void **state)
{
    struct story *s = *state;
    uint32_t a = site(s, "late", begins_late);
    site(s, "leak", leaks);
    sample(s, a, 1500, 1000);
    sample(s, a, 100, 10);
    struct growth_options options = {.until_ns = reading_ns(110)};
    assert_int_equal(judge(s, options), 0);
    assert_int_equal(s->growth.count, 1);
    assert_int_equal(s->growth.last_step, reading_step(110));
    assert_near(s->growth.live_bytes, leaks(110) * MIB, 1);
    options.until_ns = start_ns + 1;
    assert_int_equal(judge(s, options), -ENODATA);
}

static void growth_of_a_heap_without_readings_is_an_error(void **state)
{
    struct story *s = *state;
    s->heap.profile.n_readings = 0;
    assert_int_equal(judge(s, (struct growth_options){0}), -ENODATA);
    assert_true(s->err.text[0] != '\0');
}

static void one_heap_reading_is_enough_for_live_bytes(void **state)
{
    struct story *s = *state;
    site(s, "leak", leaks);
    s->heap.profile.n_readings = 1;
    assert_int_equal(judge(s, (struct growth_options){0}), 0);
    assert_int_equal(s->growth.rows[0].verdict.word, VERDICT_UNDECIDED);
    assert_near(s->growth.rows[0].live_bytes, leaks(0) * MIB, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leaking_call_site_is_ranked_before_a_larger_flat_one),
        TEST(faster_leaking_call_site_is_ranked_first),
        TEST(call_site_of_a_cache_that_stopped_growing_is_not_a_leak),
        TEST(growth_of_call_site_that_appears_late_is_measured_from_zero),
        TEST(batch_that_is_live_at_the_last_reading_is_not_growth),
        TEST(shrinking_call_site_has_negative_growth),
        TEST(call_site_without_live_bytes_has_no_row),
        TEST(growth_smaller_than_the_sampling_error_is_not_ranked_first),
        TEST(live_bytes_have_95_percent_confidence_bounds),
        TEST(growth_result_has_the_time_span_and_steps_of_the_run),
        TEST(age_of_a_heap_row_is_the_age_of_the_median_byte),
        TEST(heap_rows_have_no_age_if_no_snapshot_exists),
        TEST(heap_rows_are_grouped_by_the_requested_key),
        TEST(heap_row_shows_the_call_site_with_the_most_live_bytes),
        TEST(heap_row_shows_the_stack_of_the_call_site_that_keeps_growing),
        TEST(unknown_call_sites_form_one_row_without_a_stack),
        TEST(small_call_sites_under_one_user_function_share_a_row),
        TEST(heap_rows_are_not_merged_unless_requested),
        TEST(call_sites_that_grow_fast_or_not_at_all_keep_separate_rows),
        TEST(small_call_sites_of_different_functions_keep_separate_rows),
        TEST(library_line_has_one_row_per_calling_user_function),
        TEST(heap_diff_between_two_steps_does_not_merge_rows),
        TEST(memory_loaded_before_the_first_step_is_not_growth),
        TEST(since_option_counts_only_allocations_after_the_given_step),
        TEST(diff_option_shows_the_difference_of_two_readings),
        TEST(error_for_an_unknown_step_names_the_known_range),
        TEST(survivors_predate_the_from_step_and_are_live_at_the_to_step),
        TEST(listing_survivors_without_a_snapshot_or_step_is_an_error),
        TEST(growth_up_to_a_given_time_ignores_later_readings),
        TEST(growth_of_a_heap_without_readings_is_an_error),
        TEST(one_heap_reading_is_enough_for_live_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
