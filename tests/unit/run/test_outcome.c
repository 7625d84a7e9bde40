/* Tests that a run.json, even one written by another version, is unchanged after reading and
 * writing it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "run/outcome.h"

/* Checks that all keys of BEFORE have the same values in AFTER, except keys that struct outcome
 * does not contain. */
static void keys_are_kept(const json_t *before, const json_t *after, const char *where)
{
    const char *key;
    json_t *v;
    if (!json_is_object(before)) {
        if (json_is_array(before) && json_is_array(after)) {
            assert_int_equal(json_array_size(before), json_array_size(after));
            for (size_t i = 0; i < json_array_size(before); i++)
                keys_are_kept(json_array_get(before, i), json_array_get(after, i), where);
        } else if (!json_is_null(before) && !json_equal(before, after)) {
            fail_msg("%s differs", where);
        }
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)before, key, v)
    {
        static const char *const others[] = {"verdict", "heap", "diagnosis", "spark", "sockets"};
        bool is_other = false;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            is_other |= strcmp(key, others[i]) == 0 && (i > 0 || json_is_object(v));
        if (is_other)
            continue;
        if (!json_object_get(after, key) && !json_is_null(v))
            fail_msg("%s is missing", key);
        keys_are_kept(v, json_object_get(after, key), key);
    }
}

static void run_json_of_an_earlier_version_is_written_unchanged(void **state)
{
    struct outcome o = {0};
    json_t *doc = json_load_file("tests/data/versions/0.1.0/run/run.json", 0, NULL);
    json_t *again = json_object();
    (void)state;
    assert_non_null(doc);
    assert_int_equal(outcome_read(doc, &o), 0);
    assert_int_equal(o.end.kind, OUTCOME_EXITED);
    assert_true(o.measured.has_tree && o.measured.tree.series.has_peak_bytes);
    assert_int_equal(outcome_put(&o, again), 0);
    keys_are_kept(doc, again, "");
    outcome_fini(&o);
    json_decref(again);
    json_decref(doc);
}

static void run_json_that_is_not_an_object_is_read_as_empty(void **state)
{
    struct outcome o = {0};
    json_t *doc = json_pack("[i]", 3);
    (void)state;
    assert_int_equal(outcome_read(doc, &o), 0);
    assert_false(o.has_end || o.measured.has_tree || o.segment_count || o.about.name);
    outcome_fini(&o);
    json_decref(doc);
}

static void memory_counts_as_returned_if_2_percent_of_growth_remain(void **state)
{
    struct outcome_returned r = {.has_before_bytes = true,
                                 .has_peak_bytes = true,
                                 .has_after_bytes = true,
                                 .before_bytes = 1 << 30,
                                 .peak_bytes = UINT64_C(3) << 30,
                                 .after_bytes = (1 << 30) + (40 << 20)};
    (void)state;
    assert_true(outcome_is_returned(&r));
    r.after_bytes += 2 << 20;
    assert_false(outcome_is_returned(&r));
    r.has_after_bytes = false;
    assert_true(outcome_is_returned(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_json_of_an_earlier_version_is_written_unchanged),
        cmocka_unit_test(run_json_that_is_not_an_object_is_read_as_empty),
        cmocka_unit_test(memory_counts_as_returned_if_2_percent_of_growth_remain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
