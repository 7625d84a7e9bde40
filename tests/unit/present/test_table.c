/* Tests the order of process rows on the screen: trees, cycles, sorting and folding. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "present/table.h"

static struct frame_row row(int32_t pid, int32_t ppid, uint64_t rss)
{
    struct frame_row r = {.slot = (uint32_t)pid + 1000, .info = {.id.pid = pid, .ppid = ppid}};
    sample_put(&r.sample, SAMPLE_RSS, rss);
    return r;
}

/* Returns the lines of the table as text such as "1 -2 --3": pids, each with one dash per level. */
static const char *shape(const struct table *t, const struct frame_row *rows)
{
    static char out[512];
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->count && len < sizeof out - 32; i++) {
        const struct table_line *l = &t->lines[i];
        len +=
            (size_t)snprintf(out + len, sizeof out - len, "%s%.*s%d%s", i ? " " : "", (int)l->depth,
                             "----------", (int)rows[l->row].info.id.pid, l->is_folded ? "*" : "");
    }
    return out;
}

static const struct frame_row *family(void)
{
    static struct frame_row rows[6];
    rows[0] = row(5, 2, 10);
    rows[1] = row(1, 0, 1);
    rows[2] = row(3, 1, 50);
    rows[3] = row(2, 1, 90);
    rows[4] = row(4, 2, 20);
    rows[5] = row(9, 7, 99);
    return rows;
}

static void sibling_processes_are_sorted_below_their_parent(void **state)
{
    const struct frame_row *rows = family();
    struct table t = {0};
    (void)state;
    assert_int_equal(table_build(&t, rows, 6), 0);
    assert_string_equal(shape(&t, rows), "9 1 -2 --4 --5 -3");
    t.is_reversed = true;
    assert_int_equal(table_build(&t, rows, 6), 0);
    assert_string_equal(shape(&t, rows), "1 -3 -2 --5 --4 9");
    table_fini(&t);
}

static void flat_process_list_is_sorted_by_the_chosen_column(void **state)
{
    const struct frame_row *rows = family();
    struct table t = {.is_flat = true};
    (void)state;
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 2 3 4 5 1");
    t.sort = SORT_PID;
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "1 2 3 4 5 9");
    table_fini(&t);
}

static void rows_are_sorted_by_value_then_pid_with_unknown_values_last(void **state)
{
    struct frame_row rows[] = {row(1, 0, 5), row(2, 0, 5), row(3, 0, 5)};
    struct table t = {.is_flat = true, .sort = SORT_RATE};
    (void)state;
    rows[1].rate_known = true;
    rows[1].rate_bytes_per_min = -8;
    table_build(&t, rows, 3);
    assert_string_equal(shape(&t, rows), "2 1 3");
    t.sort = SORT_UNIQUE;
    sample_put(&rows[2].sample, SAMPLE_UNIQUE, 0);
    table_build(&t, rows, 3);
    assert_string_equal(shape(&t, rows), "3 1 2");
    table_fini(&t);
}

static void folded_branch_is_one_line_with_descendant_count(void **state)
{
    const struct frame_row *rows = family();
    struct table t = {0};
    (void)state;
    table_toggle(&t, 1002);
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 1 -2* -3");
    assert_int_equal(t.lines[2].below, 2);
    assert_int_equal(t.lines[1].below, 4);
    table_toggle(&t, 1001);
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 1*");
    table_toggle(&t, 1001);
    table_toggle(&t, 1002);
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 1 -2 --4 --5 -3");
    table_fini(&t);
}

static void all_branches_of_the_process_tree_can_be_folded(void **state)
{
    const struct frame_row *rows = family();
    struct table t = {0};
    (void)state;
    table_build(&t, rows, 6);
    table_fold_all(&t);
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 1*");
    table_unfold_all(&t);
    table_build(&t, rows, 6);
    assert_string_equal(shape(&t, rows), "9 1 -2 --4 --5 -3");
    table_fini(&t);
}

static void processes_in_a_parent_cycle_are_shown_once_each(void **state)
{
    const struct frame_row rows[] = {row(1, 3, 1), row(2, 1, 2), row(3, 2, 3), row(4, 4, 4),
                                     row(5, 3, 5)};
    struct table t = {0};
    (void)state;
    table_build(&t, rows, 5);
    assert_int_equal(t.count, 5);
    assert_string_equal(shape(&t, rows), "4 1 -2 --3 ---5");
    table_fini(&t);
}

static void process_table_accepts_a_duplicate_pid(void **state)
{
    const struct frame_row rows[] = {row(1, 0, 1), row(1, 1, 2), row(2, 1, 3), row(2, 1, 3)};
    struct table t = {0};
    (void)state;
    table_build(&t, rows, 4);
    assert_int_equal(t.count, 4);
    table_fini(&t);
}

static void process_table_without_processes_has_no_lines(void **state)
{
    struct table t = {0};
    (void)state;
    assert_int_equal(table_build(&t, NULL, 0), 0);
    assert_int_equal(t.count, 0);
    table_fini(&t);
}

static void process_tree_prefix_draws_branch_lines(void **state)
{
    const struct frame_row *rows = family();
    struct table t = {0};
    char out[TABLE_PREFIX_MAX];
    (void)state;
    table_build(&t, rows, 6);
    assert_string_equal(table_prefix(&t, &t.lines[1], 40, out), "");
    assert_string_equal(table_prefix(&t, &t.lines[2], 40, out), "├─ ");
    assert_string_equal(table_prefix(&t, &t.lines[3], 40, out), "│  ├─ ");
    assert_string_equal(table_prefix(&t, &t.lines[4], 40, out), "│  └─ ");
    assert_string_equal(table_prefix(&t, &t.lines[5], 40, out), "└─ ");
    table_fini(&t);
}

static void process_table_accepts_20000_nested_processes(void **state)
{
    enum { COUNT = 20000 };
    struct frame_row *rows = calloc(COUNT, sizeof *rows);
    struct table t = {0};
    char out[TABLE_PREFIX_MAX];
    (void)state;
    assert_non_null(rows);
    for (int i = 0; i < COUNT; i++)
        rows[i] = row(i + 1, i, (uint64_t)i);
    assert_int_equal(table_build(&t, rows, COUNT), 0);
    assert_int_equal(t.count, COUNT);
    assert_int_equal(t.lines[COUNT - 1].depth, COUNT - 1);
    assert_int_equal(t.lines[0].below, COUNT - 1);
    for (size_t width = 0; width < 400; width++)
        table_prefix(&t, &t.lines[COUNT - 1], width, out);
    assert_string_equal(table_prefix(&t, &t.lines[COUNT - 1], 9, out), "…   └─ ");
    table_fini(&t);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sibling_processes_are_sorted_below_their_parent),
        cmocka_unit_test(flat_process_list_is_sorted_by_the_chosen_column),
        cmocka_unit_test(rows_are_sorted_by_value_then_pid_with_unknown_values_last),
        cmocka_unit_test(folded_branch_is_one_line_with_descendant_count),
        cmocka_unit_test(all_branches_of_the_process_tree_can_be_folded),
        cmocka_unit_test(processes_in_a_parent_cycle_are_shown_once_each),
        cmocka_unit_test(process_table_accepts_a_duplicate_pid),
        cmocka_unit_test(process_table_without_processes_has_no_lines),
        cmocka_unit_test(process_tree_prefix_draws_branch_lines),
        cmocka_unit_test(process_table_accepts_20000_nested_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
