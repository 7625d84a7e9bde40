/* Tests the model of a run: living and dead entities, signals of the job, marks and observers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/run.h"

static const uint64_t T0 = 1000 * NS_PER_S;

static struct run *make_run(const struct run_settings *options)
{
    struct run *run = NULL;
    assert_int_equal(run_new(options, T0, &run), 0);
    return run;
}

static struct process_info info_of(int32_t pid)
{
    struct process_info info = {.id = {.pid = pid}, .ppid = 1, .role = ROLE_DATA_WORKER};
    info.comm_len = (uint16_t)snprintf(info.comm, sizeof info.comm, "p%d", (int)pid);
    return info;
}

static struct run_entity *event(struct run *run, unsigned t_s, enum process_event_kind kind,
                                uint32_t slot)
{
    struct process_info info = info_of((int32_t)slot + 100);
    return run_process(run, T0 + t_s * NS_PER_S, kind, slot, &info);
}

static void sample_rss(struct run *run, uint32_t slot, uint64_t bytes)
{
    struct sample s = {0};
    sample_put(&s, SAMPLE_RSS, bytes);
    run_sample(run, ENTITY_PROCESS, slot, NULL, &s);
}

static void add_mark(struct run *run, unsigned t_s, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.t_ns = T0 + t_s * NS_PER_S;
    m.pid = 100;
    run_add_mark(run, &m);
}

static void run_model_keeps_the_largest_exited_processes(void **state)
{
    struct run_settings o = run_settings_live;
    struct run_entity **list;
    (void)state;
    o.dead = 3;
    struct run *run = make_run(&o);
    for (uint32_t i = 0; i < 10; i++) {
        event(run, 10 * i, PROCESS_BORN, i);
        run_tick_begin(run, T0 + 10 * i * NS_PER_S);
        sample_rss(run, i, (i * 7 % 10 + 1) * 1000);
        run_tick_end(run);
        event(run, 10 * i + 5, PROCESS_DIED, i);
    }
    event(run, 200, PROCESS_BORN, 10);
    assert_int_equal(run_list(run, RUN_PROCESS, &list), 4);
    assert_int_equal(list[0]->peak_bytes, 10000);
    assert_int_equal(list[1]->peak_bytes, 9000);
    assert_int_equal(list[2]->peak_bytes, 8000);
    assert_true(list[0]->is_dead && !list[3]->is_dead);
    assert_int_equal(run->dead_roles[ROLE_DATA_WORKER].count, 10);
    assert_int_equal(run->dead_roles[ROLE_DATA_WORKER].peak_bytes, 10000);
    assert_int_equal(run->processes_seen, 11);
    free(list);
    run_free(run);
}

static void run_model_keeps_the_longest_lived_of_the_exited_processes(void **state)
{
    struct run_settings o = run_settings_live;
    (void)state;
    o.dead = 1;
    struct run *run = make_run(&o);
    event(run, 0, PROCESS_BORN, 1);
    event(run, 0, PROCESS_BORN, 2);
    run_tick_begin(run, T0 + NS_PER_S);
    sample_rss(run, 1, 1000);
    sample_rss(run, 2, 9000);
    run_tick_end(run);
    event(run, 2, PROCESS_DIED, 2);
    event(run, 9, PROCESS_DIED, 1);
    assert_int_equal(run->dead.count, 1);
    assert_int_equal(run->dead.at[0]->id, 1);
    run_free(run);
}

static void peak_of_a_process_is_the_larger_of_hwm_and_rss(void **state)
{
    struct run *run = make_run(&run_settings_live);
    struct sample s = {0};
    (void)state;
    struct run_entity *e = event(run, 0, PROCESS_BORN, 1);
    sample_put(&s, SAMPLE_RSS, 500);
    sample_put(&s, SAMPLE_PEAK, 700);
    run_tick_begin(run, T0);
    run_sample(run, ENTITY_PROCESS, 1, NULL, &s);
    run_tick_end(run);
    assert_int_equal(e->peak_bytes, 700);
    assert_string_equal(e->name, "p101");
    assert_non_null(e->signal[SAMPLE_RSS]);
    assert_null(e->signal[SAMPLE_PEAK]);
    run_free(run);
}

static void memory_of_the_job_is_the_cgroup_charge_if_known(void **state)
{
    struct run *run = make_run(&run_settings_read);
    struct sample s = {0};
    uint64_t v;
    (void)state;
    event(run, 0, PROCESS_BORN, 1);
    event(run, 0, PROCESS_BORN, 2);
    sample_put(&s, MACHINE_TREE_LOW, 100);
    sample_put(&s, MACHINE_LIMIT, 1000);
    run_tick_begin(run, T0 + NS_PER_S);
    run_sample(run, ENTITY_MACHINE, 0, NULL, &s);
    sample_rss(run, 1, 70);
    sample_rss(run, 2, 60);
    run_tick_end(run);
    assert_true(run_value(&run->job, JOB_MEMORY, &v) && v == 100);
    assert_true(run_value(&run->job, JOB_RSS_SUM, &v) && v == 130);
    assert_true(run_value(&run->job, JOB_LIMIT, &v) && v == 1000);
    assert_false(run_value(&run->job, JOB_UNIQUE, &v));
    sample_put(&s, MACHINE_CHARGE, 90);
    run_tick_begin(run, T0 + 2 * NS_PER_S);
    run_sample(run, ENTITY_MACHINE, 0, NULL, &s);
    run_tick_end(run);
    assert_true(run_value(&run->job, JOB_MEMORY, &v) && v == 90);
    assert_false(run_was_read(run, &run->job, JOB_RSS_SUM));
    assert_int_equal(run_peak(run), 100);
    run_add_note(run, T0 + 3 * NS_PER_S, "end", "{\"peak_bytes\":123}",
                 strlen("{\"peak_bytes\":123}"));
    assert_int_equal(run_peak(run), 123);
    run_free(run);
}

static void reported_series_are_removed_when_the_process_exits(void **state)
{
    struct run *run = make_run(&run_settings_read);
    struct run_entity *const *list;
    struct sample s = {0};
    (void)state;
    event(run, 0, PROCESS_BORN, 1);
    sample_put(&s, 0, 42);
    run_tick_begin(run, T0 + NS_PER_S);
    run_sample(run, ENTITY_SERIES, 0, "heap_live_bytes@101", &s);
    run_sample(run, ENTITY_SERIES, 1, "other", &s);
    run_tick_end(run);
    assert_int_equal(run_living(run, RUN_FIGURE, &list), 2);
    assert_string_equal(list[0]->name, "heap_live_bytes");
    assert_int_equal(list[0]->info.id.pid, 101);
    event(run, 4, PROCESS_DIED, 1);
    assert_int_equal(run_living(run, RUN_FIGURE, &list), 1);
    assert_string_equal(list[0]->name, "other");
    run_free(run);
}

static void step_marks_are_thinned_out_if_too_many_are_added(void **state)
{
    struct run_settings o = run_settings_read;
    struct run_mark_cursor cursor = {{0}};
    const struct run_mark *m;
    char text[64];
    size_t saves = 0;
    uint64_t before = 0;
    (void)state;
    o.marks = 100;
    struct run *run = make_run(&o);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "KIND=step\nSTEP=%u\n", i);
        add_mark(run, i, text);
        add_mark(run, i, text); /* another rank reports the same step */
        if (i % 100 == 0)
            add_mark(run, i, "KIND=save\n");
    }
    assert_int_equal(run->steps_seen, 1000);
    assert_int_equal(run->step, 999);
    assert_true(run->marks[MARK_STEP].count <= 100 && run->marks[MARK_STEP].count >= 50);
    for (size_t i = 0; i + 1 < run->marks[MARK_STEP].count; i += 2)
        assert_int_equal(run->marks[MARK_STEP].at[i].step, run->marks[MARK_STEP].at[i + 1].step);
    while ((m = run_mark_next(run, &cursor))) {
        assert_true(m->t_ns >= before);
        before = m->t_ns;
        saves += m->kind == MARK_SAVE;
    }
    assert_int_equal(saves, 10);
    run_free(run);
}

static void run_model_keeps_phases_and_versions_and_guard_notes(void **state)
{
    struct run_settings o = run_settings_read;
    char text[64];
    (void)state;
    o.guard_notes = 2;
    struct run *run = make_run(&o);
    add_mark(run, 1, "KIND=hello\nTORCH_VERSION=2.4.0\n");
    add_mark(run, 2, "KIND=phase\nNAME=eval\nSTATE=begin\n");
    add_mark(run, 5, "KIND=phase\nNAME=eval\nSTATE=end\n");
    add_mark(run, 6, "KIND=phase\nNAME=save\nSTATE=begin\n");
    assert_int_equal(run->phase_count, 2);
    assert_int_equal(run->phases[0].until_ns, 5 * NS_PER_S);
    assert_true(run->phases[1].is_open);
    assert_string_equal(run->versions[0].name, "torch");
    assert_string_equal(run->versions[0].text, "2.4.0");
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "{\"i\":%d}", i);
        run_add_note(run, T0 + NS_PER_S, "guard", text, strlen(text));
    }
    run_add_note(run, T0 + NS_PER_S, "guard", "[", 1);
    assert_int_equal(run->guard_seen, 3);
    assert_int_equal(run->guard_count, 2);
    assert_int_equal(json_integer_value(json_object_get(run->guard_notes[1].doc, "i")), 2);
    run_add_note(run, T0 + 7 * NS_PER_S, "segment", "{}", 2);
    assert_int_equal(run->segment_count, 1);
    assert_int_equal(run->segments[0], 7 * NS_PER_S);
    run_free(run);
}

struct seen {
    int born, died, ticks, marks, notes, forgotten;
    uint64_t last_mark_ns;
};

static void see_process(void *user, struct run *run, struct run_entity *e,
                        enum process_event_kind kind)
{
    struct seen *s = user;
    (void)run;
    s->born += kind == PROCESS_BORN;
    s->died += kind == PROCESS_DIED && e->is_dead;
}

static void see_tick(void *user, struct run *run)
{
    struct seen *s = user;
    struct run_entity *const *list;
    for (size_t i = 0, n = run_living(run, RUN_PROCESS, &list); i < n; i++)
        s->ticks += run_was_read(run, list[i], SAMPLE_RSS);
}

static void see_mark(void *user, struct run *run, const struct mark *mark)
{
    struct seen *s = user;
    (void)run;
    s->marks++;
    s->last_mark_ns = mark->t_ns;
}

static void see_note(void *user, struct run *run, const char *kind, const char *text, size_t len)
{
    (void)run, (void)kind, (void)text, (void)len;
    ((struct seen *)user)->notes++;
}

static void forget(void *user, struct run *run, struct run_entity *e)
{
    (void)run;
    ((struct seen *)user)->forgotten += e->kind == RUN_PROCESS;
}

static void run_observer_sees_every_item_and_every_freed_entity(void **state)
{
    struct run_settings o = run_settings_live;
    struct seen seen = {0};
    struct run_observer observer = {.user = &seen,
                                    .process = see_process,
                                    .tick = see_tick,
                                    .mark = see_mark,
                                    .note = see_note,
                                    .forget = forget};
    (void)state;
    o.dead = 0;
    struct run *run = make_run(&o);
    run_observe(run, &observer);
    event(run, 0, PROCESS_BORN, 1);
    event(run, 0, PROCESS_BORN, 2);
    run_tick_begin(run, T0 + NS_PER_S);
    sample_rss(run, 1, 5);
    run_tick_end(run);
    add_mark(run, 2, "KIND=step\nSTEP=1\n");
    run_add_note(run, T0 + 2 * NS_PER_S, "verdict", "{}", 2);
    event(run, 3, PROCESS_DIED, 1);
    assert_int_equal(seen.forgotten, 1);
    run_free(run);
    assert_int_equal(seen.born, 2);
    assert_int_equal(seen.died, 1);
    assert_int_equal(seen.ticks, 1);
    assert_int_equal(seen.marks, 1);
    assert_int_equal(seen.last_mark_ns, 2 * NS_PER_S);
    assert_int_equal(seen.notes, 1);
    assert_int_equal(seen.forgotten, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_model_keeps_the_largest_exited_processes),
        cmocka_unit_test(run_model_keeps_the_longest_lived_of_the_exited_processes),
        cmocka_unit_test(peak_of_a_process_is_the_larger_of_hwm_and_rss),
        cmocka_unit_test(memory_of_the_job_is_the_cgroup_charge_if_known),
        cmocka_unit_test(reported_series_are_removed_when_the_process_exits),
        cmocka_unit_test(step_marks_are_thinned_out_if_too_many_are_added),
        cmocka_unit_test(run_model_keeps_phases_and_versions_and_guard_notes),
        cmocka_unit_test(run_observer_sees_every_item_and_every_freed_entity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
