/* Tests exports of a recording as CSV and JSON lines by reading them back. */
#include "trace/export.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/csv.h"
#include "trace/reader.h"
#include "trace/writer.h"

enum { START_S = 100 };

struct fixture {
    char path[32];
    int fd;
    struct trace_writer *w;
    char *text; /* Output of the last export. */
    size_t len;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    json_t *header = json_pack("{s:s,s:I,s:I}", "command", "train \"me\"", "start_mono_ns",
                               (json_int_t)(START_S * NS_PER_S), "start_wall_ns", (json_int_t)5);
    struct err err = {0};

    snprintf(f->path, sizeof(f->path), "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    assert_int_equal(trace_writer_new(f->fd, "t.ebb", header, NULL, &f->w, &err), 0);
    json_decref(header);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->w)
        trace_writer_close(f->w, NULL, 120 * NS_PER_S);
    unlinkat(f->fd, "t.ebb", 0);
    unlinkat(f->fd, "out", 0);
    close(f->fd);
    assert_int_equal(rmdir(f->path), 0);
    free(f->text);
    free(f);
    return 0;
}

static uint64_t at_ms(uint64_t ms)
{
    return START_S * NS_PER_S + ms * NS_PER_MS;
}

static void born(struct fixture *f, uint32_t slot, int32_t pid, const char *comm, size_t comm_len,
                 const char *args, size_t args_len)
{
    struct process_info info = {.id = {pid, 1000 + slot}, .ppid = 1, .uid = 7, .role = ROLE_MAIN};

    memcpy(info.comm, comm, comm_len);
    info.comm_len = (uint16_t)comm_len;
    memcpy(info.cmdline, args, args_len);
    info.cmdline_len = (uint16_t)args_len;
    trace_writer_process(f->w, at_ms(0), PROCESS_BORN, slot, &info);
}

static void say(struct fixture *f, uint64_t ms, const char *text)
{
    struct mark m;

    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.t_ns = at_ms(ms);
    m.pid = 42;
    trace_writer_mark(f->w, &m);
}

static void tick(struct fixture *f, uint64_t ms, uint32_t slot, uint64_t rss)
{
    struct sample s = {0};

    sample_put(&s, SAMPLE_RSS, rss);
    trace_writer_tick_begin(f->w, at_ms(ms));
    trace_writer_sample(f->w, ENTITY_PROCESS, slot, &s);
    trace_writer_tick_end(f->w);
}

static struct trace_reader *open_recording(struct fixture *f)
{
    struct trace_reader *r = NULL;
    struct err err = {0};
    char path[64];

    if (f->w)
        assert_int_equal(trace_writer_close(f->w, NULL, 120 * NS_PER_S), 0);
    f->w = NULL;
    snprintf(path, sizeof(path), "%s/t.ebb", f->path);
    assert_int_equal(trace_reader_open(path, &r, &err), 0);
    return r;
}

static const char *export(struct fixture *f,
                          int (*how)(struct trace_reader *, FILE *, struct err *))
{
    struct trace_reader *r = open_recording(f);
    struct err err = {0};
    FILE *out;

    free(f->text);
    out = open_memstream(&f->text, &f->len);
    assert_int_equal(how(r, out, &err), 0);
    assert_int_equal(fclose(out), 0);
    trace_reader_free(r);
    return f->text;
}

#define COLUMNS                                                                                    \
    "t,pid,start,role,name,rss_bytes,anon_bytes,file_bytes,shmem_bytes,swap_bytes,peak_bytes,"     \
    "unique_bytes,pss_bytes,gpu_bytes,huge_bytes,heap_bytes,stack_bytes,stale,step,epoch,phase\n"

static void csv_export_row_contains_only_readings_of_one_tick(void **state)
{
    struct fixture *f = *state;
    struct sample s = {0};

    born(f, 0, 42, "python", 6, "", 0);
    tick(f, 0, 0, 4096);
    say(f, 500, "KIND=step\nSTEP=3\nEPOCH=0.1\n");
    say(f, 600, "KIND=phase\nNAME=eval, all\nSTATE=begin\n");
    sample_put(&s, SAMPLE_RSS, 18446744073709551615u);
    sample_put(&s, SAMPLE_ANON, 0);
    s.stale = 1u << SAMPLE_UNIQUE | 1u << SAMPLE_PSS;
    trace_writer_tick_begin(f->w, at_ms(1000) + 499);
    trace_writer_sample(f->w, ENTITY_PROCESS, 0, &s);
    trace_writer_tick_end(f->w);
    say(f, 1500, "KIND=phase\nNAME=eval, all\nSTATE=end\n");
    tick(f, 2000, 0, 8192);
    assert_string_equal(export(f, export_csv),
                        COLUMNS "0.000000,42,1000,main,python,4096,,,,,,,,,,,,,,,\n"
                                "1.000000,42,1000,main,python,18446744073709551615,0,,,,,,,,,,,"
                                "unique+pss,3,0.1,\"eval, all\"\n"
                                "2.000000,42,1000,main,python,8192,,,,,,,,,,,,,3,0.1,\n");
}

static void export_of_a_recording_without_samples_has_no_rows(void **state)
{
    assert_string_equal(export(*state, export_csv), COLUMNS);
}

static void csv_export_quotes_hostile_process_names(void **state)
{
    struct fixture *f = *state;

    born(f, 0, 1, ") R 1\n1,2", 9, "", 0);
    born(f, 1, 2, "say \"hi\"", 8, "", 0);
    born(f, 2, 3, "\xff\x1b[2J", 5, "", 0);
    for (uint32_t i = 0; i < 3; i++)
        tick(f, i, i, i);
    assert_string_equal(export(f, export_csv),
                        COLUMNS "0.000000,1,1000,main,\") R 1\n1,2\",0,,,,,,,,,,,,,,,\n"
                                "0.001000,2,1001,main,\"say \"\"hi\"\"\",1,,,,,,,,,,,,,,,\n"
                                "0.002000,3,1002,main,\xff\x1b[2J,2,,,,,,,,,,,,,,,\n");
}

struct sum {
    uint64_t rows;
    uint64_t seed;
};

static uint64_t next_value(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 8; /* less than 2^56 */
}

static int check_row(void *user, const struct csv_row *row)
{
    struct sum *sum = user;

    assert_true(row->value_bytes == next_value(&sum->seed));
    assert_true(row->t_s == (double)(sum->rows / 2 * 100) / 1000.0);
    assert_true(row->group_len == 1 && row->group[0] == (sum->rows % 2 ? '8' : '7'));
    sum->rows++;
    return 0;
}

static void exported_csv_is_read_back_exactly(void **state)
{
    struct fixture *f = *state;
    struct sum sum = {.seed = 88172645463325252u};
    uint64_t seed = sum.seed;
    struct err err = {0};
    FILE *in;

    born(f, 0, 7, "a\n", 2, "", 0);
    born(f, 1, 8, "b,\"", 3, "", 0);
    for (uint64_t i = 0; i < 1000; i++) {
        struct sample a = {0}, b = {0};

        sample_put(&a, SAMPLE_RSS, next_value(&seed));
        sample_put(&b, SAMPLE_RSS, next_value(&seed));
        trace_writer_tick_begin(f->w, at_ms(i * 100));
        trace_writer_sample(f->w, ENTITY_PROCESS, 0, &a);
        trace_writer_sample(f->w, ENTITY_PROCESS, 1, &b);
        trace_writer_tick_end(f->w);
        trace_writer_flush(f->w, at_ms(i * 100), false);
    }
    export(f, export_csv);
    in = fmemopen(f->text, f->len, "r");
    assert_int_equal(csv_read_stream(in, "export", NULL, check_row, &sum, &err), 0);
    assert_int_equal(sum.rows, 2000);
    fclose(in);
}

static void jsonl_export_contains_every_item(void **state)
{
    static const char *const want[] = {
        "{\"type\":\"process\",\"t\":0.000000,\"event\":\"born\",\"slot\":0,\"pid\":42,"
        "\"start_ticks\":1000,\"ppid\":1,\"uid\":7,\"role\":\"main\",\"comm\":"
        "\"py\xEF\xBF\xBD\\\"\","
        "\"cmdline\":[\"python\",\"\",\"a\\u000ab\"]}\n",
        "{\"type\":\"mark\",\"t\":0.250000,\"kind\":\"lunch\",\"pid\":42,\"mark_t\":\"9\",\"step\":"
        "7,"
        "\"epoch\":0.5,\"loss\":\"0.10\"}\n",
        "{\"type\":\"sample\",\"t\":0.500000,\"slot\":0,\"pid\":42,\"rss_bytes\":4096,"
        "\"stale\":[\"anon\",\"unique\"]}\n",
        "{\"type\":\"machine\",\"t\":0.500000,\"available_bytes\":99,\"psi_some_avg10_permyriad\":"
        "12}\n",
        "{\"type\":\"gpu\",\"t\":0.500000,\"id\":1,\"name\":\"H200 \\\"x\\\"\",\"used_bytes\":5}\n",
        "{\"type\":\"series\",\"t\":0.500000,\"id\":2,\"name\":\"heap\",\"value\":6}\n",
        "{\"type\":\"note\",\"t\":1.000000,\"kind\":\"guard\",\"data\":{\"why\":\"forecast\"}}\n",
        "{\"type\":\"entity\",",
    };
    struct fixture *f = *state;
    struct sample s = {0}, m = {0}, g = {0}, own = {0};

    born(f, 0, 42, "py\xff\"", 4, "python\0\0a\nb", 11);
    trace_writer_entity(f->w, at_ms(0), ENTITY_GPU, 1, "H200 \"x\"");
    trace_writer_entity(f->w, at_ms(0), ENTITY_SERIES, 2, "heap");
    say(f, 250, "KIND=lunch\nT=9\nSTEP=007\nSTEP=8\nEPOCH=.5\nLOSS=0.10\nKIND=x\n");
    sample_put(&s, SAMPLE_RSS, 4096);
    s.stale = 1u << SAMPLE_ANON | 1u << SAMPLE_UNIQUE;
    sample_put(&m, MACHINE_AVAILABLE, 99);
    sample_put(&m, MACHINE_PSI_SOME, 12);
    sample_put(&g, GPU_USED, 5);
    sample_put(&own, 0, 6);
    trace_writer_tick_begin(f->w, at_ms(500));
    trace_writer_sample(f->w, ENTITY_PROCESS, 0, &s);
    trace_writer_sample(f->w, ENTITY_MACHINE, 0, &m);
    trace_writer_sample(f->w, ENTITY_GPU, 1, &g);
    trace_writer_sample(f->w, ENTITY_SERIES, 2, &own);
    trace_writer_tick_end(f->w);
    trace_writer_note(f->w, at_ms(1000), "guard", "{\"why\":\n\"forecast\"}");
    export(f, export_jsonl);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        if (!strstr(f->text, want[i]))
            fail_msg("%s is missing in\n%s", want[i], f->text);
    assert_non_null(strstr(f->text, "\"command\":\"train \\\"me\\\"\""));
}

static void every_line_of_a_jsonl_export_is_one_object(void **state)
{
    struct fixture *f = *state;
    size_t lines = 0;

    born(f, 0, 42, "\x01\x7f\xc2\x80\xe2\x80\xa8\\", 8, "\xed\xa0\x80\0\xf0\x9f\x8c\x8a", 8);
    say(f, 1, "KIND=step\nA=\x1b[31m\"\\\n");
    tick(f, 2, 0, 1);
    export(f, export_jsonl);
    for (char *line = f->text, *end; *line; line = end + 1, lines++) {
        json_t *doc;

        end = strchr(line, '\n');
        assert_non_null(end);
        doc = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(doc);
        assert_true(json_is_string(json_object_get(doc, "type")));
        json_decref(doc);
    }
    assert_true(lines >= 4);
    assert_int_equal(strncmp(f->text, "{\"type\":\"header\"", 16), 0);
}

struct heard {
    size_t count;
    char text[256];
};

static int hear(void *user, double t_s, const struct mark *m)
{
    struct heard *heard = user;

    assert_true(t_s == 1.5);
    assert_int_equal(m->pid, 42);
    snprintf(heard->text, sizeof(heard->text), "%.*s", (int)m->len, m->text);
    heard->count++;
    return 0;
}

static void marks_are_read_back_from_a_jsonl_export(void **state)
{
    struct fixture *f = *state;
    struct heard heard = {0};
    struct err err = {0};
    FILE *in;

    born(f, 0, 42, "x", 1, "", 0);
    say(f, 1500, "STEP=12\nKIND=step\nEPOCH=0.30000000000000004\nNOTE=a=b \xe2\x82\xac\n");
    tick(f, 2000, 0, 1);
    export(f, export_jsonl);
    in = fmemopen(f->text, f->len, "r");
    assert_int_equal(csv_read_marks_stream(in, "export", hear, &heard, &err), 0);
    fclose(in);
    assert_int_equal(heard.count, 1);
    assert_string_equal(heard.text,
                        "KIND=step\nSTEP=12\nEPOCH=0.30000000000000004\nNOTE=a=b \xe2\x82\xac\n");
}

static void export_to_a_full_disk_or_closed_pipe_returns_an_error(void **state)
{
    struct fixture *f = *state;
    struct trace_reader *r;
    struct err err = {0};
    FILE *out;
    int pipe_fds[2];

    born(f, 0, 42, "x", 1, "", 0);
    for (uint64_t i = 0; i < 5000; i++)
        tick(f, i, 0, i * 4096);
    for (int how = 0; how < 2; how++) {
        r = open_recording(f);
        out = fopen("/dev/full", "w");
        assert_int_equal((how ? export_csv : export_jsonl)(r, out, &err), -ENOSPC);
        assert_string_equal(err.text, "cannot write the export: No space left on device");
        fclose(out);
        trace_reader_free(r);

        signal(SIGPIPE, SIG_IGN);
        assert_int_equal(pipe(pipe_fds), 0);
        close(pipe_fds[0]);
        out = fdopen(pipe_fds[1], "w");
        r = open_recording(f);
        assert_int_equal((how ? export_csv : export_jsonl)(r, out, &err), -EPIPE);
        fclose(out);
        trace_reader_free(r);
    }
}

static void truncated_recording_is_exported_up_to_the_truncation(void **state)
{
    struct fixture *f = *state;
    char path[64];
    off_t size;
    int fd;

    born(f, 0, 42, "x", 1, "", 0);
    tick(f, 0, 0, 4096);
    trace_writer_flush(f->w, at_ms(0), true);
    tick(f, 1, 0, 8192);
    trace_reader_free(open_recording(f));
    snprintf(path, sizeof(path), "%s/t.ebb", f->path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    size = lseek(fd, 0, SEEK_END);
    for (off_t cut = size - 1; cut > size / 2; cut--) {
        struct trace_reader *r = NULL;
        struct err err = {0};
        FILE *out = fopen("/dev/null", "w");

        assert_int_equal(ftruncate(fd, cut), 0);
        if (trace_reader_open(path, &r, &err) == 0) {
            assert_int_equal(export_jsonl(r, out, &err), 0);
            trace_reader_free(r);
        }
        fclose(out);
    }
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(csv_export_row_contains_only_readings_of_one_tick),
        TEST(export_of_a_recording_without_samples_has_no_rows),
        TEST(csv_export_quotes_hostile_process_names),
        TEST(exported_csv_is_read_back_exactly),
        TEST(jsonl_export_contains_every_item),
        TEST(every_line_of_a_jsonl_export_is_one_object),
        TEST(marks_are_read_back_from_a_jsonl_export),
        TEST(export_to_a_full_disk_or_closed_pipe_returns_an_error),
        TEST(truncated_recording_is_exported_up_to_the_truncation),
    };

    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
