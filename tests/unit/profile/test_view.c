/* Tests the conversion of a profile to plain data for views, and of that data to JSON and back. */
#include "profile/view.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "profile/known_heap.h"
#include "profile/marks.h"

struct scene {
    struct known_heap heap;
    struct names *names;
    struct growth growth;
    struct profile_view view;
};

static void scene_start(struct scene *s)
{
    const struct symbols_options symbols = {0};
    const struct growth_options options = {.by = GROWTH_BY_LOCATION, .minds_program = true};
    *s = (struct scene){0};
    known_heap_init(&s->heap);
    uint32_t main_node = known_python(&s->heap, 0, "/job/train.py", "main", 40);
    uint32_t load = known_python(&s->heap, main_node, "/job/data.py", "load", 7);
    uint32_t step = known_python(&s->heap, main_node, "/job/train.py", "step", 21);
    known_site(&s->heap, load, 3 << 20, 3, 4 << 20);
    known_site(&s->heap, step, 1 << 14, 1, 9 << 20);
    assert_int_equal(names_new(&s->heap.profile, &symbols, &s->names), 0);
    assert_int_equal(growth_of(&s->heap.profile, s->names, &options, &s->growth, NULL), 0);
}

static void scene_end(struct scene *s)
{
    profile_view_fini(&s->view);
    growth_fini(&s->growth);
    names_free(s->names);
}

static void heap_view_row_has_source_line_and_callers_and_stack(void **state)
{
    struct scene s;
    (void)state;
    scene_start(&s);
    assert_int_equal(profile_view_make(&s.heap.profile, s.names, &s.growth, 9, true, &s.view), 0);
    assert_int_equal(s.view.n_rows, 2);
    assert_int_equal(s.view.row_count, 2);
    const struct profile_row *row = &s.view.rows[0];
    assert_string_equal(row->where.function, "load");
    assert_string_equal(row->where.file, "/job/data.py");
    assert_true(row->where.has_line);
    assert_int_equal(row->live.bytes, 3 << 20);
    assert_true(row->has_in_program);
    assert_int_equal(row->n_callers, 1);
    assert_string_equal(row->callers[0].function, "main");
    assert_int_equal(row->n_stack, 2);
    scene_end(&s);
}

static void top_option_limits_listed_heap_rows_but_not_the_total_count(void **state)
{
    struct scene s;
    (void)state;
    scene_start(&s);
    assert_int_equal(profile_view_make(&s.heap.profile, s.names, &s.growth, 1, false, &s.view), 0);
    assert_int_equal(s.view.n_rows, 1);
    assert_int_equal(s.view.row_count, 2);
    assert_int_equal(s.view.rows[0].n_stack, 0);
    scene_end(&s);
}

static void heap_call_tree_adds_up_to_the_live_bytes(void **state)
{
    struct scene s;
    struct marks none;
    (void)state;
    scene_start(&s);
    marks_init(&none);
    const struct profile_wants wants = {.marks = &none, .top = 9, .tree = true};
    assert_int_equal(profile_view_of(&s.heap.profile, &wants, &s.view, NULL), 0);
    assert_int_equal(s.view.tree.n_children, 1);
    const struct profile_branch *main_branch = &s.view.tree.children[0];
    assert_string_equal(main_branch->frame.function, "main");
    assert_int_equal(main_branch->live_bytes, (3 << 20) + (1 << 14));
    /* The function "step" has too little memory to be shown. */
    assert_int_equal(main_branch->n_children, 1);
    assert_int_equal(main_branch->left_out_bytes, 1 << 14);
    json_t *doc = profile_json(&s.view);
    const json_t *root = json_object_get(doc, "tree");
    assert_string_equal(json_string_value(json_object_get(root, "kind")), "root");
    assert_int_equal(json_array_size(json_object_get(root, "children")), 1);
    json_decref(doc);
    marks_fini(&none);
    scene_end(&s);
}

static void heap_rows_are_the_same_after_writing_and_reading_json(void **state)
{
    struct scene s;
    struct profile_view back;
    (void)state;
    scene_start(&s);
    assert_int_equal(profile_view_make(&s.heap.profile, s.names, &s.growth, 9, true, &s.view), 0);
    json_t *rows = profile_rows_json(&s.view, 9);
    assert_int_equal(profile_rows_read(rows, &back), 0);
    assert_int_equal(back.n_rows, 2);
    json_t *again = profile_rows_json(&back, 9);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(back.rows[i].verdict.word, s.view.rows[i].verdict.word);
        json_object_del(json_array_get(rows, i),
                        "verdict"); /* The evidence of a verdict is not read back. */
        json_object_del(json_array_get(again, i), "verdict");
    }
    assert_true(json_equal(rows, again));
    json_decref(again);
    json_decref(rows);
    profile_view_fini(&back);
    scene_end(&s);
}

static void invalid_json_rows_become_heap_rows_without_values(void **state)
{
    struct profile_view v;
    (void)state;
    json_t *rows = json_pack("[s,{s:i,s:s},n]", "row", "where", 7, "verdict", "leaking");
    assert_int_equal(profile_rows_read(rows, &v), 0);
    assert_int_equal(v.n_rows, 3);
    assert_null(v.rows[1].where.function);
    profile_view_fini(&v);
    json_decref(rows);
    assert_int_equal(profile_rows_read(NULL, &v), 0);
    assert_int_equal(v.n_rows, 0);
    profile_view_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_view_row_has_source_line_and_callers_and_stack),
        cmocka_unit_test(top_option_limits_listed_heap_rows_but_not_the_total_count),
        cmocka_unit_test(heap_call_tree_adds_up_to_the_live_bytes),
        cmocka_unit_test(heap_rows_are_the_same_after_writing_and_reading_json),
        cmocka_unit_test(invalid_json_rows_become_heap_rows_without_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
