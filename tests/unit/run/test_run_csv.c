/* Tests runs read from a table: groups become processes; columns and the marks file become
 * marks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "run/run.h"

struct folder {
    char path[32], csv[64], marks[64];
};

static int make_folder(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    snprintf(f->csv, sizeof f->csv, "%s/in.csv", f->path);
    snprintf(f->marks, sizeof f->marks, "%s/marks.jsonl", f->path);
    *state = f;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *f = *state;
    unlink(f->csv);
    unlink(f->marks);
    assert_int_equal(rmdir(f->path), 0);
    free(f);
    return 0;
}

static void write_file(const char *path, const char *s)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(s, f);
    assert_int_equal(fclose(f), 0);
}

static struct run *read_run(const struct folder *f, const struct csv_options *csv)
{
    struct run_settings settings = run_settings_read;
    struct run *run = NULL;
    struct err err = {0};
    if (csv)
        settings.csv = *csv;
    int r = run_read(f->csv, &settings, NULL, &run, &err);
    if (r < 0)
        print_error("%s\n", err.text);
    assert_int_equal(r, 0);
    return run;
}

static void groups_of_rows_in_a_csv_table_become_processes(void **state)
{
    struct folder *f = *state;
    struct series_point last;
    write_file(f->csv, "t,pid,rss\n1700000001.5,10,100\n1700000001.5,11,200\n"
                       "1700000002.5,10,110\n1700000042.5,10,90\n");
    struct run *run = read_run(f, NULL);
    const struct run_entity *a = run_find_pid(run, 10), *b = run_find_pid(run, 11);
    assert_non_null(a);
    assert_non_null(b);
    if (!a || !b)
        return;
    assert_true(run->start_wall_ns == UINT64_C(1700000001500000000));
    assert_false(a->is_dead);
    assert_int_equal(a->peak_bytes, 110);
    assert_true(series_last(a->signal[SAMPLE_RSS], &last) && last.v == 90);
    assert_int_equal(last.t_ns, 41 * NS_PER_S);
    assert_true(b->is_dead); /* the last row of this process is long before the end of the table */
    assert_int_equal(b->died_ns, 0);
    run_free(run);
}

static void marks_of_a_csv_table_are_sorted_by_time(void **state)
{
    struct folder *f = *state;
    struct run_mark_cursor cursor = {{0}};
    write_file(f->csv, "t,pid,rss\n1,10,100\n3,10,110\n");
    write_file(f->marks, "{\"t\":2,\"kind\":\"step\",\"step\":1}\n{\"t\":1,\"kind\":\"begin\"}\n"
                         "{\"t\":9,\"kind\":\"end\"}\n");
    struct run *run = read_run(f, &(struct csv_options){.marks_path = f->marks});
    static const enum mark_kind kinds[] = {MARK_BEGIN, MARK_STEP, MARK_END};
    for (size_t i = 0; i < 3; i++) {
        const struct run_mark *m = run_mark_next(run, &cursor);
        assert_true(m && m->kind == kinds[i]);
    }
    assert_int_equal(run->step, 1);
    run_free(run);
}

static void steps_and_epochs_and_phases_are_read_from_table_columns(void **state)
{
    struct folder *f = *state;
    write_file(f->csv, "t,rss,step,epoch,phase\n0,1,1,0.5,\n1,2,1,0.5,eval\n2,3,2,1,\n");
    struct run *run = read_run(f, NULL);
    assert_int_equal(run->marks[MARK_STEP].count, 2);
    assert_true(run->marks[MARK_STEP].at[1].epoch == 1.0);
    assert_int_equal(run->phase_count, 1);
    assert_string_equal(run->phases[0].name, "eval");
    assert_int_equal(run->phases[0].until_ns, 2 * NS_PER_S);
    run_free(run);
}

static void table_without_times_uses_one_second_per_step(void **state)
{
    struct folder *f = *state;
    write_file(f->csv, "run,step,rss_mb\na,10,1\na,20,2\nb b,10,4\n");
    struct run *run = read_run(f, &(struct csv_options){.group = "run"});
    struct run_entity *const *living;
    assert_true(run->table.is_by_step && !run->table.is_job);
    assert_int_equal(run_living(run, RUN_PROCESS, &living), 2);
    assert_string_equal(living[1]->name, "b b");
    assert_int_equal(living[0]->last_ns, 20 * NS_PER_S);
    run_free(run);
}

static void marks_file_for_a_table_without_times_is_refused(void **state)
{
    struct folder *f = *state;
    struct run_settings settings = run_settings_read;
    struct run *run = NULL;
    struct err err = {0};
    write_file(f->csv, "t,rss\n1,2\n1e30,3\n");
    assert_int_equal(run_read(f->csv, &settings, NULL, &run, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "must be in seconds"));
    write_file(f->csv, "step,rss\n1,2\n");
    write_file(f->marks, "{\"t\":1,\"kind\":\"end\"}\n");
    settings.csv.marks_path = f->marks;
    assert_int_equal(run_read(f->csv, &settings, NULL, &run, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--time-column"));
}

static void csv_table_with_too_many_groups_keeps_the_largest_groups(void **state)
{
    enum { COUNT = 20000 };
    struct folder *f = *state;
    FILE *csv = fopen(f->csv, "w");
    fputs("t,pid,rss\n", csv);
    for (int i = 0; i < COUNT; i++)
        fprintf(csv, "%d,%d,7\n%d,1,100\n", i, i + 2, i);
    assert_int_equal(fclose(csv), 0);
    struct run *run = read_run(f, NULL);
    assert_non_null(run_find_pid(run, 1));
    assert_int_equal(run->processes_seen, COUNT + 1);
    assert_true(run->living.count + run->dead.count <= 4096);
    assert_int_equal(run->table.dropped_rows, COUNT + 1 - run->living.count - run->dead.count);
    run_free(run);
}

#define CSV_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CSV_TEST(groups_of_rows_in_a_csv_table_become_processes),
        CSV_TEST(marks_of_a_csv_table_are_sorted_by_time),
        CSV_TEST(steps_and_epochs_and_phases_are_read_from_table_columns),
        CSV_TEST(table_without_times_uses_one_second_per_step),
        CSV_TEST(marks_file_for_a_table_without_times_is_refused),
        CSV_TEST(csv_table_with_too_many_groups_keeps_the_largest_groups),
    };
    return cmocka_run_group_tests_name("run_csv", tests, NULL, NULL);
}
