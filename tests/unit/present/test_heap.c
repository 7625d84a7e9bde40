/* Tests the heap table, the call tree and the heap line of the run summary: narrow widths, hostile
 * names and missing values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/heap.h"
#include "present/quoted_json.h"
#include "profile/view.h"

#define LEAK                                                                                       \
    "{'where':{'kind':'python','function':'collate','file':'/home/u/train.py','line':41,"          \
    "'lib':null},'native':{'kind':'native','function':'PyBytes_FromSize','file':null,"             \
    "'line':null,'lib':'python3.11'},'live':{'bytes':53687091,'low':40000000,'high':67374182},"    \
    "'live_objects':12345678,'age_s':95,'growth_bytes':52428800,'stacks':3,"                       \
    "'verdict':{'verdict':'leaking','rate_bytes_per_step':{'value':104857},"                       \
    "'rate_bytes_per_min':{'value':3145728}}}"
#define FIGURES                                                                                    \
    "{'live':{'bytes':1048576,'low':0,'high':2097152},"                                            \
    "'live_objects':1,'age_s':9,'growth_bytes':1048576,'stacks':1,"                                \
    "'verdict':{'verdict':'undecided'},'native':null,"
#define OWN(name, line)                                                                            \
    "{'kind':'python','function':'" name "','file':'/home/u/run/train.py','line':" line            \
    ",'lib':null,'own':true}"
#define THEIRS(name)                                                                               \
    "{'kind':'python','function':'" name                                                           \
    "','file':'/v/site-packages/plots/figure.py','line':71,'lib':null,'own':false}"
#define MODEL                                                                                      \
    "{'where':{'kind':'native','function':'load_weights','file':null,'line':null,"                 \
    "'lib':'libmodel.so'},'native':null,'live':{'bytes':943718400,'low':0,'high':943718400},"      \
    "'live_objects':12,'age_s':7300,'growth_bytes':-4194304,'stacks':1,"                           \
    "'verdict':{'verdict':'stable','rate_bytes_per_step':null,'rate_bytes_per_min':null}}"
#define LIST(rows) "[" rows "]"

static const struct profile_cost cost = {.samples = 1234,
                                         .hook_ns = 120000000,
                                         .interval = 2 << 20,
                                         .base_interval = 512 << 10,
                                         .drops = {[HEAP_DROP_LIVE] = 7, [HEAP_DROP_UNWIND] = 2},
                                         .python_version = 3 << 24 | 11 << 16 | 2 << 8,
                                         .python_small = 1};

/* Renders a heap with the rows in TEXT. */
static char *heap_table(const char *text, const char *meaning, bool has_steps, size_t width)
{
    struct buf out = {0};
    struct doc d = {0};
    struct profile_view v = {0};
    json_t *rows = quoted_json(text);
    assert_int_equal(profile_rows_read(rows, &v), 0);
    v.pid = 4711;
    v.live = (struct profile_bytes){1048576000, 1000000000, 1100000000};
    v.allocated_bytes = 5368709120;
    v.span_s = 120.5;
    v.has_steps = has_steps;
    v.steps = (struct profile_steps){0, 500};
    v.row_count = 5;
    v.cost = cost;
    heap_doc(&d, &v, meaning, NULL);
    doc_terminal(&out, &d, false, width);
    doc_fini(&d);
    profile_view_fini(&v);
    json_decref(rows);
    char *printed = strdup(buf_str(&out));
    buf_fini(&out);
    return printed;
}

/* Fails if a line is wider than WIDTH or has a control character. */
static void assert_fits(const char *printed, size_t width)
{
    char line[1024];
    for (const char *at = printed; *at;) {
        size_t len = strcspn(at, "\n");
        assert_true(len < sizeof line);
        memcpy(line, at, len);
        line[len] = '\0';
        if (cell_columns(line) > width)
            fail_msg("wider than %zu: %s", width, line);
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
                fail_msg("a control character in: %s", line);
        at += len + (at[len] == '\n');
    }
}

static void assert_shows(const char *printed, const char *what)
{
    if (!strstr(printed, what))
        fail_msg("\"%s\" is not in:\n%s", what, printed);
}

static void assert_hides(const char *printed, const char *what)
{
    if (strstr(printed, what))
        fail_msg("\"%s\" is in:\n%s", what, printed);
}

static const char at_80[] =
    "heap       process 4711, 1000 MiB live (954 MiB – 1.02 GiB),\n"
    "           5.00 GiB allocated in 2 min 01 s, steps 0 to 500\n"
    "\n"
    "growth  per step   live  ± 95 %  verdict  where\n"
    "+50.0M     +102K  51.2M   13.1M  leaking  /home/u/train.py:41 collate\n"
    "                                            in PyBytes_FromSize (python3.11), 3…\n"
    "-4.00M         –   900M       0  stable   load_weights (libmodel.so)\n"
    "and 3 more (--top N)\n"
    "\n"
    "cost       1234 samples, 120 ms of the job's time (0.1 %),\n"
    "           one sample per 2.00 MiB,\n"
    "           sampled less often than once per 512 KiB, to limit the cost\n"
    "Python     3.11.2, no Python in this process, small objects included\n"
    "dropped    7 × live sample not stored: the table is full\n"
    "dropped    2 × stack not unwound to its outermost frame\n";

static void heap_table_at_80_columns_matches_expected_text(void **state)
{
    (void)state;
    char *printed = heap_table(LIST(LEAK "," MODEL), "growth", true, 80);
    assert_string_equal(printed, at_80);
    free(printed);
}

static void library_line_is_shown_with_the_calling_user_function(void **state)
{
    (void)state;
    char *printed =
        heap_table(LIST(FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
                       "plot.<locals>.<lambda>", "41") ",'callers':[" OWN("evaluate", "50") "]}"),
                   "growth", true, 80);
    assert_shows(printed, "/plots/figure.py:71 draw\n");
    assert_shows(printed, "  ← train.py:41 plot.<lambda>");
    assert_hides(printed, "<locals>");
    assert_fits(printed, 80);
    free(printed);
    printed =
        heap_table(LIST(FIGURES "'where':" OWN("read", "41") ",'in_program':" OWN(
                       "read", "41") ","
                                     "'callers':[" OWN("load", "50") "," OWN("main", "60") "]}"),
                   "growth", true, 100);
    assert_shows(printed, "train.py:41 read\n");
    assert_shows(printed, "  ← train.py:50 load ← main\n");
    assert_hides(printed, "← train.py:41");
    free(printed);
}

static void merged_heap_row_shows_user_function_and_largest_lines(void **state)
{
    (void)state;
    static const char doc[] = LIST(FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
        "plot",
        "41") ",'callers':[],'place_count':5,'places':["
              "{'where':" THEIRS("draw") ",'growth_bytes':2097152,'live_bytes':1},"
                                         "{'where':" THEIRS(
                                             "text") ",'growth_bytes':1048576,'live_bytes':1}]}");
    char *printed = heap_table(doc, "growth", true, 80);
    assert_shows(printed, "/home/u/run/train.py:41 plot\n");
    assert_shows(printed, "  +2.00M figure.py:71 draw\n");
    assert_shows(printed, "  +1.00M figure.py:71 text\n");
    assert_shows(printed, "  and 3 more lines\n");
    assert_hides(printed, "←");
    free(printed);
    for (size_t width = 40; width < 130; width++) {
        printed = heap_table(doc, "growth", true, width);
        assert_fits(printed, width);
        free(printed);
    }
}

static void narrow_heap_table_hides_the_least_important_columns(void **state)
{
    static const struct {
        size_t width;
        const char *shown, *hidden;
    } cases[] = {{60, "live", "per step"},
                 {80, "per step", "per min"},
                 {100, "± 95 %", "  objects"},
                 {120, "  objects", "per hour"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *printed = heap_table(LIST(LEAK "," MODEL), "growth", true, cases[i].width);
        assert_fits(printed, cases[i].width);
        assert_shows(printed, "growth");
        assert_shows(printed, "train.py:41 collate");
        assert_shows(printed, cases[i].shown);
        assert_hides(printed, cases[i].hidden);
        free(printed);
    }
}

static void heap_table_fits_any_width(void **state)
{
    (void)state;
    for (size_t width = 40; width <= 240; width++) {
        char *printed = heap_table(LIST(LEAK "," MODEL), "growth", true, width);
        assert_fits(printed, width);
        free(printed);
    }
    for (size_t width = 1; width < 40; width++) {
        char *printed = heap_table(LIST(LEAK "," MODEL), "growth", true, width);
        assert_shows(printed, "4711");
        free(printed);
    }
}

static void heap_columns_stay_aligned_if_growth_title_is_long(void **state)
{
    (void)state;
    char *printed = heap_table(LIST(LEAK "," MODEL), "since 123456789012", true, 80);
    const char *head = strstr(printed, "since 123456789012");
    const char *row = strstr(printed, "51.2M");
    assert_true(head && row);
    while (head > printed && head[-1] != '\n')
        head--;
    while (row[-1] != '\n')
        row--;
    const char *where = strstr(head, "where"), *file = strstr(row, "/home/u/train.py");
    assert_non_null(where);
    assert_non_null(file);
    assert_int_equal(where - head, file - row);
    free(printed);
}

static void heap_growth_without_steps_is_shown_per_minute(void **state)
{
    (void)state;
    char *printed = heap_table(LIST(LEAK), "growth", false, 80);
    assert_hides(printed, "per step");
    assert_hides(printed, "steps");
    assert_shows(printed, "per min");
    assert_shows(printed, "+3.00M");
    free(printed);
}

static void heap_table_reports_lost_samples_and_incomplete_stacks(void **state)
{
    (void)state;
    char *printed = heap_table(LIST(LEAK), "growth", true, 80);
    assert_shows(printed, "7 × live sample not stored: the table is full");
    assert_shows(printed, "2 × stack not unwound to its outermost frame");
    assert_shows(printed, "less often than once per 512 KiB");
    free(printed);
}

static void heap_without_live_memory_is_reported_as_empty(void **state)
{
    const struct profile_view v = {.pid = 4711, .cost.base_interval = 512 << 10};
    struct buf out = {0};
    struct doc d = {0};
    (void)state;
    heap_doc(&d, &v, "growth", NULL);
    doc_terminal(&out, &d, false, 80);
    const char *printed = buf_str(&out);
    assert_shows(printed, "no sampled allocation is live");
    assert_shows(printed, "0 samples");
    assert_shows(printed, "one sample per 512 KiB");
    assert_hides(printed, "nan");
    assert_hides(printed, "Python");
    assert_hides(printed, "dropped");
    doc_fini(&d);
    buf_fini(&out);
}

#define HOSTILE                                                                                    \
    "{'where':{'kind':'python','function':'\\u001b[31mf\\u0007\\n\\ttwo','file':"                  \
    "'/tmp/\\u001b]0;title\\u0007/\\u202eevil\\r\\n.py','line':1,'lib':null},"                     \
    "'native':{'kind':'native','function':'\\u009b2J\\u001b[2J','file':null,'line':null,"          \
    "'lib':'lib\\n.so'},'live':{'bytes':1,'low':1,'high':1},'live_objects':1,'age_s':1,"           \
    "'growth_bytes':1,'stacks':1,'verdict':{'verdict':'stable','rate_bytes_per_step':null,"        \
    "'rate_bytes_per_min':null}}"
static void hostile_names_in_the_heap_are_escaped(void **state)
{
    static char function[] = "\033[31mf\n", file[] = "a\033[2Jb.py", unknown[] = "0x10";
    struct buf out = {0};
    struct doc d = {0};
    (void)state;
    for (size_t width = 60; width <= 120; width += 20) {
        char *printed = heap_table(LIST(HOSTILE), "growth", true, width);
        assert_fits(printed, width);
        /* This is the control character CSI encoded as one code point. */
        assert_hides(printed, "\xc2\x9b");
        assert_hides(printed, "\xe2\x80\xae"); /* right-to-left override */
        free(printed);
    }
    struct profile_branch leaf = {.frame = {.kind = NAME_UNKNOWN, .function = unknown},
                                  .live_bytes = 60};
    struct profile_branch branch = {
        .frame = {.function = function, .file = file, .has_line = true, .line = 3},
        .live_bytes = 60,
        .children = &leaf,
        .n_children = 1};
    const struct profile_branch root = {.live_bytes = 100, .children = &branch, .n_children = 1};
    heap_tree_doc(&d, &root);
    doc_terminal(&out, &d, false, 60);
    assert_fits(buf_str(&out), 60);
    assert_shows(buf_str(&out), "60 %");
    assert_shows(buf_str(&out), "0x10");
    doc_fini(&d);
    buf_fini(&out);
}

static void overlong_names_in_the_heap_are_truncated(void **state)
{
    struct buf text = {0};
    (void)state;
    buf_add_str(&text, "[{'where':{'kind':'python','function':'f','file':'/");
    for (int i = 0; i < 3000; i++)
        buf_add_str(&text, i % 10 ? "ü" : "/");
    buf_add_str(&text, "/end.py','line':4294967295,'lib':null},'native':null,"
                       "'live':{'bytes':1,'low':1,'high':1},'stacks':1,'verdict':null}]");
    for (size_t width = 60; width <= 120; width += 20) {
        char *printed = heap_table(buf_str(&text), "growth", false, width);
        assert_fits(printed, width);
        assert_shows(printed, "end.py:4294967295 f");
        free(printed);
    }
    buf_fini(&text);
}

static void deep_heap_tree_fits_the_width_of_the_terminal(void **state)
{
    enum { DEPTH = 150 };
    static char file[] = "/a/b.py", names[DEPTH][8];
    struct profile_branch nodes[DEPTH] = {0};
    (void)state;
    for (unsigned i = 0; i < DEPTH; i++) {
        snprintf(names[i], sizeof names[i], "f%u", i);
        nodes[i] = (struct profile_branch){
            .frame = {.function = names[i], .file = file, .has_line = true, .line = i + 1},
            .live_bytes = 1 << 20,
            .children = i + 1 < DEPTH ? &nodes[i + 1] : NULL,
            .n_children = i + 1 < DEPTH};
    }
    for (size_t width = 60; width <= 120; width += 20) {
        struct buf out = {0};
        struct doc d = {0};
        heap_tree_doc(&d, &nodes[0]);
        doc_terminal(&out, &d, false, width);
        assert_fits(buf_str(&out), width);
        assert_shows(buf_str(&out), "b.py:150 f149");
        doc_fini(&d);
        buf_fini(&out);
    }
}

static void heap_row_without_values_is_still_printed(void **state)
{
    (void)state;
    char *printed = heap_table("[{},{'where':null,'verdict':7}]", "growth", true, 80);
    assert_shows(printed, "undecided");
    free(printed);
}

static void check_shown_path(const char *path, const char *shown)
{
    struct buf json = {0};
    buf_printf(&json, "[{'where':{'kind':'python','function':'step','file':'%s','line':7}}]", path);
    char *printed = heap_table(buf_str(&json), "growth", true, 120);
    buf_clear(&json);
    buf_printf(&json, " %s:7 step\n", shown);
    assert_shows(printed, buf_str(&json));
    free(printed);
    buf_fini(&json);
}

static void heap_table_resolves_dot_dot_in_paths(void **state)
{
    (void)state;
    check_shown_path("/home/user/work/../progs/train.py", "/home/user/progs/train.py");
    check_shown_path("/a/b/c/../../d.py", "/a/d.py");
    check_shown_path("/a/../../b/./c.py", "/b/c.py");
    check_shown_path("a/../../b//c.py", "../b/c.py");
    check_shown_path("../../csu/start.S", "../../csu/start.S");
    check_shown_path("/a/..b/c..py", "/a/..b/c..py");
}

static char *growing_text(const char *json, size_t width)
{
    struct buf out = {0};
    struct doc d = {0};
    struct profile_view v = {0};
    json_t *rows = quoted_json(json);
    assert_int_equal(profile_rows_read(rows, &v), 0);
    heap_summary(&d, v.rows, v.n_rows);
    doc_terminal(&out, &d, false, width);
    char *text = strdup(buf_str(&out));
    doc_fini(&d);
    profile_view_fini(&v);
    json_decref(rows);
    buf_fini(&out);
    return text;
}

static void run_summary_lists_growing_call_sites(void **state)
{
    (void)state;
    char *text = growing_text("[" LEAK "," HOSTILE "]", 80);
    assert_fits(text, 80);
    assert_shows(text, "+50.0 MiB");
    assert_shows(text, "/step");
    assert_shows(text, "train.py:41 collate");
    free(text);
    text = growing_text("[" FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
                            "plot", "41") ",'callers':[" OWN("evaluate", "50") "]}]",
                        80);
    assert_shows(text, "figure.py:71 draw ← train.py:41 plot ← evaluate\n");
    assert_fits(text, 80);
    free(text);
    text = growing_text("[]", 80);
    assert_string_equal(text, "");
    free(text);
    text = growing_text("[" LEAK "]", 20);
    assert_shows(text, "leaking");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_table_at_80_columns_matches_expected_text),
        cmocka_unit_test(library_line_is_shown_with_the_calling_user_function),
        cmocka_unit_test(merged_heap_row_shows_user_function_and_largest_lines),
        cmocka_unit_test(narrow_heap_table_hides_the_least_important_columns),
        cmocka_unit_test(heap_table_fits_any_width),
        cmocka_unit_test(heap_columns_stay_aligned_if_growth_title_is_long),
        cmocka_unit_test(heap_growth_without_steps_is_shown_per_minute),
        cmocka_unit_test(heap_table_reports_lost_samples_and_incomplete_stacks),
        cmocka_unit_test(heap_without_live_memory_is_reported_as_empty),
        cmocka_unit_test(hostile_names_in_the_heap_are_escaped),
        cmocka_unit_test(overlong_names_in_the_heap_are_truncated),
        cmocka_unit_test(deep_heap_tree_fits_the_width_of_the_terminal),
        cmocka_unit_test(heap_row_without_values_is_still_printed),
        cmocka_unit_test(heap_table_resolves_dot_dot_in_paths),
        cmocka_unit_test(run_summary_lists_growing_call_sites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
