/* Tests one tick written as a line of text and as a line of JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "present/lines.h"

static const uint64_t MIB = UINT64_C(1) << 20;

static struct frame_row hostile_row(void)
{
    static const char name[] = "x\n) R 1 \033[2J", command[] = "python3\0a b\0\xff\0";
    struct frame_row r = {.info = {.id.pid = 4711, .ppid = 1, .role = ROLE_MAIN}};
    r.info.comm_len = sizeof name - 1;
    r.info.cmdline_len = sizeof command - 1;
    memcpy(r.info.comm, name, sizeof name - 1);
    memcpy(r.info.cmdline, command, sizeof command - 1);
    sample_put(&r.sample, SAMPLE_RSS, 1100 * MIB);
    sample_put(&r.sample, SAMPLE_UNIQUE, 900 * MIB);
    r.sample.stale |= 1u << SAMPLE_UNIQUE;
    return r;
}

static struct frame job(struct frame_row *rows, size_t count)
{
    struct frame f = {.t_ns = 12 * NS_PER_S,
                      .wall_ns = 1700000000 * NS_PER_S,
                      .rows = rows,
                      .count = count,
                      .tree_rate_known = true,
                      .tree_rate_bytes_per_min = 98.0 * (double)MIB};
    sample_put(&f.machine, MACHINE_TREE_LOW, 1200 * MIB);
    sample_put(&f.machine, MACHINE_TREE_HIGH, 1300 * MIB);
    sample_put(&f.machine, MACHINE_AVAILABLE, 20480 * MIB);
    sample_put(&f.machine, MACHINE_PSI_SOME, 123);
    return f;
}

static void sample_line_has_job_and_machine_values(void **state)
{
    struct frame_row rows[] = {hostile_row()};
    struct frame f = job(rows, 1);
    struct buf b = {0};
    (void)state;
    lines_text(&b, &f);
    assert_string_equal(
        buf_str(&b),
        "12.0 s  job 1.17 GiB – 1.27 GiB (+98.0 MiB/min)  largest 4711 "
        "x\\n) R 1 \\e[2J (main) 1.07 GiB  1 process  available 20.0 GiB  psi 1.2 %\n");
    buf_fini(&b);
}

static void sample_line_omits_unknown_values(void **state)
{
    struct frame f = {.t_ns = NS_PER_S / 2};
    struct buf b = {0};
    (void)state;
    lines_text(&b, &f);
    assert_string_equal(buf_str(&b), "0.5 s  0 processes\n");
    buf_fini(&b);
}

static void json_sample_has_null_for_missing_values(void **state)
{
    struct frame_row rows[] = {hostile_row()};
    struct frame f = job(rows, 1);
    struct buf b = {0};
    (void)state;
    lines_json(&b, &f);
    assert_ptr_equal(memchr(b.data, '\n', b.len), b.data + b.len - 1);
    json_t *doc = json_parse(b.data, b.len, NULL);
    assert_non_null(doc);
    const json_t *p = json_array_get(json_object_get(doc, "processes"), 0);
    assert_string_equal(json_string_value(json_object_get(doc, "type")), "tick");
    assert_int_equal(json_integer_value(json_object_get(p, "rss_bytes")), 1100 * MIB);
    assert_true(json_is_null(json_object_get(p, "anon_bytes")));
    assert_true(json_is_null(json_object_get(p, "rate_bytes_per_min")));
    assert_string_equal(json_string_value(json_object_get(p, "name")), "x\n) R 1 \033[2J");
    const json_t *command = json_object_get(p, "command");
    assert_int_equal(json_array_size(command), 3);
    assert_string_equal(json_string_value(json_array_get(command, 1)), "a b");
    assert_string_equal(json_string_value(json_array_get(command, 2)), "\xEF\xBF\xBD");
    assert_string_equal(json_string_value(json_array_get(json_object_get(p, "stale"), 0)),
                        "unique");
    assert_true(json_is_null(json_object_get(json_object_get(doc, "machine"), "limit_where")));
    json_decref(doc);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_line_has_job_and_machine_values),
        cmocka_unit_test(sample_line_omits_unknown_values),
        cmocka_unit_test(json_sample_has_null_for_missing_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
