/* Tests the samples of a recording with known content: extremes, processes, marks, ranges and a
 * truncated file. */
#include "run/samples.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/writer.h"

enum { TICKS = 4000, PROCESSES = 40, STEPS = 5000, SAVES = 30 };
static const uint64_t start_ns = 1000 * NS_PER_S;
static const uint64_t wall_ns = UINT64_C(1700000000) * NS_PER_S;

static char folder[] = "/tmp/ebb-samples-XXXXXX";

static char *folder_path(char path[256], const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

/* The recording has one tick per second. The job's memory is a sawtooth with one spike and one
 * dip. */
static uint64_t job_at(unsigned tick)
{
    return tick == 1234 ? 900000000 : tick == 3001 ? 5 : 1000000 + tick % 100 * 1000;
}

static void tell_mark(struct trace_writer *w, uint64_t t_ns, const char *kind, unsigned step)
{
    char text[64];
    struct mark m;
    int n = snprintf(text, sizeof text, "KIND=%s\nSTEP=%u\n", kind, step);
    assert_int_equal(mark_parse(text, (size_t)n, &m), 0);
    m.t_ns = t_ns;
    trace_writer_mark(w, &m);
}

/* Process I uses (I + 1) MB and starts at tick 10 * I. */
static void write_tick(struct trace_writer *w, unsigned tick)
{
    uint64_t t_ns = start_ns + (tick + 1) * NS_PER_S;
    struct sample machine = {0}, gpu = {0};
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct process_info info = {.id = {.pid = (int32_t)(100 + i), .start_ticks = i}};
        info.comm_len = (uint16_t)snprintf(info.comm, sizeof info.comm, "p%u", i);
        if (tick == 10 * i)
            trace_writer_process(w, t_ns, PROCESS_BORN, i, &info);
    }
    trace_writer_tick_begin(w, t_ns);
    sample_put(&machine, MACHINE_TREE_LOW, job_at(tick));
    sample_put(&machine, MACHINE_LIMIT, 7000000000);
    sample_put(&gpu, GPU_USED, 2 * (uint64_t)tick);
    sample_put(&gpu, GPU_JOB, tick);
    trace_writer_sample(w, ENTITY_MACHINE, 0, &machine);
    for (unsigned i = 0; i < PROCESSES && 10 * i <= tick; i++) {
        struct sample s = {0};
        sample_put(&s, SAMPLE_RSS, (i + 1) * UINT64_C(1000000));
        sample_put(&s, SAMPLE_UNIQUE, 1000);
        trace_writer_sample(w, ENTITY_PROCESS, i, &s);
    }
    trace_writer_sample(w, ENTITY_GPU, 0, &gpu);
    trace_writer_tick_end(w);
    trace_writer_flush(w, t_ns, false);
}

static const char *known_recording(void)
{
    static char path[256];
    struct trace_writer *w;
    struct err err = {{0}};
    if (path[0])
        return path;
    folder_path(path, "known.ebb");
    const struct trace_writer_options options = {.patient = true};
    json_t *header = json_pack("{s:I,s:I}", "start_mono_ns", (json_int_t)start_ns, "start_wall_ns",
                               (json_int_t)wall_ns);
    assert_int_equal(trace_writer_new(AT_FDCWD, path, header, &options, &w, &err), 0);
    json_decref(header);
    trace_writer_entity(w, start_ns, ENTITY_GPU, 0, "a GPU");
    for (unsigned tick = 0, step = 0, save = 0; tick < TICKS; tick++) {
        write_tick(w, tick);
        for (; step < STEPS && step * TICKS / STEPS <= tick; step++)
            tell_mark(w, start_ns + (tick + 1) * NS_PER_S, "step", step);
        for (; save < SAVES && save * TICKS / SAVES <= tick; save++)
            tell_mark(w, start_ns + (tick + 1) * NS_PER_S, "save", step);
    }
    assert_int_equal(trace_writer_close(w, NULL, 120 * NS_PER_S), 0);
    return path;
}

static json_t *read_samples(const char *path, const struct run_settings *options)
{
    struct run *run;
    struct err err = {{0}};
    if (run_read(path, options, NULL, &run, &err) < 0)
        fail_msg("%s", err.text);
    json_t *doc = samples_json(run);
    run_free(run);
    assert_non_null(doc);
    return doc;
}

static const json_t *list_of(const json_t *doc, const char *key)
{
    return json_object_get(json_object_get(doc, "series"), key);
}

static uint64_t extreme(const json_t *list, bool largest)
{
    uint64_t found = largest ? 0 : UINT64_MAX;
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
    {
        uint64_t n = (uint64_t)json_integer_value(v);
        found = (largest ? n > found : n < found) ? n : found;
    }
    return found;
}

static void downsampling_keeps_spikes_and_dips(void **state)
{
    (void)state;
    for (size_t points = SAMPLES_POINTS_MIN; points <= SAMPLES_POINTS_MAX;
         points = points * 5 / 2) {
        const struct run_settings o = samples_options(0, 0, 0, (uint32_t)points);
        json_t *doc = read_samples(known_recording(), &o);
        size_t n = json_array_size(list_of(doc, "t_s"));
        assert_true(n <= points && n * 2 >= points);
        assert_int_equal(json_array_size(list_of(doc, "job_low_bytes")), n);
        assert_int_equal(extreme(list_of(doc, "job_high_bytes"), true), 900000000);
        assert_int_equal(extreme(list_of(doc, "job_low_bytes"), false), 5);
        assert_int_equal(extreme(list_of(doc, "rss_sum_bytes"), true),
                         UINT64_C(1000000) * PROCESSES * (PROCESSES + 1) / 2);
        assert_int_equal(extreme(list_of(doc, "unique_bytes"), true), 1000 * PROCESSES);
        assert_int_equal(json_integer_value(json_object_get(doc, "limit_bytes")), 7000000000);
        json_decref(doc);
    }
}

static void samples_are_limited_to_the_requested_range(void **state)
{
    (void)state;
    const struct run_settings o = samples_options(0, 1200 * NS_PER_S, 1300 * NS_PER_S, 200);
    json_t *doc = read_samples(known_recording(), &o);
    const json_t *t = list_of(doc, "t_s");
    size_t n = json_array_size(t);
    assert_int_equal(n, 101);
    assert_true(json_number_value(json_array_get(t, 0)) >= 1200);
    assert_true(json_number_value(json_array_get(t, n - 1)) <= 1301);
    for (size_t i = 0; i < n; i++) {
        json_int_t low = json_integer_value(json_array_get(list_of(doc, "job_low_bytes"), i));
        assert_int_equal(low, job_at(1199 + (unsigned)i));
    }
    assert_true(json_number_value(json_object_get(doc, "until_s")) == 1300);
    json_decref(doc);
    const struct run_settings none = samples_options(0, 90000 * NS_PER_S, 0, 16);
    doc = read_samples(known_recording(), &none);
    assert_int_equal(json_array_size(list_of(doc, "t_s")), 0);
    assert_int_equal(json_array_size(json_object_get(doc, "processes")), 0);
    json_decref(doc);
}

static void largest_processes_of_the_range_are_listed_by_size(void **state)
{
    (void)state;
    const struct run_settings o = samples_options(0, 0, 0, 100);
    json_t *doc = read_samples(known_recording(), &o);
    const json_t *list = json_object_get(doc, "processes");
    assert_int_equal(json_array_size(list), SAMPLES_PROCESSES);
    for (unsigned i = 0; i < SAMPLES_PROCESSES; i++) {
        char name[16];
        const json_t *p = json_array_get(list, i);
        snprintf(name, sizeof name, "p%u", PROCESSES - 1 - i);
        assert_string_equal(json_string_value(json_object_get(p, "name")), name);
        assert_int_equal(json_array_size(json_object_get(p, "t_s")),
                         json_array_size(json_object_get(p, "rss_bytes")));
        assert_int_equal(extreme(json_object_get(p, "rss_bytes"), true),
                         (PROCESSES - i) * UINT64_C(1000000));
    }
    const json_t *gpu = json_array_get(json_object_get(doc, "gpus"), 0);
    assert_string_equal(json_string_value(json_object_get(gpu, "name")), "a GPU");
    assert_int_equal(extreme(json_object_get(gpu, "used_bytes"), true), 2 * (TICKS - 1));
    assert_int_equal(extreme(json_object_get(gpu, "job_bytes"), true), TICKS - 1);
    json_decref(doc);
}

static void step_marks_are_dropped_first_if_there_are_too_many_marks(void **state)
{
    (void)state;
    const struct run_settings o = samples_options(0, 0, 0, 100);
    json_t *doc = read_samples(known_recording(), &o);
    const json_t *marks = json_object_get(doc, "marks");
    size_t saves = 0, i;
    double before = 0;
    json_t *m;
    assert_true(json_array_size(marks) <= SAMPLES_MARKS);
    json_array_foreach((json_t *)(uintptr_t)marks, i, m)
    {
        double t = json_number_value(json_object_get(m, "t_s"));
        assert_true(t >= before);
        before = t;
        saves += strcmp(json_string_value(json_object_get(m, "kind")), "save") == 0;
    }
    assert_int_equal(saves, SAVES);
    assert_true(json_array_size(marks) > SAVES + SAMPLES_MARKS / 4);
    json_decref(doc);
}

static void sample_times_are_relative_to_the_job_start(void **state)
{
    (void)state;
    const struct run_settings o = samples_options(wall_ns + 3 * NS_PER_S, 0, 0, 4000);
    json_t *doc = read_samples(known_recording(), &o);
    assert_true(json_number_value(json_object_get(doc, "t0_s")) == 1700000003);
    assert_true(json_number_value(json_object_get(doc, "until_s")) == TICKS - 3);
    json_decref(doc);
}

static void copy_two_thirds(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out && fseek(in, 0, SEEK_END) == 0);
    long size = ftell(in) * 2 / 3;
    rewind(in);
    while (size-- > 0)
        fputc(fgetc(in), out);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void samples_are_read_from_a_truncated_recording(void **state)
{
    (void)state;
    char path[256];
    copy_two_thirds(known_recording(), folder_path(path, "cut.ebb"));
    const struct run_settings o = samples_options(0, 0, 0, 100);
    json_t *doc = read_samples(path, &o);
    double until = json_number_value(json_object_get(doc, "until_s"));
    assert_true(until > 100 && until < TICKS);
    assert_true(json_array_size(list_of(doc, "t_s")) > 10);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(downsampling_keeps_spikes_and_dips),
        cmocka_unit_test(samples_are_limited_to_the_requested_range),
        cmocka_unit_test(largest_processes_of_the_range_are_listed_by_size),
        cmocka_unit_test(step_marks_are_dropped_first_if_there_are_too_many_marks),
        cmocka_unit_test(sample_times_are_relative_to_the_job_start),
        cmocka_unit_test(samples_are_read_from_a_truncated_recording),
    };
    assert_non_null(mkdtemp(folder));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char path[256];
    unlink(folder_path(path, "known.ebb"));
    unlink(folder_path(path, "cut.ebb"));
    rmdir(folder);
    return failed;
}
