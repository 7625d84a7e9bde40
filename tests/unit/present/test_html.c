/* Tests the escaping of other programs' text in a page, the embedded files, and plots of braille
 * characters. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "present/assets.h"
#include "present/chart.h"
#include "present/html.h"

static void html_output_escapes_markup(void **state)
{
    struct buf out = {0};
    (void)state;
    html_text0(&out, "<script>alert('x' & \"y\")</script>");
    assert_string_equal(buf_str(&out), "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)"
                                       "&lt;/script&gt;");
    buf_fini(&out);
}

static void html_output_escapes_control_characters_and_invalid_utf8(void **state)
{
    static const char raw[] = "a\x1b[31m\xff\0b\xe2\x80\xae";
    struct buf out = {0};
    (void)state;
    html_text(&out, raw, sizeof raw - 1);
    assert_null(memchr(out.data, 0x1b, out.len));
    assert_null(memchr(out.data, 0xff, out.len));
    assert_null(memchr(out.data, 0, out.len));
    assert_null(strstr(buf_str(&out), "\xe2\x80\xae"));
    buf_fini(&out);
}

static void json_embedded_in_a_page_cannot_end_the_script_element(void **state)
{
    static const char hostile[] = "</script><script>window.injected=true</script><!--\xe2\x80\xa8";
    struct buf out = {0};
    struct err *none = NULL;
    json_t *doc = json_pack("{s:s,s:[s]}", hostile, hostile, "list", hostile);
    (void)state;
    assert_int_equal(html_json(&out, doc), 0);
    assert_null(strpbrk(buf_str(&out), "<>&"));
    for (size_t i = 0; i < out.len; i++)
        assert_in_range(out.data[i], 0x20, 0x7e);
    json_t *back = json_parse(out.data, out.len, none);
    assert_true(json_equal(back, doc));
    json_decref(back);
    json_decref(doc);
    buf_fini(&out);
}

static void report_style_and_script_are_embedded_in_ebb(void **state)
{
    struct buf out = {0};
    (void)state;
    assert_int_equal(asset_unpack("report.css", &out), 0);
    assert_non_null(strstr(buf_str(&out), "prefers-color-scheme"));
    assert_null(strstr(buf_str(&out), "</style"));
    buf_clear(&out);
    assert_int_equal(asset_unpack("report.js", &out), 0);
    assert_null(strstr(buf_str(&out), "</script"));
    buf_fini(&out);
}

static void asset_lookup_finds_only_files_of_the_server_page(void **state)
{
    static const char *const names[] = {"serve.html", "serve.css", "serve.js", "icon.svg"};
    struct asset_file file, other = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        assert_int_equal(asset_find(names[i], &file), 0);
        assert_memory_equal(file.gzip, "\x1f\x8b", 2);
        assert_true(file.len > 18 && file.etag[0] == '"' &&
                    file.etag[strlen(file.etag) - 1] == '"');
        assert_string_not_equal(file.etag, other.etag);
        other = file;
    }
    assert_int_equal(asset_find("", &file), -ENOENT);
    assert_int_equal(asset_find("../serve.js", &file), -ENOENT);
    assert_int_equal(asset_find("report.js", &file), -ENOENT);
    assert_string_equal(file.etag, other.etag);
}

static void braille_plot_of_growing_values_rises_to_the_right(void **state)
{
    const struct series_point line[] = {{0, 0}, {10, 100}};
    const struct braille_range range = {0, 10, 0, 100};
    char text[BRAILLE_WIDTH * 3 + 1];
    struct braille b;
    (void)state;
    braille_init(&b, 2, 1);
    braille_draw(&b, &range, line, 2);
    assert_string_equal(braille_row(&b, 0, text), "⡠⠊");
}

static void braille_plot_clips_points_outside_the_range(void **state)
{
    const struct series_point line[] = {{2, 50}, {UINT64_MAX, UINT64_MAX}, {5, 200}, {5, 50}};
    const struct braille_range range = {4, 10, 0, 100};
    char text[BRAILLE_WIDTH * 3 + 1];
    struct braille b;
    size_t dots = 0;
    (void)state;
    braille_init(&b, 4, 2);
    braille_draw(&b, &range, line, 4);
    for (size_t row = 0; row < 2; row++)
        for (size_t i = 0; i < 4; i++)
            dots += (size_t)__builtin_popcount(b.dots[row][i]);
    assert_int_equal(dots, 1);
    assert_int_equal(strlen(braille_row(&b, 0, text)), 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(html_output_escapes_markup),
        cmocka_unit_test(html_output_escapes_control_characters_and_invalid_utf8),
        cmocka_unit_test(json_embedded_in_a_page_cannot_end_the_script_element),
        cmocka_unit_test(report_style_and_script_are_embedded_in_ebb),
        cmocka_unit_test(asset_lookup_finds_only_files_of_the_server_page),
        cmocka_unit_test(braille_plot_of_growing_values_rises_to_the_right),
        cmocka_unit_test(braille_plot_clips_points_outside_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
