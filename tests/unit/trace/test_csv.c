/* Tests reading CSV tables and marks of other programs: accepted content, refused content, and the
 * error messages. */
#include "trace/csv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "trace/reader.h"

enum { ROWS_KEPT = 64 };

struct rows {
    size_t count;
    struct csv_row row[ROWS_KEPT];
    char group[ROWS_KEPT][32], phase[ROWS_KEPT][32];
};

static int keep_row(void *user, const struct csv_row *row)
{
    struct rows *rows = user;

    if (rows->count < ROWS_KEPT) {
        rows->row[rows->count] = *row;
        snprintf(rows->group[rows->count], 32, "%.*s", (int)row->group_len, row->group);
        snprintf(rows->phase[rows->count], 32, "%.*s", (int)row->phase_len, row->phase);
    }
    rows->count++;
    return 0;
}

static int read_bytes(const char *s, size_t len, const struct csv_options *o, struct rows *rows,
                      struct err *err)
{
    FILE *f = fmemopen((void *)(uintptr_t)s, len, "r");
    int r;

    assert_non_null(f);
    memset(rows, 0, sizeof(*rows));
    memset(err, 0, sizeof(*err));
    r = csv_read_stream(f, "f.csv", o, keep_row, rows, err);
    fclose(f);
    return r;
}

static void read_good(const char *s, const struct csv_options *o, struct rows *rows)
{
    struct err err;
    int r = read_bytes(s, strlen(s), o, rows, &err);

    if (r != 0)
        print_error("%s\n", err.text);
    assert_int_equal(r, 0);
}

static void assert_refused(const char *s, const struct csv_options *o, const char *sentence)
{
    struct rows rows;
    struct err err;

    assert_true(read_bytes(s, strlen(s), o, &rows, &err) < 0);
    assert_string_equal(err.text, sentence);
}

static void csv_rows_are_read_in_order(void **state)
{
    struct rows r;

    (void)state;
    read_good("t,pid,rss,step,epoch,phase\n"
              "1794723386.326,441,499712,,,\n"
              "1794723386.526,442,39247872,7,0.5,eval\n",
              NULL, &r);
    assert_int_equal(r.count, 2);
    assert_true(r.row[0].t_s == 1794723386.326);
    assert_int_equal(r.row[0].line, 2);
    assert_true(r.row[0].has_t);
    assert_false(r.row[0].has_step);
    assert_false(r.row[0].has_epoch);
    assert_int_equal(r.row[0].value_bytes, 499712);
    assert_string_equal(r.group[0], "441");
    assert_string_equal(r.phase[0], "");
    assert_int_equal(r.row[1].step, 7);
    assert_true(r.row[1].has_epoch && r.row[1].epoch == 0.5);
    assert_string_equal(r.group[1], "442");
    assert_string_equal(r.phase[1], "eval");
}

static void csv_value_column_is_the_first_column_with_a_known_name(void **state)
{
    struct rows r;

    (void)state;
    read_good("t,pss,rss,rss_mb,rss_bytes\n0,1,2,3,4\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 4);
    read_good("t,pss,rss,rss_mb\n0,1,2,3\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 3 << 20);
    read_good("t,pss,rss\n0,1,2\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 2);
    read_good("t,uss,pss\n0,1,2\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 2);
    read_good("t,uss,pss\n0,1,2\n", &(struct csv_options){.column = "uss"}, &r);
    assert_int_equal(r.row[0].value_bytes, 1);
}

static void csv_column_name_with_an_exact_case_match_is_preferred(void **state)
{
    struct rows r;

    (void)state;
    read_good(" T , RSS ,rss\n1,2,3\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 3);
    assert_true(r.row[0].t_s == 1.0);
    read_good("T,Rss\n1,2\n", NULL, &r);
    assert_int_equal(r.row[0].value_bytes, 2);
}

static void csv_unit_comes_from_the_column_name_or_the_unit_option(void **state)
{
    static const struct {
        const char *header, *unit, *value;
        uint64_t bytes;
    } cases[] = {
        {"rss", NULL, "5", 5},
        {"rss_bytes", NULL, "5", 5},
        {"rss_kb", NULL, "5", 5 << 10},
        {"rss_kB", NULL, "5", 5 << 10},
        {"rss_KiB", NULL, "5", 5 << 10},
        {"rss_mb", NULL, "5", 5 << 20},
        {"rss_MiB", NULL, "5", 5 << 20},
        {"rss_gb", NULL, "5", UINT64_C(5) << 30},
        {"anon_max_TB", NULL, "5", UINT64_C(5) << 40},
        {"rss_peak", NULL, "5", 5},
        {"rss_mb", "B", "5", 5},
        {"rss", "MB", "5", 5 << 20},
        {"rss", "mib", "0.5", 1 << 19},
        {"rss", "GiB", "1.5", UINT64_C(3) << 29},
        {"rss", NULL, "1e9", 1000000000},
        {"rss", NULL, " 7 ", 7},
        {"rss", NULL, "2.5E+3", 2500},
        /* 2^56 + 1, which a double cannot represent */
        {"rss", NULL, "72057594037927937", UINT64_C(72057594037927937)},
        {"rss_mb", NULL, "641.44", 672598589},
    };
    char s[128];
    struct rows r;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(s, sizeof(s), "t,%s\n0,%s\n", cases[i].header, cases[i].value);
        read_good(s, &(struct csv_options){.column = cases[i].header, .unit = cases[i].unit}, &r);
        assert_true(r.row[0].value_bytes == cases[i].bytes);
    }
    assert_refused("t,rss\n0,1\n", &(struct csv_options){.unit = "furlongs"},
                   "--unit: unknown unit \"furlongs\"; use " CSV_UNITS);
    assert_refused("t,rss\n0,1\n", &(struct csv_options){.unit = ""},
                   "--unit: unknown unit \"\"; use " CSV_UNITS);
}

static void invalid_csv_value_is_reported_with_its_line_number(void **state)
{
    static const char *const bad[] = {"nan",   "NaN", "-5", "-5.5", "abc", "inf", "-inf", "0x10",
                                      "1 000", "5MB", "1e", "--5",  "5;6", ".",   "\xff"};
    char s[128], want[128];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(s, sizeof(s), "t,rss\n0,1\n1,%s\n2,3\n", bad[i]);
        snprintf(want, sizeof(want), "f.csv line 3: rss \"%s\" is not a size", bad[i]);
        assert_refused(s, NULL, want);
    }
    assert_refused("t,rss\n0,\"1,5\"\n", NULL, "f.csv line 2: rss \"1,5\" is not a size");
    assert_refused("t,rss\n0,1,5\n", NULL, "f.csv line 2 has 3 fields, but the header has 2");
}

static void error_for_a_huge_csv_value_suggests_checking_the_unit(void **state)
{
    static const char *const bad[] = {"1e300", "1e999", "99999999999999999999", "200000000000.5"};
    char s[128], want[200];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(s, sizeof(s), "t,rss_mb\n0,%s\n", bad[i]);
        snprintf(want, sizeof(want),
                 "f.csv line 2: rss_mb \"%s\" exceeds the memory of any machine; check the unit "
                 "(--unit)",
                 bad[i]);
        assert_refused(s, NULL, want);
    }
}

static void invalid_time_or_step_or_epoch_in_a_csv_is_an_error(void **state)
{
    (void)state;
    assert_refused("t,rss\nnan,1\n", NULL, "f.csv line 2: time \"nan\" is not a number of seconds");
    assert_refused("t,rss\n,1\n", NULL, "f.csv line 2: time \"\" is not a number of seconds");
    assert_refused("t,rss\n12:30,1\n", NULL,
                   "f.csv line 2: time \"12:30\" is not a number of seconds");
    assert_refused("t,rss,step\n1,1,x\n", NULL, "f.csv line 2: step \"x\" is not a step number");
    assert_refused("t,rss,step\n1,1,-1\n", NULL, "f.csv line 2: step \"-1\" is not a step number");
    assert_refused("step,rss\n,1\n", NULL, "f.csv line 2: step \"\" is not a step number");
    assert_refused("t,rss,epoch\n1,1,nan\n", NULL, "f.csv line 2: epoch \"nan\" is not a number");
}

static void decreasing_and_negative_csv_times_are_accepted(void **state)
{
    struct rows r;

    (void)state;
    read_good("t,rss\n5,1\n-3.5,2\n", NULL, &r);
    assert_int_equal(r.count, 2);
    assert_true(r.row[1].t_s == -3.5);
}

static void csv_table_with_a_step_column_needs_no_time_column(void **state)
{
    struct rows r;

    (void)state;
    read_good("iter,rss_mb\n0,641.44\n10.0,677.50\n", &(struct csv_options){.step_column = "iter"},
              &r);
    assert_int_equal(r.count, 2);
    assert_false(r.row[0].has_t);
    assert_true(r.row[0].has_step);
    assert_int_equal(r.row[1].step, 10);
}

static void error_for_a_missing_csv_column_lists_existing_columns(void **state)
{
    (void)state;
    assert_refused(
        "t,pid,mem\n", NULL,
        "f.csv has no column \"rss_bytes\", \"rss_mb\", \"rss\" or \"pss\"; choose a column with "
        "--column; its columns are: t, pid, mem");
    assert_refused("t,rss\n", &(struct csv_options){.column = "uss"},
                   "f.csv has no column \"uss\" (--column); its columns are: t, rss");
    assert_refused("t,rss\n", &(struct csv_options){.time_column = "time"},
                   "f.csv has no column \"time\" (--time-column); its columns are: t, rss");
    assert_refused("t,rss\n", &(struct csv_options){.step_column = "iter"},
                   "f.csv has no column \"iter\" (--step-column); its columns are: t, rss");
    assert_refused("t,rss\n", &(struct csv_options){.group = "run"},
                   "f.csv has no column \"run\" (--group); its columns are: t, rss");
    assert_refused("time,rss\n", NULL,
                   "f.csv has neither a column \"t\" nor a column \"step\"; choose a column with "
                   "--time-column or --step-column; its columns are: time, rss");
}

static void csv_parser_accepts_quotes_and_crlf_and_bom_and_blank_lines(void **state)
{
    struct rows r;

    (void)state;
    read_good("\xef\xbb\xbf\"t\",\"rss\",pid,note\r\n"
              "\"1\",\"2\",\"a \"\"b\"\", c\",\"two\nlines\"\r\n"
              "\r\n\n"
              "3,4,x,\"\"\r\n"
              "5,6,y,\"end\"",
              NULL, &r);
    assert_int_equal(r.count, 3);
    assert_string_equal(r.group[0], "a \"b\", c");
    assert_int_equal(r.row[1].line, 6);
    assert_int_equal(r.row[1].value_bytes, 4);
    assert_string_equal(r.group[2], "y");
}

static void empty_csv_value_is_skipped(void **state)
{
    struct rows r;

    (void)state;
    read_good("t,rss,pss\n1,5,\n2,,\n3, ,4\n", &(struct csv_options){.column = "pss"}, &r);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.row[0].value_bytes, 4);
}

static void csv_file_may_have_no_rows_but_must_have_a_header(void **state)
{
    struct rows r;
    struct err err;

    (void)state;
    read_good("t,rss\n", NULL, &r);
    assert_int_equal(r.count, 0);
    read_good("t,rss", NULL, &r);
    assert_int_equal(r.count, 0);
    assert_refused("\n", NULL, "f.csv is empty; the first line must contain the column names");
    assert_int_equal(csv_read("/dev/null", NULL, keep_row, &r, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "/dev/null is empty; the first line must contain the column names");
}

static void truncated_csv_line_is_skipped_only_at_the_end_of_the_file(void **state)
{
    struct rows r;

    (void)state;
    read_good("t,pid,rss\n1,2,3\n4,5", NULL, &r);
    assert_int_equal(r.count, 1);
    assert_refused("t,pid,rss\n4,5\n1,2,3\n", NULL,
                   "f.csv line 2 has 2 fields, but the header has 3");
}

static void malformed_csv_tables_are_refused_with_an_error(void **state)
{
    struct buf b = {0};
    struct rows r;
    struct err err;

    (void)state;
    assert_refused("t,rss\n1,\"2\n3,4\n", NULL, "f.csv line 2: a quote is not closed");
    assert_refused("t,rss\n1,\"2\"x\n", NULL,
                   "f.csv line 2: text follows a closing quote (a quote in a field must be "
                   "doubled)");
    assert_int_equal(read_bytes("t,rss\n1,\0\n", 10, NULL, &r, &err), -EBADMSG);
    assert_string_equal(err.text, "f.csv line 2: contains a NUL byte: not a text file");

    buf_add_str(&b, "t,rss\n1,2\n3,");
    for (int i = 0; i < 10 << 20; i++)
        buf_add_byte(&b, '7');
    assert_int_equal(read_bytes(b.data, b.len, NULL, &r, &err), -EBADMSG);
    assert_string_equal(err.text, "f.csv line 3: longer than 1 MiB (possibly an unclosed quote)");
    assert_int_equal(r.count, 1);

    buf_clear(&b);
    buf_add_str(&b, "t,rss");
    for (int i = 0; i < 100000; i++)
        buf_add_str(&b, ",c");
    assert_int_equal(read_bytes(b.data, b.len, NULL, &r, &err), -EBADMSG);
    assert_string_equal(err.text, "f.csv line 1: more than 4096 columns");
    buf_fini(&b);
}

static void unreadable_csv_files_are_refused_with_an_error(void **state)
{
    char path[] = "/tmp/ebb-test-XXXXXX";
    int fd = mkstemp(path);
    struct rows r;
    struct err err;
    char want[128];

    (void)state;
    assert_int_equal(csv_read("/no/such.csv", NULL, keep_row, &r, &err), -ENOENT);
    assert_string_equal(err.text, "cannot open /no/such.csv: No such file or directory");
    assert_int_equal(csv_read("/tmp", NULL, keep_row, &r, &err), -EISDIR);
    assert_string_equal(err.text, "/tmp is a folder, not a file");
    assert_int_equal(write(fd, "\x1f\x8b\x08\0\0\0", 6), 6);
    assert_int_equal(csv_read(path, NULL, keep_row, &r, &err), -EBADMSG);
    snprintf(want, sizeof(want), "%s is gzip data, not a table", path);
    assert_string_equal(err.text, want);
    assert_int_equal(pwrite(fd, "EBBTRACE\1\0\0\0", 12, 0), 12);
    assert_int_equal(csv_read(path, NULL, keep_row, &r, &err), -EBADMSG);
    snprintf(want, sizeof(want), "%s is an ebb recording, not a table", path);
    assert_string_equal(err.text, want);
    close(fd);
    unlink(path);
}

static int stop_at_once(void *user, const struct csv_row *row)
{
    (void)row;
    ++*(int *)user;
    return 42;
}

static void csv_reader_stops_when_its_callback_returns_an_error(void **state)
{
    static const char s[] = "t,rss\n1,2\n3,4\n";
    FILE *f = fmemopen((void *)(uintptr_t)s, sizeof(s) - 1, "r");
    struct err err;
    int calls = 0;

    (void)state;
    assert_int_equal(csv_read_stream(f, "f", NULL, stop_at_once, &calls, &err), 42);
    assert_int_equal(calls, 1);
    fclose(f);
}

/* ---- marks ---- */

struct marks {
    size_t count;
    double t_s[ROWS_KEPT];
    struct mark mark[ROWS_KEPT];
    char text[ROWS_KEPT][256];
};

static int keep_mark(void *user, double t_s, const struct mark *m)
{
    struct marks *marks = user;

    if (marks->count < ROWS_KEPT) {
        marks->t_s[marks->count] = t_s;
        marks->mark[marks->count] = *m;
        snprintf(marks->text[marks->count], 256, "%.*s", (int)m->len, m->text);
    }
    marks->count++;
    return 0;
}

static int read_marks(const char *s, struct marks *marks, struct err *err)
{
    FILE *f = fmemopen((void *)(uintptr_t)s, strlen(s), "r");
    int r;

    assert_non_null(f);
    memset(marks, 0, sizeof(*marks));
    memset(err, 0, sizeof(*err));
    r = csv_read_marks_stream(f, "m.jsonl", keep_mark, marks, err);
    fclose(f);
    return r;
}

static void json_lines_are_read_as_marks_in_wire_format(void **state)
{
    struct marks m;
    struct err err;

    (void)state;
    assert_int_equal(
        read_marks("{\"t\": 1794723399.6723146, \"kind\": \"begin\", \"step\": 0}\n\r\n"
                   "{\"kind\":\"step\",\"t\":2,\"step\":120.0,\"epoch\":1.45,"
                   "\"steps_per_epoch\":83,\"max_steps\":249,\"examples\":663,"
                   "\"effective_batch\":8,\"rank\":null,\"pid\":77,"
                   "\"lr-now\":1e-05,\"2nd\":true,\"note\":\"a b\",\"l\":[1,2]}",
                   &m, &err),
        0);
    assert_int_equal(m.count, 2);
    assert_true(m.t_s[0] == 1794723399.6723146);
    assert_int_equal(m.mark[0].kind, MARK_BEGIN);
    assert_string_equal(m.text[0], "KIND=begin\nSTEP=0\n");
    assert_int_equal(m.mark[1].kind, MARK_STEP);
    assert_int_equal(m.mark[1].step, 120);
    assert_true(m.mark[1].epoch == 1.45);
    assert_int_equal(m.mark[1].effective_batch, 8);
    assert_false(m.mark[1].has & MARK_HAS_RANK);
    assert_int_equal(m.mark[1].pid, 77);
    assert_string_equal(m.text[1], "KIND=step\nSTEP=120\nEPOCH=1.45\nSTEPS_PER_EPOCH=83\n"
                                   "MAX_STEPS=249\nEXAMPLES=663\nEFFECTIVE_BATCH=8\n"
                                   "LR_NOW=1e-05\nK_2ND=true\nNOTE=a b\nL=[1,2]\n");
}

static void json_lines_that_are_not_marks_are_skipped(void **state)
{
    struct marks m;
    struct err err;

    (void)state;
    assert_int_equal(read_marks("{\"type\":\"header\"}\n{\"type\":\"sample\",\"t\":1}\n"
                                "{\"type\":\"mark\",\"t\":1,\"kind\":\"eval\"}\n",
                                &m, &err),
                     0);
    assert_int_equal(m.count, 1);
    assert_string_equal(m.text[0], "KIND=eval\n");
}

static void invalid_mark_line_is_reported_with_its_line_number(void **state)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"[1]", "not a JSON object like {\"t\": 12.5, \"kind\": \"step\", \"step\": 3}"},
        {"{\"kind\":\"step\"}", "a mark requires \"t\", its time in seconds"},
        {"{\"t\":\"1\",\"kind\":\"step\"}", "a mark requires \"t\", its time in seconds"},
        {"{\"t\":1}", "a mark requires a \"kind\", such as \"step\" or \"eval\""},
        {"{\"t\":1,\"kind\":3}", "a mark requires a \"kind\", such as \"step\" or \"eval\""},
        {"{\"t\":1,\"kind\":\"step\",\"step\":-3}", "invalid value of \"step\": -3"},
        {"{\"t\":1,\"kind\":\"step\",\"step\":\"x\"}", "invalid value of \"step\": \"x\""},
        {"{\"t\":1,\"kind\":\"step\",\"step\":1.5}", "invalid value of \"step\": 1.5"},
        {"{\"t\":1,\"kind\":\"a\\nb\"}", "invalid value of \"kind\": \"a\\nb\""},
        {"{\"t\":1,\"kind\":\"a\",\"note\":\"\\u0000\"}", "invalid value of \"note\": \"\\u0000\""},
    };
    char s[256], want[256];
    struct marks m;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(s, sizeof(s), "{\"t\":1,\"kind\":\"eval\"}\n%s\n", cases[i].line);
        snprintf(want, sizeof(want), "m.jsonl line 2: %s", cases[i].why);
        assert_int_equal(read_marks(s, &m, &err), -EBADMSG);
        assert_string_equal(err.text, want);
        assert_int_equal(m.count, 1);
    }
    assert_int_equal(read_marks("{\"t\":1,\n", &m, &err), -EBADMSG);
    assert_int_equal(strncmp(err.text, "m.jsonl line 1: ", 16), 0);
    assert_int_equal(read_marks("{\"t\":NaN,\"kind\":\"step\"}\n", &m, &err), -EBADMSG);
}

/* ---- the tables of ../shared/traces, if they exist ---- */

static bool find_trace(const char *name, char out[512])
{
    const char *folder = getenv("EBB_TRACES");

    snprintf(out, 512, "%s/%s", folder && *folder ? folder : "../shared/traces", name);
    if (access(out, R_OK) == 0)
        return true;
    print_message("%s does not exist: not tested\n", out);
    return false;
}

static void csv_table_and_marks_recorded_on_an_h200_can_be_read(void **state)
{
    struct rows *r = calloc(1, sizeof(*r));
    struct marks *m = calloc(1, sizeof(*m));
    struct err err = {0};
    char path[512];

    (void)state;
    if (find_trace("h200-lazy-pil.csv", path)) {
        assert_int_equal(csv_read(path, NULL, keep_row, r, &err), 0);
        assert_true(r->count > 400);
        assert_int_equal(r->row[0].value_bytes, 499712);
        assert_string_equal(r->group[0], "441");
    }
    if (find_trace("h200-lazy-pil.marks.jsonl", path)) {
        assert_int_equal(csv_read_marks(path, keep_mark, m, &err), 0);
        assert_true(m->count > 200);
        assert_int_equal(m->mark[0].kind, MARK_BEGIN);
        assert_true(m->t_s[0] == 1794723399.6723146);
    }
    free(r);
    free(m);
}

static void csv_tables_with_steps_instead_of_times_are_read(void **state)
{
    struct rows *r = calloc(1, sizeof(*r));
    struct err err = {0};
    char path[512];

    (void)state;
    if (find_trace("tokenizers-1539.csv", path)) {
        assert_int_equal(
            csv_read(path, &(struct csv_options){.step_column = "iter"}, keep_row, r, &err), 0);
        assert_true(r->count > 10 && r->row[0].value_bytes == 672598589);
    }
    r->count = 0;
    if (find_trace("model-garden/first_epoch_fill_traces.csv", path)) {
        assert_int_equal(csv_read(path, &(struct csv_options){.group = "run"}, keep_row, r, &err),
                         0);
        assert_int_equal(r->count, 68);
        assert_string_equal(r->group[0], "prod_run1");
        assert_int_equal(r->row[0].step, 10);
        assert_true(r->row[0].value_bytes == UINT64_C(5552) << 20);
    }
    if (find_trace("hpc-runs.csv.gz", path))
        assert_int_equal(csv_read(path, NULL, keep_row, r, &err), -EBADMSG);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_rows_are_read_in_order),
        cmocka_unit_test(csv_value_column_is_the_first_column_with_a_known_name),
        cmocka_unit_test(csv_column_name_with_an_exact_case_match_is_preferred),
        cmocka_unit_test(csv_unit_comes_from_the_column_name_or_the_unit_option),
        cmocka_unit_test(invalid_csv_value_is_reported_with_its_line_number),
        cmocka_unit_test(error_for_a_huge_csv_value_suggests_checking_the_unit),
        cmocka_unit_test(invalid_time_or_step_or_epoch_in_a_csv_is_an_error),
        cmocka_unit_test(decreasing_and_negative_csv_times_are_accepted),
        cmocka_unit_test(csv_table_with_a_step_column_needs_no_time_column),
        cmocka_unit_test(error_for_a_missing_csv_column_lists_existing_columns),
        cmocka_unit_test(csv_parser_accepts_quotes_and_crlf_and_bom_and_blank_lines),
        cmocka_unit_test(empty_csv_value_is_skipped),
        cmocka_unit_test(csv_file_may_have_no_rows_but_must_have_a_header),
        cmocka_unit_test(truncated_csv_line_is_skipped_only_at_the_end_of_the_file),
        cmocka_unit_test(malformed_csv_tables_are_refused_with_an_error),
        cmocka_unit_test(unreadable_csv_files_are_refused_with_an_error),
        cmocka_unit_test(csv_reader_stops_when_its_callback_returns_an_error),
        cmocka_unit_test(json_lines_are_read_as_marks_in_wire_format),
        cmocka_unit_test(json_lines_that_are_not_marks_are_skipped),
        cmocka_unit_test(invalid_mark_line_is_reported_with_its_line_number),
        cmocka_unit_test(csv_table_and_marks_recorded_on_an_h200_can_be_read),
        cmocka_unit_test(csv_tables_with_steps_instead_of_times_are_read),
    };

    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
