/* The heap as a table, a tree and a fact: widths, names that would do harm, what is missing. */
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
#include "present/heap.h"
#include "present/heap_where.h"
#include "present/document.h"

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *doc = json_loads(text, 0, &error);
    if (!doc)
        fail_msg("line %d: %s", error.line, error.text);
    return doc;
}

#define COST                                                                                       \
    "{'samples':1234,'ends':1000,'hook_s':0.12,'interval_bytes':2097152,"                          \
    "'base_interval_bytes':524288,'drops':{'live':7,'unwind':2},"                                  \
    "'python':{'version':'3.11.2','state':'Python frames are read','small_objects':true}}"
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
#define DOC(steps, rows, cost)                                                                     \
    "{'pid':4711,'live':{'bytes':1048576000,'low':1000000000,'high':1100000000},"                  \
    "'allocated_bytes':5368709120,'span_s':120.5,'steps':" steps ",'rows':[" rows                  \
    "],'row_count':5,'cost':" cost "}"
#define STEPS "{'first':0,'last':500}"

/* JSON with ' for ", for the sake of the eyes. */
static json_t *doc_of(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *doc = parse(copy);
    free(copy);
    return doc;
}

static char *table(const char *text, const char *meaning, bool colour, size_t width)
{
    struct buf out = {0};
    json_t *doc = doc_of(text);
    heap_text(&out, doc, meaning, colour, width);
    json_decref(doc);
    char *printed = strdup(buf_str(&out));
    buf_fini(&out);
    return printed;
}

/* No line is wider, and none has a byte that a terminal would take for a command. */
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
    "   growth per step     live  verdict    where\n"
    "   +50.0M    +102K    51.2M  leaking    /home/u/train.py:41 collate\n"
    "                                          in PyBytes_FromSize (pyt…, 3 stacks\n"
    "   -4.00M        –     900M  stable     load_weights (libmodel.so)\n"
    "                                        and 3 more (--top N)\n"
    "\n"
    "cost       1234 samples, 120 ms in the job's own time (0.1 %), one in 2.00 MiB,\n"
    "           coarser than 512 KiB to stay cheap\n"
    "Python     3.11.2, Python frames are read, small objects counted\n"
    "dropped    7 × no room for another live sample\n"
    "dropped    2 × a stack that could not be followed to its end\n";

static void at_80_columns_the_table_is_this(void **state)
{
    (void)state;
    char *printed = table(DOC(STEPS, LEAK "," MODEL, COST), "growth", false, 80);
    assert_string_equal(printed, at_80);
    free(printed);
}

static void below_a_librarys_line_stands_the_programs_function(void **state)
{
    (void)state;
    char *printed =
        table(DOC(STEPS,
                  FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
                      "plot.<locals>.<lambda>", "41") ",'callers':[" OWN("evaluate", "50") "]}",
                  COST),
              "growth", false, 80);
    assert_shows(printed, " plots/figure.py:71 draw\n");
    assert_shows(printed, "  ← train.py:41 plot.<lambda>");
    assert_hides(printed, "<locals>");
    assert_fits(printed, 80);
    free(printed);
    printed =
        table(DOC(STEPS,
                  FIGURES "'where':" OWN("read", "41") ",'in_program':" OWN(
                      "read", "41") ","
                                    "'callers':[" OWN("load", "50") "," OWN("main", "60") "]}",
                  COST),
              "growth", false, 100);
    assert_shows(printed, "train.py:41 read\n");
    assert_shows(printed, "  ← train.py:50 load ← main\n");
    assert_hides(printed, "← train.py:41");
    free(printed);
}

static void lines_that_are_one_row_are_told_by_their_function_and_the_largest(void **state)
{
    (void)state;
    static const char doc[] =
        DOC(STEPS,
            FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
                "plot", "41") ",'callers':[],'place_count':5,'places':["
                              "{'where':" THEIRS(
                                  "draw") ",'growth_bytes':2097152,'live_bytes':1},"
                                          "{'where':" THEIRS(
                                              "text") ",'growth_bytes':1048576,'live_bytes':1}]}",
            COST);
    char *printed = table(doc, "growth", false, 80);
    assert_shows(printed, "/home/u/run/train.py:41 plot\n");
    assert_shows(printed, "  +2.00M figure.py:71 draw\n");
    assert_shows(printed, "  +1.00M figure.py:71 text\n");
    assert_shows(printed, "  and 3 more lines\n");
    assert_hides(printed, "←");
    free(printed);
    for (size_t width = 40; width < 130; width++) {
        printed = table(doc, "growth", false, width);
        assert_fits(printed, width);
        free(printed);
    }
}

static void the_least_important_columns_go_first(void **state)
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
        char *printed = table(DOC(STEPS, LEAK "," MODEL, COST), "growth", false, cases[i].width);
        assert_fits(printed, cases[i].width);
        assert_shows(printed, "growth");
        assert_shows(printed, "train.py:41 collate");
        assert_shows(printed, cases[i].shown);
        assert_hides(printed, cases[i].hidden);
        free(printed);
    }
}

static void every_width_is_kept_to_and_none_is_too_small_to_live(void **state)
{
    (void)state;
    for (size_t width = 40; width <= 240; width++) {
        char *printed = table(DOC(STEPS, LEAK "," MODEL, COST), "growth", false, width);
        assert_fits(printed, width);
        free(printed);
    }
    for (size_t width = 1; width < 40; width++) {
        char *printed = table(DOC(STEPS, LEAK "," MODEL, COST), "growth", false, width);
        assert_shows(printed, "4711");
        free(printed);
    }
}

static void a_long_title_does_not_push_the_others_aside(void **state)
{
    (void)state;
    char *printed = table(DOC(STEPS, LEAK "," MODEL, COST), "since 123456789012", false, 80);
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

static void without_steps_growth_is_told_by_the_minute(void **state)
{
    (void)state;
    char *printed = table(DOC("null", LEAK, COST), "growth", false, 80);
    assert_hides(printed, "per step");
    assert_hides(printed, "steps");
    assert_shows(printed, "per min");
    assert_shows(printed, "+3.00M");
    free(printed);
}

static void what_was_dropped_is_told_in_words_each(void **state)
{
    (void)state;
    char *printed = table(DOC(STEPS, LEAK, COST), "growth", false, 80);
    assert_shows(printed, "7 × no room for another live sample");
    assert_shows(printed, "2 × a stack that could not be followed to its end");
    assert_shows(printed, "coarser than 512 KiB");
    free(printed);
}

static void where_nothing_lives_it_says_so(void **state)
{
    (void)state;
    char *printed = table("{'pid':4711,'live':{'bytes':0,'low':0,'high':0},'allocated_bytes':0,"
                          "'span_s':0,'steps':null,'rows':[],'row_count':0,'cost':{'samples':0,"
                          "'hook_s':0,'interval_bytes':0,'base_interval_bytes':524288,'drops':{},"
                          "'python':{'version':null,'state':'no Python','small_objects':false}}}",
                          "growth", false, 80);
    assert_shows(printed, "nothing that was sampled is alive");
    assert_shows(printed, "0 samples");
    assert_shows(printed, "one in 512 KiB");
    assert_hides(printed, "nan");
    assert_hides(printed, "Python");
    assert_hides(printed, "dropped");
    free(printed);
}

#define HOSTILE                                                                                    \
    "{'where':{'kind':'python','function':'\\u001b[31mf\\u0007\\n\\ttwo','file':"                  \
    "'/tmp/\\u001b]0;title\\u0007/\\u202eevil\\r\\n.py','line':1,'lib':null},"                     \
    "'native':{'kind':'native','function':'\\u009b2J\\u001b[2J','file':null,'line':null,"          \
    "'lib':'lib\\n.so'},'live':{'bytes':1,'low':1,'high':1},'live_objects':1,'age_s':1,"           \
    "'growth_bytes':1,'stacks':1,'verdict':{'verdict':'stable','rate_bytes_per_step':null,"        \
    "'rate_bytes_per_min':null}}"
#define HOSTILE_TREE                                                                               \
    "{'kind':'root','function':'','live_bytes':100,'children':[{'kind':'python','function':"       \
    "'\\u001b[31mf\\n','file':'a\\u001b[2Jb.py','line':3,'lib':null,'live_bytes':60,"              \
    "'children':[{'kind':'unknown','function':'0x10','file':null,'line':null,'lib':null,"          \
    "'live_bytes':60,'children':[]}]}]}"

static void names_cannot_command_the_terminal(void **state)
{
    struct buf out = {0};
    (void)state;
    for (size_t width = 60; width <= 120; width += 20) {
        char *printed = table(DOC(STEPS, HOSTILE, COST), "growth", false, width);
        assert_fits(printed, width);
        assert_hides(printed, "\xc2\x9b");     /* CSI as one character */
        assert_hides(printed, "\xe2\x80\xae"); /* right to left */
        free(printed);
    }
    json_t *tree = doc_of(HOSTILE_TREE);
    heap_tree_text(&out, tree, false, 60);
    assert_fits(buf_str(&out), 60);
    assert_shows(buf_str(&out), "60 %");
    assert_shows(buf_str(&out), "0x10");
    json_decref(tree);
    buf_fini(&out);
}

static void names_without_end_are_cut_and_keep_the_line(void **state)
{
    struct buf text = {0};
    (void)state;
    buf_add_str(&text, "{'pid':1,'live':{'bytes':1,'low':1,'high':1},'allocated_bytes':1,"
                       "'span_s':1,'steps':null,'rows':[{'where':{'kind':'python','function':'f',"
                       "'file':'/");
    for (int i = 0; i < 3000; i++)
        buf_add_str(&text, i % 10 ? "ü" : "/");
    buf_add_str(&text, "/end.py','line':4294967295,'lib':null},'native':null,"
                       "'live':{'bytes':1,'low':1,'high':1},'stacks':1,'verdict':null}],"
                       "'row_count':1,'cost':" COST "}");
    for (size_t width = 60; width <= 120; width += 20) {
        char *printed = table(buf_str(&text), "growth", false, width);
        assert_fits(printed, width);
        assert_shows(printed, "end.py:4294967295 f");
        free(printed);
    }
    buf_fini(&text);
}

static void a_tree_deeper_than_the_screen_stays_on_it(void **state)
{
    struct buf text = {0}, out = {0};
    (void)state;
    for (int i = 0; i < 150; i++)
        buf_printf(&text,
                   "{'kind':'python','function':'f%d','file':'/a/b.py','line':%d,"
                   "'lib':null,'live_bytes':1048576,'children':[",
                   i, i + 1);
    for (int i = 0; i < 150; i++)
        buf_add_str(&text, "]}");
    json_t *doc = doc_of(buf_str(&text));
    for (size_t width = 60; width <= 120; width += 20) {
        buf_clear(&out);
        heap_tree_text(&out, doc, false, width);
        assert_fits(buf_str(&out), width);
        assert_shows(buf_str(&out), "b.py:150 f149");
    }
    json_decref(doc);
    buf_fini(&text);
    buf_fini(&out);
}

static void a_document_that_lacks_everything_is_printed(void **state)
{
    (void)state;
    char *printed = table("{'rows':[{},{'where':null,'verdict':7}]}", "growth", true, 80);
    assert_shows(printed, "where");
    free(printed);
    printed = table("{}", "growth", false, 0);
    assert_fits(printed, 80);
    free(printed);
}

static void a_cut_path_has_no_folder_that_it_leaves_again(void **state)
{
    char out[HEAP_WHERE_SIZE];
    json_t *where = json_pack("{s:s,s:s,s:i}", "function", "step", "file",
                              "/home/user/work/../progs/train.py", "line", 7);
    (void)state;
    assert_string_equal(heap_where_text(out, where, 40), "progs/train.py:7 step");
    assert_string_equal(heap_where_text(out, where, 60),
                        "/home/user/work/../progs/train.py:7 step");
    json_decref(where);
}

static char *growing_text(const char *json, size_t width)
{
    struct buf out = {0};
    struct doc d = {0};
    json_t *rows = doc_of(json);
    heap_summary(&d, rows);
    doc_terminal(&out, &d, false, width);
    char *text = strdup(buf_str(&out));
    doc_fini(&d);
    json_decref(rows);
    buf_fini(&out);
    return text;
}

static void a_summary_tells_what_grows(void **state)
{
    (void)state;
    char *text = growing_text("[" LEAK "," HOSTILE "]", 80);
    assert_fits(text, 80);
    assert_shows(text, "+50.0 MiB");
    assert_shows(text, "a step");
    assert_shows(text, "train.py:41 collate");
    free(text);
    text = growing_text("[" FIGURES "'where':" THEIRS("draw") ",'in_program':" OWN(
                            "plot", "41") ",'callers':[" OWN("evaluate", "50") "]}]",
                        80);
    assert_shows(text, "plots/figure.py:71 draw ← train.py:41 plot ← evaluate\n");
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
        cmocka_unit_test(at_80_columns_the_table_is_this),
        cmocka_unit_test(below_a_librarys_line_stands_the_programs_function),
        cmocka_unit_test(lines_that_are_one_row_are_told_by_their_function_and_the_largest),
        cmocka_unit_test(the_least_important_columns_go_first),
        cmocka_unit_test(every_width_is_kept_to_and_none_is_too_small_to_live),
        cmocka_unit_test(a_long_title_does_not_push_the_others_aside),
        cmocka_unit_test(without_steps_growth_is_told_by_the_minute),
        cmocka_unit_test(what_was_dropped_is_told_in_words_each),
        cmocka_unit_test(where_nothing_lives_it_says_so),
        cmocka_unit_test(names_cannot_command_the_terminal),
        cmocka_unit_test(names_without_end_are_cut_and_keep_the_line),
        cmocka_unit_test(a_tree_deeper_than_the_screen_stays_on_it),
        cmocka_unit_test(a_document_that_lacks_everything_is_printed),
        cmocka_unit_test(a_cut_path_has_no_folder_that_it_leaves_again),
        cmocka_unit_test(a_summary_tells_what_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
