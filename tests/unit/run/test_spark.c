/* Tests the sparkline of a run's memory, and its conversion to and from JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "run/spark.h"

static json_int_t piece(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

static void sparkline_of_a_long_run_has_the_maximum_of_each_interval(void **state)
{
    struct series s;
    (void)state;
    spark_init(&s);
    for (uint64_t t_s = 0; t_s < 1000; t_s++)
        series_add(&s, t_s * NS_PER_S, t_s == 500 ? 9000 : t_s);
    json_t *doc = spark_pack(&s);
    const json_t *list = json_object_get(doc, "bytes");
    assert_true(json_number_value(json_object_get(doc, "width_s")) == 32);
    assert_int_equal(json_array_size(list), 32);
    assert_int_equal(piece(list, 0), 31);
    assert_int_equal(piece(list, 15), 9000);
    assert_int_equal(piece(list, 31), 999);
    json_decref(doc);
    series_fini(&s);
}

static void sparkline_read_from_json_can_be_continued(void **state)
{
    struct series s, back = {0};
    (void)state;
    spark_init(&s);
    series_add(&s, 0, 7);
    series_add(&s, 40 * NS_PER_S, 8);
    json_t *doc = spark_pack(&s);
    assert_true(spark_unpack(doc, &back));
    json_decref(doc);
    series_add(&s, 90 * NS_PER_S, 9);
    series_add(&back, 90 * NS_PER_S, 9);
    json_t *a = spark_pack(&s), *b = spark_pack(&back);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    series_fini(&s);
    series_fini(&back);
}

static void invalid_sparkline_documents_are_refused(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "{\"width_s\": 0.25, \"bytes\": null}",
        "{\"width_s\": 0, \"bytes\": []}",
        "{\"width_s\": -1, \"bytes\": []}",
        "{\"width_s\": 1e300, \"bytes\": []}",
        ("{\"width_s\": 0.25, \"bytes\": [1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,"
         "9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1]}"),
    };
    struct series s;
    struct series_point p;
    (void)state;
    spark_init(&s);
    series_add(&s, 0, 3);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *doc = json_loads(texts[i], 0, NULL);
        assert_non_null(doc);
        assert_false(spark_unpack(doc, &s));
        assert_true(series_last(&s, &p) && p.v == 3);
        json_decref(doc);
    }
    json_t *doc = json_loads("{\"width_s\": 0.5, \"bytes\": [-1, \"x\", null, 4]}", 0, NULL);
    assert_true(spark_unpack(doc, &s));
    assert_int_equal(s.readings, 1);
    assert_true(series_last(&s, &p) && p.v == 4);
    json_decref(doc);
    series_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparkline_of_a_long_run_has_the_maximum_of_each_interval),
        cmocka_unit_test(sparkline_read_from_json_can_be_continued),
        cmocka_unit_test(invalid_sparkline_documents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
