/* Tests one document as terminal text, HTML and Markdown. */
#include "present/document.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/clock.h"

/* Contains markup, a mention, code, a colour, a terminal title and right-to-left text. */
static const char hostile[] = "<b>@x|`\x1b[7m\x1b]0;t\x07\xe2\x80\xaeqq\xff\n</td>";

enum output { TERMINAL, HTML, MARKDOWN };

/* Writes document D and frees it. */
static struct buf output_of(struct doc *d, enum output how, size_t width)
{
    struct buf out = {0};
    if (how == TERMINAL)
        doc_terminal(&out, d, false, width);
    else if (how == HTML)
        doc_html(&out, d);
    else
        doc_markdown(&out, d, "/srv/job");
    doc_fini(d);
    return out;
}

static void check(struct doc *d, enum output how, size_t width, const char *expected)
{
    struct buf out = output_of(d, how, width);
    assert_string_equal(buf_str(&out), expected);
    buf_fini(&out);
}

static struct doc facts(void)
{
    struct doc d = {0};
    doc_fact(&d, "memory");
    doc_itemf(&d, TONE_PLAIN, "start %s", "1.00 GiB");
    doc_itemf(&d, TONE_STRONG, "peak %s", "2.00 GiB");
    doc_item(&d);
    doc_itemf(&d, TONE_PLAIN, "end %s", "1.50 GiB");
    doc_fact(&d, "empty");
    doc_item(&d);
    doc_text(&d, TONE_PLAIN, "");
    doc_fact(&d, "cause");
    doc_text(&d, TONE_PLAIN, "it ran out of memory, as others had before");
    return d;
}

static void long_line_of_items_wraps_between_items(void **state)
{
    struct doc d = facts();
    (void)state;
    check(&d, TERMINAL, 44,
          "memory     start 1.00 GiB, peak 2.00 GiB,\n"
          "           end 1.50 GiB\n"
          "cause      it ran out of memory, as others\n"
          "           had before\n");
}

static void labelled_lines_are_a_list_in_html_and_a_table_in_markdown(void **state)
{
    struct doc d = facts();
    (void)state;
    check(&d, HTML, 0,
          "<dl class=facts>\n"
          "<div><dt>memory<dd>start 1.00 GiB, <b>peak 2.00 GiB</b>, end 1.50 GiB</div>\n"
          "<div><dt>cause<dd>it ran out of memory, as others had before</div>\n"
          "</dl>\n");
    d = facts();
    check(&d, MARKDOWN, 0,
          "\n| | |\n|---|---|\n"
          "| memory | start 1.00 GiB, peak 2.00 GiB, end 1.50 GiB |\n"
          "| cause | it ran out of memory, as others had before |\n");
}

static void number_and_its_unit_are_never_separated_by_a_line_break(void **state)
{
    struct doc d = {0};
    (void)state;
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "it has grown by about 12 GiB, in 30 min");
    check(&d, TERMINAL, 24, "it has grown by about\n12 GiB, in 30 min\n");
    d = (struct doc){0};
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "it was finished in 3 min 05 s, at step 7");
    check(&d, TERMINAL, 26, "it was finished in\n3 min 05 s, at step 7\n");
}

static struct doc table(void)
{
    static const struct doc_column columns[] = {{"PID", true, 0, CUT_END, 0, 0},
                                                {"ROLE", false, 2, CUT_END, 0, 0},
                                                {"PEAK", true, 1, CUT_END, 0, 0},
                                                {"NONE", true, 1, CUT_END, 0, 0},
                                                {"WHERE", false, 0, CUT_START, 16, 0}};
    struct doc d = {0};
    doc_table(&d, NULL, "table of processes", columns, 5);
    for (int i = 0; i < 2; i++) {
        doc_row(&d);
        doc_cellf(&d, TONE_STRONG, "%d", 7 + 100 * i);
        doc_cell(&d, TONE_PLAIN, "worker");
        doc_cell(&d, i ? TONE_BAD : TONE_PLAIN, "1.2G");
        doc_cell(&d, TONE_PLAIN, "–");
        doc_cell(&d, TONE_PLAIN, NULL);
        doc_code(&d, "lib/site-packages/matplotlib/figure.py:71 draw");
        if (i)
            doc_below(&d, TONE_DIM, "in malloc");
    }
    return d;
}

static void narrow_table_hides_columns_and_shortens_paths(void **state)
{
    struct doc d = table();
    (void)state;
    check(&d, TERMINAL, 80,
          "PID  ROLE    PEAK  WHERE\n"
          "  7  worker  1.2G  lib/site-packages/matplotlib/figure.py:71 draw\n"
          "107  worker  1.2G  lib/site-packages/matplotlib/figure.py:71 draw\n"
          "                     in malloc\n");
    d = table();
    check(&d, TERMINAL, 34,
          "PID  PEAK  WHERE\n"
          "  7  1.2G  …figure.py:71 draw\n"
          "107  1.2G  …figure.py:71 draw\n"
          "             in malloc\n");
}

static void html_and_markdown_tables_show_every_column(void **state)
{
    struct doc d = table();
    (void)state;
    check(&d, HTML, 0,
          "<div class=scroll role=region aria-label=\"table of processes\" tabindex=0>\n"
          "<table>\n<thead><tr><th class=n>PID<th>ROLE<th class=n>PEAK<th>WHERE\n"
          "</thead><tbody>\n"
          "<tr><td class=n>7<td>worker<td class=n>1.2G<td class=wide>"
          "<code>lib/site-packages/matplotlib/figure.py:71 draw</code>\n"
          "<tr><td class=n>107<td>worker<td class=\"n bad\">1.2G<td class=wide>"
          "<details><summary><code>lib/site-packages/matplotlib/figure.py:71 draw</code></summary>"
          "<ol class=stack>\n<li>in malloc\n</ol></details>\n"
          "</tbody></table></div>\n");
    d = table();
    check(&d, MARKDOWN, 0,
          "\n| PID | ROLE | PEAK | WHERE |\n|---:|---|---:|---|\n"
          "| 7 | worker | 1.2G | `lib/site-packages/matplotlib/figure.py:71 draw` |\n"
          "| 107 | worker | 1.2G | `lib/site-packages/matplotlib/figure.py:71 draw` |\n");
}

static void bullet_points_are_indented_below_the_previous_line(void **state)
{
    struct doc d = {0};
    (void)state;
    doc_fact(&d, "verdict");
    doc_text(&d, TONE_BAD, "leaking");
    doc_text(&d, TONE_PLAIN, ": memory keeps growing");
    doc_point(&d, POINT_PLAIN);
    doc_text(&d, TONE_PLAIN, "every step adds the same");
    doc_heading(&d, "Why");
    doc_point(&d, POINT_FOR);
    doc_text(&d, TONE_PLAIN, "all");
    check(&d, TERMINAL, 32,
          "verdict    leaking: memory keeps\n"
          "           growing\n"
          "           · every step adds the\n"
          "             same\n"
          "\nWhy\n+ all\n");
}

static struct doc folds(void)
{
    struct doc d = {0};
    doc_fold(&d, FOLD_OPEN);
    doc_text(&d, TONE_PLAIN, "open");
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "seen");
    doc_fold_end(&d);
    doc_fold(&d, FOLD_GROUP);
    doc_text(&d, TONE_PLAIN, "2 more");
    doc_fold(&d, FOLD_OPEN);
    doc_text(&d, TONE_PLAIN, "inner");
    doc_fold_end(&d);
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "hidden");
    doc_fold_end(&d);
    doc_hide(&d, DOC_HTML);
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "not in a page");
    return d;
}

static void collapsed_group_shows_only_the_summary_outside_html(void **state)
{
    struct doc d = folds();
    (void)state;
    check(&d, TERMINAL, 80, "open\nseen\n2 more\nnot in a page\n");
    d = folds();
    check(&d, MARKDOWN, 0, "open\n\nseen\n\n2 more\n\nnot in a page\n");
    d = folds();
    check(&d, HTML, 0,
          "<details class=hypothesis open><summary>open</summary>\n<p>seen</p>\n</details>\n"
          "<details class=group><summary>2 more</summary>\n"
          "<details class=hypothesis open><summary>inner</summary>\n</details>\n"
          "<p>hidden</p>\n</details>\n");
}

static void colours_are_used_only_on_a_colour_terminal(void **state)
{
    struct doc d = {0};
    struct buf out = {0};
    (void)state;
    doc_para(&d, TONE_DIM);
    doc_text(&d, TONE_PLAIN, "a b");
    doc_text(&d, TONE_BAD, "c");
    doc_terminal(&out, &d, true, 80);
    assert_string_equal(buf_str(&out), "\033[2ma\033[0m \033[2mb\033[0m\033[1;31mc\033[0m\n");
    buf_fini(&out);
    check(&d, HTML, 0, "<p class=quiet>a b<b class=bad>c</b></p>\n");
}

/* Puts hostile text into every place that accepts text. */
static struct doc hostile_everywhere(void)
{
    static const struct series_point points[] = {{0, 1}, {1, 2}};
    const struct doc_column columns[] = {{"A", false, 0, CUT_WRAP, 0, 0}};
    struct doc d = {0};
    doc_title(&d, hostile);
    doc_section(&d, "one", TONE_BAD, hostile);
    doc_heading(&d, hostile);
    doc_headline(&d, NULL);
    doc_text(&d, TONE_BAD, hostile);
    doc_code(&d, hostile);
    doc_name(&d, TONE_PLAIN, hostile, sizeof hostile, 20);
    doc_fact(&d, hostile);
    doc_itemf(&d, TONE_PLAIN, "%s", hostile);
    doc_point(&d, POINT_TROUBLE);
    doc_text(&d, TONE_PLAIN, hostile);
    doc_code_line(&d, hostile);
    doc_table(&d, hostile, "table", columns, 1);
    doc_row(&d);
    doc_cell(&d, TONE_PLAIN, hostile);
    doc_below(&d, TONE_DIM, hostile);
    doc_fold(&d, FOLD_OPEN);
    doc_text(&d, TONE_PLAIN, hostile);
    doc_fold_end(&d);
    doc_bar(&d, hostile, NULL, 0);
    doc_plot(&d, &(struct doc_plot){.title = hostile, .span_ns = 1, .points = points, .count = 2});
    return d;
}

static void assert_harmless(const char *text)
{
    for (const char *at = text; *at; at++)
        assert_true((unsigned char)*at >= 0x20 || *at == '\n');
    assert_null(strchr(text, 0x7f));
    assert_null(strstr(text, "\xe2\x80\xae"));
    assert_null(strstr(text, "\xff"));
    assert_non_null(strstr(text, "qq"));
}

static void hostile_text_is_escaped_in_every_document_format(void **state)
{
    (void)state;
    for (enum output how = TERMINAL; how <= MARKDOWN; how++) {
        struct doc d = hostile_everywhere();
        struct buf out = output_of(&d, how, 80);
        assert_false(out.failed);
        assert_harmless(buf_str(&out));
        if (how == HTML) {
            assert_null(strstr(buf_str(&out), "<b>@"));
            assert_null(strstr(buf_str(&out), "</td>"));
        }
        buf_fini(&out);
    }
}

static void markdown_escapes_markup_and_hides_private_folders(void **state)
{
    struct doc d = {0};
    (void)state;
    doc_para(&d, TONE_PLAIN);
    doc_text(&d, TONE_PLAIN, "<b>@x|`");
    doc_code_line(&d, "/srv/job/train.py ```");
    check(&d, MARKDOWN, 0, "&lt;b&gt;@<!-- -->x\\|\\`\n\n```\ntrain.py '''\n```\n");
}

static void terminal_plot_has_an_axis_and_event_letters(void **state)
{
    static const struct series_point points[] = {{0, 0}, {10 * NS_PER_S, 1 << 30}};
    static const struct doc_event events[] = {{0, 'E'}, {10 * NS_PER_S, 'c'}};
    struct doc d = {0};
    (void)state;
    doc_plot(&d, &(struct doc_plot){.title = "memory of the job",
                                    .span_ns = 10 * NS_PER_S,
                                    .points = points,
                                    .count = 2,
                                    .events = events,
                                    .event_count = 2});
    struct buf out = output_of(&d, TERMINAL, 40);
    assert_non_null(strstr(buf_str(&out), "memory of the job\n"));
    assert_non_null(strstr(buf_str(&out), "  1.00 GiB "));
    assert_non_null(strstr(buf_str(&out), "\n           E                           c\n"));
    assert_non_null(strstr(buf_str(&out), "10.0 s\n"));
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_line_of_items_wraps_between_items),
        cmocka_unit_test(labelled_lines_are_a_list_in_html_and_a_table_in_markdown),
        cmocka_unit_test(number_and_its_unit_are_never_separated_by_a_line_break),
        cmocka_unit_test(narrow_table_hides_columns_and_shortens_paths),
        cmocka_unit_test(html_and_markdown_tables_show_every_column),
        cmocka_unit_test(bullet_points_are_indented_below_the_previous_line),
        cmocka_unit_test(collapsed_group_shows_only_the_summary_outside_html),
        cmocka_unit_test(colours_are_used_only_on_a_colour_terminal),
        cmocka_unit_test(hostile_text_is_escaped_in_every_document_format),
        cmocka_unit_test(markdown_escapes_markup_and_hides_private_folders),
        cmocka_unit_test(terminal_plot_has_an_axis_and_event_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
