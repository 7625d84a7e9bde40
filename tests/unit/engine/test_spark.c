/* The small picture of a run's memory, and what comes back of it from a foreign hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/clock.h"
#include "engine/spark.h"

static void a_long_run_has_wider_pieces_and_the_largest_of_each(void **state)
{
    struct spark s = {0};
    (void)state;
    for (uint64_t t_s = 0; t_s < 1000; t_s++)
        spark_add(&s, t_s * NS_PER_S, t_s == 500 ? 9000 : t_s);
    assert_int_equal(s.width_ns, 32 * NS_PER_S);
    assert_int_equal(s.count, 32);
    assert_int_equal(s.bytes[0], 31);
    assert_int_equal(s.bytes[15], 9000);
    assert_int_equal(s.bytes[31], 999);
}

static void what_is_packed_comes_back_and_can_be_added_to(void **state)
{
    struct spark s = {0}, back = {0};
    (void)state;
    spark_add(&s, 0, 7);
    spark_add(&s, 40 * NS_PER_S, 8);
    json_t *doc = spark_pack(&s);
    assert_true(spark_unpack(doc, &back));
    json_decref(doc);
    spark_add(&s, 90 * NS_PER_S, 9);
    spark_add(&back, 90 * NS_PER_S, 9);
    assert_int_equal(back.width_ns, s.width_ns);
    assert_int_equal(back.count, s.count);
    assert_memory_equal(back.bytes, s.bytes, s.count * sizeof *s.bytes);
}

static void what_makes_no_sense_is_not_taken(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"width_s\": 0.25, \"bytes\": null}",
        "{\"width_s\": 0, \"bytes\": []}",
        "{\"width_s\": -1, \"bytes\": []}",
        "{\"width_s\": 0.3, \"bytes\": []}",
        "{\"width_s\": 1e300, \"bytes\": []}",
        ("{\"width_s\": 0.25, \"bytes\": [1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,"
         "9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1]}"),
    };
    const struct spark before = {.width_ns = 5, .count = 1, .bytes = {3}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct spark s = before;
        json_t *doc = json_loads(texts[i], 0, NULL);
        assert_non_null(doc);
        assert_false(spark_unpack(doc, &s));
        assert_memory_equal(&s, &before, sizeof s);
        json_decref(doc);
    }
    struct spark s = {0};
    json_t *doc = json_loads("{\"width_s\": 0.5, \"bytes\": [-1, \"x\", null, 4]}", 0, NULL);
    assert_true(spark_unpack(doc, &s));
    assert_true(s.count == 4 && s.bytes[0] == UINT64_MAX && s.bytes[1] == UINT64_MAX &&
                s.bytes[2] == UINT64_MAX && s.bytes[3] == 4);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_run_has_wider_pieces_and_the_largest_of_each),
        cmocka_unit_test(what_is_packed_comes_back_and_can_be_added_to),
        cmocka_unit_test(what_makes_no_sense_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
