/* Tests how the end of a job affects its verdict, live and from a recording. */
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

/* Number of seconds for which the process of run_minute() grows. */
static uint64_t grows_for_s = SECONDS;

static const char by_itself[] =
    "{\"kind\":\"exited\",\"status\":0,\"left_behind\":0,\"cause_kind\":\"finished\"}";

/* Runs a process for a minute, without marks, until it exits. The process grows steadily unless
 * HAS_HELPER is set; then a helper process that starts after half of the time grows instead. WRITER
 * may be NULL. */
static void run_minute(struct judge *j, struct trace_writer *writer, bool has_helper)
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

static void growth_up_to_the_end_of_a_finished_job_is_a_leak(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    run_minute(j, NULL, false);
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    assert_int_equal(result_at(j, 0)->word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void growth_of_a_job_that_failed_or_was_stopped_stays_undecided(void **state)
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
        run_minute(j, NULL, false);
        judge_update(j);
        assert_true(judge_tree(j)->result.forecast.known);
        assert_int_equal(word_after(j, "end", ends[i]), VERDICT_UNDECIDED);
        /* Only a running job has a forecast of the time at which its verdict will be decided. */
        assert_int_equal(judge_tree(j)->result.forecast.known, i >= 4);
        judge_free_with_run(j);
    }
}

static void growth_of_a_job_that_exits_after_a_signal_stays_undecided(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    run_minute(j, NULL, false);
    assert_int_equal(word_after(j, "signal", "{\"signal\":15,\"by\":\"operator\"}"),
                     VERDICT_UNDECIDED);
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_UNDECIDED);
    judge_free_with_run(j);
    j = a_judge();
    run_minute(j, NULL, false);
    assert_int_equal(word_after(j, "signal", "{\"signal\":10,\"by\":\"operator\"}"),
                     VERDICT_UNDECIDED); /* SIGUSR1 does not request termination. */
    assert_int_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    judge_free_with_run(j);
}

/* Returns heap evidence in which the call sites of process PID grew steadily by 100 MiB until the
 * process ended. */
static struct held grown(int32_t pid)
{
    struct trend t = {.known = true,
                      .seconds = SECONDS,
                      .base = 100.0 * (double)MIB,
                      .growth = 200.0 * (double)MIB,
                      .third = 1,
                      .sixth = 1,
                      .forecast = 200.0 * (double)MIB,
                      .lasting = 20,
                      .net = 1,
                      .pace = 1};
    return (struct held){.pid = pid,
                         .start_ns = NS_PER_S,
                         .worked_ns = SECONDS * NS_PER_S,
                         .sites = {.known = true,
                                   .grown = 100.0 * (double)MIB,
                                   .grown_late = 50.0 * (double)MIB,
                                   .kept = t,
                                   .by_work = t,
                                   .settled = t}};
}

static void call_site_growth_is_not_evidence_about_other_processes(void **state)
{
    struct held others[] = {grown(1001), grown(1000)};
    struct judge *j = a_judge();
    (void)state;
    others[1].start_ns = 90 * NS_PER_S; /* another process with the same pid, which started later */
    run_minute(j, NULL, true);
    (void)word_after(j, "end", by_itself);
    assert_int_equal(result_at(j, 0)->leak, VERDICT_LEAK_NO);
    assert_false(result_at(j, 0)->has_probability);
    judge_set_held(j, others, 2);
    judge_update(j);
    double before = result_at(j, 0)->probability;
    assert_true(result_at(j, 0)->has_probability);
    assert_int_equal(result_at(j, 0)->leak, VERDICT_LEAK_NO);
    struct held own = grown(1000);
    judge_set_held(j, &own, 1);
    judge_update(j);
    assert_true(result_at(j, 0)->probability > before + 0.3);
    assert_true(judge_tree(j)->result.probability >= result_at(j, 0)->probability);
    judge_free_with_run(j);
}

static void readings_after_the_end_of_the_training_work_are_ignored(void **state)
{
    const struct held done = {.pid = 1000, .start_ns = NS_PER_S, .worked_ns = 50 * NS_PER_S};
    struct judge *j = a_judge();
    (void)state;
    grows_for_s = 50;
    run_minute(j, NULL, false);
    grows_for_s = SECONDS;
    assert_int_not_equal(word_after(j, "end", by_itself), VERDICT_LEAKING);
    judge_set_held(j, &done, 1);
    judge_update(j);
    assert_int_equal(result_at(j, 0)->word, VERDICT_LEAKING);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

/* The growth of a killed job may have been about to stop, so the verdict is leaking only if a leak
 * is nearly certain. */
static void killed_job_gets_leak_probability_only_with_call_site_history(void **state)
{
    struct held own = grown(1000);
    struct judge *j = a_judge();
    (void)state;
    run_minute(j, NULL, true);
    (void)word_after(j, "end", "{\"kind\":\"signalled\"}");
    enum verdict_word before = result_at(j, 0)->word;
    judge_set_held(j, &own, 1);
    judge_update(j);
    const struct verdict_result *r = result_at(j, 0);
    assert_false(r->has_probability); /* own.earlier, the evidence from 10 s ago, is not set */
    own.earlier.known = true;         /* the earlier call sites did not grow */
    judge_set_held(j, &own, 1);
    judge_update(j);
    r = result_at(j, 0);
    double unconfirmed = r->probability;
    assert_true(r->has_probability);
    own.earlier = own.sites;
    judge_set_held(j, &own, 1);
    judge_update(j);
    r = result_at(j, 0);
    assert_true(r->probability > unconfirmed);
    assert_int_equal(r->leak == VERDICT_LEAK_YES, r->probability >= 0.92);
    if (r->probability < 0.92)
        assert_int_equal(r->word, before);
    judge_free_with_run(j);
}

/* Continues the running job J from FROM_S to UNTIL_S. Its process grows by 1 MiB per step, and its
 * epochs take EPOCH_S seconds. */
static void run_on(struct judge *j, uint64_t from_s, uint64_t until_s, int64_t epoch_s)
{
    for (uint64_t i = from_s * A_SECOND; i < until_s * A_SECOND; i++) {
        uint64_t t_ns = NS_PER_S + i * NS_PER_S / A_SECOND;
        struct mark step = {.t_ns = NS_PER_S + t_ns,
                            .kind = i ? MARK_STEP : MARK_BEGIN,
                            .has = MARK_HAS_STEP | (i ? 0 : MARK_HAS_STEPS_PER_EPOCH),
                            .step = (int64_t)i,
                            .steps_per_epoch = A_SECOND * epoch_s,
                            .text = ""};
        struct sample s = {0};
        sample_put(&s, SAMPLE_RSS, (200 + i) * MIB);
        sample_put(&s, SAMPLE_FILE, 0);
        sample_put(&s, SAMPLE_SWAP, 0);
        run_add_mark(j->run, &step);
        run_tick_begin(j->run, t_ns);
        run_sample(j->run, ENTITY_PROCESS, 0, NULL, &s);
        run_tick_end(j->run);
    }
    judge_update(j);
}

static struct judge *running_job(uint64_t seconds_long, int64_t epoch_s)
{
    struct judge *j = a_judge();
    struct process_info info = {.id = {.pid = 1000, .start_ticks = 7}, .role = ROLE_MAIN};
    run_process(j->run, NS_PER_S, PROCESS_BORN, 0, &info);
    run_on(j, 0, seconds_long, epoch_s);
    return j;
}

/* Call sites that make a leak of the running job probable, but not so certain that it is reported
 * at once. */
static struct held probably_grown(void)
{
    struct held sites = grown(1000);
    sites.sites.grown_late = 0;
    sites.sites.settled.known = false;
    return sites;
}

static void profiled_job_is_judged_leaking_only_if_call_sites_grow(void **state)
{
    struct held sites = probably_grown();
    struct judge *j = running_job(60, 20);
    (void)state;
    /* the job has no heap profile yet */
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_set_held(j, &sites, 1);
    judge_update(j); /* sites.earlier, the evidence from 10 s ago, is not set */
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    assert_true(judge_tree(j)->result.shape_leaks);
    sites.earlier = sites.sites;
    judge_set_held(j, &sites, 1);
    judge_update(j);
    assert_true(judge_tree(j)->result.probability >= 0.6);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    run_on(j, 60, 60 + JUDGE_LASTING_S + 1, 20);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void leak_is_confirmed_if_already_probable_10_s_earlier(void **state)
{
    struct held sites = probably_grown();
    struct judge *j = running_job(60 + JUDGE_LASTING_S, 20), *before = running_job(60, 20);
    (void)state;
    assert_false(judge_awaits_confirmation(j));
    sites.earlier = sites.sites;
    judge_set_held(j, &sites, 1);
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    assert_true(judge_awaits_confirmation(j));
    judge_confirm(j, before); /* the judge of 10 s earlier has no evidence from call sites */
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    judge_set_held(before, &sites, 1);
    judge_update(before);
    judge_confirm(j, before);
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_free_with_run(before);
    judge_free_with_run(j);
}

static void leak_soon_after_one_epoch_is_found_only_if_call_sites_grow(void **state)
{
    struct held sites = grown(1000), none = sites;
    struct judge *j = running_job(46, 36);
    (void)state;
    none.sites = none.earlier = (struct model_sites){.known = true};
    judge_set_held(j, &none, 1);
    judge_update(j);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_UNDECIDED);
    assert_true(judge_tree(j)->result.shape_leaks);
    sites.earlier = sites.sites;
    judge_set_held(j, &sites, 1);
    judge_update(j);
    run_on(j, 46, 46 + JUDGE_LASTING_S + 1, 36);
    assert_int_equal(judge_tree(j)->result.word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void helper_process_that_starts_late_does_not_decide_the_verdict(void **state)
{
    struct judge *j = a_judge();
    (void)state;
    run_minute(j, NULL, true);
    word_after(j, "end", by_itself);
    for (size_t i = 0; i < j->listed_count; i++)
        assert_int_not_equal(result_at(j, i)->word, VERDICT_LEAKING);
    judge_free_with_run(j);
}

static void recording_of_an_ended_job_gives_the_same_verdict_as_live_run(void **state)
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
    run_minute(told, writer, false);
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

/* Whether a process was judged while it was alive depends on timing that a recording does not
 * contain. */
static void process_that_exits_soon_after_its_start_keeps_no_verdict(void **state)
{
    struct judge *j = a_judge();
    struct process_info info = {.id = {.pid = 1002, .start_ticks = 7}, .role = ROLE_OTHER};
    struct sample s = {0};
    (void)state;
    run_minute(j, NULL, false);
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
        cmocka_unit_test(growth_up_to_the_end_of_a_finished_job_is_a_leak),
        cmocka_unit_test(growth_of_a_job_that_failed_or_was_stopped_stays_undecided),
        cmocka_unit_test(growth_of_a_job_that_exits_after_a_signal_stays_undecided),
        cmocka_unit_test(call_site_growth_is_not_evidence_about_other_processes),
        cmocka_unit_test(readings_after_the_end_of_the_training_work_are_ignored),
        cmocka_unit_test(killed_job_gets_leak_probability_only_with_call_site_history),
        cmocka_unit_test(profiled_job_is_judged_leaking_only_if_call_sites_grow),
        cmocka_unit_test(leak_is_confirmed_if_already_probable_10_s_earlier),
        cmocka_unit_test(leak_soon_after_one_epoch_is_found_only_if_call_sites_grow),
        cmocka_unit_test(helper_process_that_starts_late_does_not_decide_the_verdict),
        cmocka_unit_test(recording_of_an_ended_job_gives_the_same_verdict_as_live_run),
        cmocka_unit_test(process_that_exits_soon_after_its_start_keeps_no_verdict),
    };
    return cmocka_run_group_tests_name("judge_end", tests, NULL, NULL);
}
