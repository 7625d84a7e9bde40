/* Tests that text of other programs is escaped in Markdown and that private paths are hidden. */
#include "present/markdown.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"

static void check(void (*as)(struct buf *, const char *), const char *raw, const char *expected)
{
    struct buf out = {0};
    as(&out, raw);
    assert_string_equal(buf_str(&out), expected);
    buf_fini(&out);
}

static void check_paths(const char *raw, const char *cwd, const char *expected)
{
    struct buf out = {0};
    markdown_paths(&out, raw, cwd);
    assert_string_equal(buf_str(&out), expected);
    buf_fini(&out);
}

static void markdown_escapes_markup_in_plain_text(void **state)
{
    (void)state;
    check(markdown_text, "<script>&", "&lt;script&gt;&amp;");
    check(markdown_text, "a|b *c* `d` [e](f)", "a\\|b \\*c\\* \\`d\\` \\[e\\](f)");
    check(markdown_text, "~~gone~~ ~/run", "\\~\\~gone\\~\\~ ~/run");
    check(markdown_text, "a\nb", "a\\\\nb");
    check(markdown_text, "see https://example.org/x", "see https&#58;//example.org/x");
}

static void markdown_leaves_underscores_within_names_unescaped(void **state)
{
    (void)state;
    check(markdown_text, "train_step, my_model.py:7", "train_step, my_model.py:7");
    check(markdown_text, "SGD.__init__", "SGD.\\_\\_init\\_\\_");
    check(markdown_text, "heap_live_bytes@4711", "heap_live_bytes@4711");
}

static void markdown_escapes_mentions_and_issue_references(void **state)
{
    (void)state;
    check(markdown_text, "@torch", "@<!-- -->torch");
    check(markdown_text, "of (#12)", "of (#<!-- -->12)");
    check(markdown_text, "a@b #", "a@b #");
}

static void text_cannot_end_the_enclosing_markdown_code_span(void **state)
{
    (void)state;
    check(markdown_code, "a|b `c` <d>", "`a\\|b 'c' <d>`");
    check(markdown_code, "", "");
    check(markdown_fenced, "```\n# x", "'''\\n# x");
    check(markdown_fenced, "a|b", "a|b");
}

static void markdown_makes_bidi_characters_visible(void **state)
{
    (void)state;
    check(markdown_text, "\u202eevil", "\\\\u{202e}evil");
    check(markdown_code, "\x1b[31m", "`\\e[31m`");
}

static void markdown_removes_private_folders_from_paths(void **state)
{
    (void)state;
    check_paths("main, /home/ann/job/train.py:3", "/home/ann/job", "main, train.py:3");
    check_paths("main, /home/ann/lib/x.py:3", "/home/ann/job", "main, ~/lib/x.py:3");
    check_paths("in /home/ann, (/home/ann/a)", NULL, "in ~, (~/a)");
    check_paths("/home/ann/venv/lib/python3.11/site-packages/torch/optim/sgd.py:65", NULL,
                "torch/optim/sgd.py:65");
    check_paths("--data=/home/ann/data", "/", "--data=~/data");
}

static void markdown_keeps_folders_that_are_not_private(void **state)
{
    (void)state;
    check_paths("/usr/lib/libc.so.6, /homes/x", "/opt", "/usr/lib/libc.so.6, /homes/x");
    check_paths("a/home/b/c 1/2 //home/ann/x", NULL, "a/home/b/c 1/2 //home/ann/x");
    check_paths("../home/b", "/jobs", "../home/b");
    check_paths("/jobsite/x", "/jobs", "/jobsite/x");
    check_paths("", "/jobs", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markdown_escapes_markup_in_plain_text),
        cmocka_unit_test(markdown_leaves_underscores_within_names_unescaped),
        cmocka_unit_test(markdown_escapes_mentions_and_issue_references),
        cmocka_unit_test(text_cannot_end_the_enclosing_markdown_code_span),
        cmocka_unit_test(markdown_makes_bidi_characters_visible),
        cmocka_unit_test(markdown_removes_private_folders_from_paths),
        cmocka_unit_test(markdown_keeps_folders_that_are_not_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
