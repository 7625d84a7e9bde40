/* How a job ended, and what that decides: the same live and from a recording. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "judge/verdicts.h"
#include "profile/held.h"
#include "trace/writer.h"

#include "judged_run.h"

static const uint64_t MIB = 1 << 20;
enum { SECONDS = 60, A_SECOND = 4 };

static uint64_t grows_for_s = SECONDS; /* what lives, before it stands */

static const char by_itself[] =
    "{\"kind\":\"exited\",\"status\":0,\"left_behind\":0,\"cause_kind\":\"finished\"}";

/* Grows evenly in slot 0 for a minute without a mark, and dies; with HELPER a second process does
 * from the middle on. It goes into WRITER too, if there is one. */
static void live(struct judge *j, struct trace_writer *writer, bool has_helper)
{
    struct process_info info = {.id = {.pid = 1000, .start_ticks = 7}, .role = ROLE_MAIN};
    uint64_t t_ns = NS_PER_S;
    run_process(j->run, t_ns, PROCESS_BORN, 0, &info);
    if (writer)
        trace_writer_process(writer, t_ns, PROCESS_BORN, 0, &info);
    for (uint64_t i = 0; i < (uint64_t)SECONDS * A_SECOND; i++, t_ns += NS_PER_S / A_SECOND) {
        bool helps = has_helper && i >= (uint64_t)SECONDS * A_SECOND / 2 + A_SECOND;
        struct sample s = {0}, other = {0}, machine = {0};
        uint64_t grown = i < grows_for_s * A_SECOND ? i : grows_for_s * A_SECOND;
        sample_put(&s, SAMPLE_RSS, 200 * MIB + (has_helper ? 0 : grown * MIB));
        sample_put(&s, SAMPLE_FILE, 0);
        sample_put(&s, SAMPLE_SWAP, 0);
        sample_put(&other, SAMPLE_RSS, 20 * MIB + i * MIB / 2);
        sample_put(&other, SAMPLE_FILE, 0);
        sample_put(&other, SAMPLE_SWAP, 0);
        sample_put(&machine, MACHINE_TREE_LOW, s.v[SAMPLE_RSS]);
        struct process_info helper = {.id = {.pid = 1001, .start_ticks = 7}, .role = ROLE_OTHER};
        if (helps && i == (uint64_t)SECONDS * A_SECOND / 2 + A_SECOND)
            run_process(j->run, t_ns, PROCESS_BORN, 1, &helper);
        run_tick_begin(j->run, t_ns);
        run_sample(j->run, ENTITY_MACHINE, 0, NULL, &machine);
        run_sample(j->run, ENTITY_PROCESS, 0, NULL, &s);
        if (helps)
            run_sample(j->run, ENTITY_PROCESS, 1, NULL, &other);
        run_tick_end(j->run);
        if (writer) {
            trace_writer_tick_begin(writer, t_ns);
            trace_writer_sample(writer, ENTITY_MACHINE, 0, &machine);
            trace_writer_sample(writer, ENTITY_PROCESS, 0, &s);
            trace_writer_tick_end(writer);
            trace_writer_flush(writer, t_ns, false);
        }
    }
    run_process(j->run, t_ns, PROCESS_DIED, 0, &info);
    if (writer)
        trace_writer_process(writer, t_ns, PROCESS_DIED, 0, &info);
}

static struct judge *a_judge(void)
{
    return judge_with_run(NULL);
}

static enum verdict_word word_after(struct judge *j, const char *kind, const char *text)
{
    judge_take_note(j, kind, text);
    judge_update(j);
    return judge_tree(j)->result.word;
}

static void growth_to_the_end_of_a_job_that_ended_by_itself_is_called(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    live(j, NULL, false);
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    assert_int_equal(result_at(j, 0)->word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void a_job_that_was_ended_stays_undecided(void **state)
{
    static const char *const ends[] = {
        "{\"kind\":\"exited\",\"status\":1,\"cause_kind\":\"status\"}",
        "{\"kind\":\"signalled\",\"status\":137,\"cause_kind\":\"oom_group\"}",
        "{\"kind\":\"exited\",\"status\":0,\"cause_kind\":\"cancelled\",\"by\":\"cancelled\"}",
        "{\"kind\":\"exited\",\"status\":124,\"cause_kind\":\"guard\",\"by\":\"the guard\"}",
        "{\"kind\":\"watch_ended\"}",
        "no json",
    };
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct judge *j = a_judge();
        live(j, NULL, false);
        judge_update(j);
        assert_true(judge_tree(j)->result.forecast.known);
        assert_int_equal(word_after(j, "end", ends[i]), VERDICT_UNDECIDED);
        /* When it will be known is told of what goes on alone. */
        assert_int_equal(judge_tree(j)->result.forecast.known, i >= 4);
        judge_free_with_run(j);
    }
}

static void who_was_asked_to_end_did_not_end_by_itself(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    live(j, NULL, false);
    assert_int_equal(word_after(j, "signal", "{\"signal\":15,\"by\":\"operator\"}"),
                     VERDICT_UNDECIDED);
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_UNDECIDED);
    judge_free_with_run(j);
    j = a_judge();
    live(j, NULL, false);
    assert_int_equal(word_after(j, "signal", "{\"signal\":10,\"by\":\"operator\"}"),
                     VERDICT_UNDECIDED); /* SIGUSR1 asks for something else */
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    judge_free_with_run(j);
}

/* What process PID held grew to its end by 100 MiB from the tenth second on. */
static struct held grown(int32_t pid)
{
    return (struct held){
        .pid = pid,
        .start_ns = NS_PER_S,
        .worked_ns = SECONDS * NS_PER_S,
        .has_grown = true,
        .grown = {
            .from_ns = (int64_t)(10 * NS_PER_S),
            .growth_bytes = 100.0 * (double)MIB,
            .result = {.word = VERDICT_LEAKING, .leak = VERDICT_LEAK_YES, .confidence = 0.65}}};
}

static void of_a_job_that_told_nothing_the_profiler_is_heard(void **state)
{
    struct held others[] = {grown(1001), grown(1000)};
    struct judge *j = a_judge();
    (void)state;
    others[1].start_ns = 90 * NS_PER_S; /* the pid was used again */
    live(j, NULL, true);
    assert_false(judge_wants_held(j));
    (void)word_after(j, "end", by_itself);
    enum verdict_word before = result_at(j, 0)->word;
    assert_int_equal(verdict_word_leak(before), VERDICT_LEAK_NO);
    assert_true(judge_wants_held(j));
    judge_set_held(j, others, 2);
    judge_update(j);
    assert_int_equal(result_at(j, 0)->word, before);
    struct held own = grown(1000);
    judge_set_held(j, &own, 1);
    judge_update(j);
    assert_int_equal(result_at(j, 0)->word, VERDICT_UNDECIDED);
    assert_int_equal(result_at(j, 0)->evidence[0].code, VERDICT_SAID_HELD_ALONE);
    judge_free_with_run(j);
}

static void what_was_read_after_its_work_was_done_does_not_count(void **state)
{
    const struct held done = {.pid = 1000, .start_ns = NS_PER_S, .worked_ns = 50 * NS_PER_S};
    struct judge *j = a_judge();
    (void)state;
    grows_for_s = 50;
    live(j, NULL, false);
    grows_for_s = SECONDS;
    assert_int_not_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    judge_set_held(j, &done, 1);
    judge_update(j);
    assert_int_equal(result_at(j, 0)->word, VERDICT_LEAKING);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void what_marks_decided_stays_and_of_a_job_that_was_ended_it_is_not_heard(void **state)
{
    const struct mark step = {
        .kind = MARK_STEP, .t_ns = 30 * NS_PER_S, .has = MARK_HAS_STEP, .step = 1, .pid = 1000};
    struct held own = grown(1000);
    (void)state;
    for (int is_marked = 0; is_marked < 2; is_marked++) {
        struct judge *j = a_judge();
        live(j, NULL, true);
        if (is_marked)
            run_add_mark(j->run, &step);
        (void)word_after(j, "end", is_marked ? by_itself : "{\"kind\":\"signalled\"}");
        enum verdict_word before = result_at(j, 0)->word;
        assert_int_equal(judge_wants_held(j), is_marked); /* the helper is open */
        assert_int_equal(verdict_word_leak(before), VERDICT_LEAK_NO);
        judge_set_held(j, &own, 1);
        judge_update(j);
        assert_int_equal(result_at(j, 0)->word, before);
        judge_free_with_run(j);
    }
}

static void a_helper_of_the_second_half_says_nothing(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    live(j, NULL, true);
    word_after(j, "end", by_itself);
    for (size_t i = 0; i < j->listed_count; i++)
        assert_int_not_equal(result_at(j, i)->word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void a_recording_says_the_same(void **state)
{
    char folder[] = "/tmp/ebb-judge-end-XXXXXX";
    struct trace_writer *writer = NULL;
    struct err err = {""};
    (void)state;
    assert_non_null(mkdtemp(folder));
    int dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    json_t *header = json_pack("{s:I,s:I}", "start_mono_ns", (json_int_t)NS_PER_S, "start_wall_ns",
                               (json_int_t)0);
    json_t *footer = json_parse(by_itself, strlen(by_itself), &err);
    assert_int_equal(trace_writer_new(dirfd, "trace.ebb", header, NULL, &writer, &err), 0);
    struct judge *told = a_judge(), *again = NULL;
    const struct judge_options none = {.no_marks = false};
    struct run *run = NULL;
    assert_int_equal(judge_new(&none, &again), 0);
    live(told, writer, false);
    assert_int_equal(word_after(told, "end", by_itself), VERDICT_LEAKING);
    assert_int_equal(trace_writer_close(writer, footer, 120 * NS_PER_S), 0);
    assert_int_equal(run_read(folder, &run_settings_read, judge_observer(again), &run, &err), 0);
    judge_update(again);
    json_t *first = judge_json(told), *second = judge_json(again);
    assert_true(json_equal(first, second));
    json_decref(first);
    json_decref(second);
    json_decref(header);
    json_decref(footer);
    judge_free_with_run(told);
    judge_free_with_run(again);
    unlinkat(dirfd, "trace.ebb", 0);
    close(dirfd);
    rmdir(folder);
}

/* Whether it was judged while it lived depends on the moment, which no recording tells. */
static void who_lived_too_shortly_is_left_out_though_it_was_judged(void **state)
{
    struct judge *j = a_judge();
    struct process_info info = {.id = {.pid = 1002, .start_ticks = 7}, .role = ROLE_OTHER};
    struct sample s = {0};
    (void)state;
    live(j, NULL, false);
    run_process(j->run, SECONDS * NS_PER_S, PROCESS_BORN, 2, &info);
    sample_put(&s, SAMPLE_RSS, 30 * MIB);
    sample_put(&s, SAMPLE_FILE, 0);
    run_tick_begin(j->run, (SECONDS + 1) * NS_PER_S);
    run_sample(j->run, ENTITY_PROCESS, 2, NULL, &s);
    run_tick_end(j->run);
    judge_update(j);
    assert_int_equal(j->listed_count, 2);
    run_process(j->run, (SECONDS + 2) * NS_PER_S, PROCESS_DIED, 2, &info);
    judge_update(j);
    assert_int_equal(j->listed_count, 1);
    assert_int_equal(j->run->processes_seen - j->listed_count, 1);
    judge_free_with_run(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_to_the_end_of_a_job_that_ended_by_itself_is_called),
        cmocka_unit_test(a_job_that_was_ended_stays_undecided),
        cmocka_unit_test(who_was_asked_to_end_did_not_end_by_itself),
        cmocka_unit_test(of_a_job_that_told_nothing_the_profiler_is_heard),
        cmocka_unit_test(what_was_read_after_its_work_was_done_does_not_count),
        cmocka_unit_test(what_marks_decided_stays_and_of_a_job_that_was_ended_it_is_not_heard),
        cmocka_unit_test(a_helper_of_the_second_half_says_nothing),
        cmocka_unit_test(a_recording_says_the_same),
        cmocka_unit_test(who_lived_too_shortly_is_left_out_though_it_was_judged),
    };
    return cmocka_run_group_tests_name("judge_end", tests, NULL, NULL);
}
