/* Tests KIND=kept marks, which come from the job and are untrusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "mark/mark.h"
#include "base/clock.h"
#include "profile/kept.h"
#include "run/run.h"

enum { PID = 4711 };
static struct kept_lists lists;

static int begin(void **state)
{
    (void)state;
    memset(&lists, 0, sizeof lists);
    return 0;
}

static void hear_from(int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.pid = pid;
    kept_take(&lists, &m);
}

static void receive(const char *text)
{
    hear_from(PID, text);
}

#define FEATURES "\nNAME=Features.cache\nTYPE=dict\nADDED=76\nBYTES=19932672"

static void growing_container_is_described_with_its_step_range(void **state)
{
    char text[KEPT_TEXT_MAX];
    (void)state;
    receive("KIND=kept\nSTEP=40\nSINCE=21");
    assert_null(kept_of(&lists, PID));
    receive("KIND=kept\nSTEP=40\nSINCE=21" FEATURES);
    receive("KIND=kept\nSTEP=40\nSINCE=21\nNAME=seen\nTYPE=list\nADDED=2\nBYTES=9");
    const struct kept_list *l = kept_of(&lists, PID);
    assert_non_null(l);
    assert_int_equal(l->count, 2);
    assert_string_equal(kept_text(text, l, 0),
                        "Features.cache (dict): 76 entries added from step 21 to "
                        "step 40, at most 19.0 MiB");
    assert_null(kept_of(&lists, PID + 1));
}

static void container_description_includes_the_entry_limit(void **state)
{
    char text[KEPT_TEXT_MAX];
    (void)state;
    receive("KIND=kept\nSTEP=40\nSINCE=21" FEATURES "\nLIMIT=4000");
    const struct kept_list *l = kept_of(&lists, PID);
    assert_non_null(l);
    assert_string_equal(kept_text(text, l, 0),
                        "Features.cache (dict): 76 entries added from step 21 to "
                        "step 40, at most 19.0 MiB; it is limited to 4000 entries");
}

static void new_container_report_replaces_the_previous_report(void **state)
{
    (void)state;
    receive("KIND=kept\nSTEP=40\nSINCE=21" FEATURES);
    receive("KIND=kept\nSTEP=80\nSINCE=40");
    assert_null(kept_of(&lists, PID));
    receive("KIND=kept\nSTEP=90\nSINCE=80" FEATURES);
    assert_int_equal(kept_of(&lists, PID)->count, 1);
    assert_int_equal(kept_of(&lists, PID)->step, 90);
}

static void container_description_without_steps_omits_the_step_range(void **state)
{
    char text[KEPT_TEXT_MAX];
    (void)state;
    receive("KIND=kept" FEATURES);
    assert_string_equal(kept_text(text, kept_of(&lists, PID), 0),
                        "Features.cache (dict): 76 entries added, at most 19.0 MiB");
}

static void container_description_mentions_autograd_graphs(void **state)
{
    char text[KEPT_TEXT_MAX];
    (void)state;
    receive("KIND=kept\nNAME=total\nTYPE=Tensor\nADDED=90\nBYTES=1048576\nGRAPH=1");
    receive("KIND=kept\nNAME=losses\nTYPE=list\nADDED=10\nBYTES=1048576\nGRAPH=1");
    assert_true(kept_of(&lists, PID)->at[0].is_graph);
    assert_string_equal(kept_text(text, kept_of(&lists, PID), 0),
                        "total (Tensor): 90 autograd nodes added, at most 1.00 MiB");
    assert_string_equal(
        kept_text(text, kept_of(&lists, PID), 1),
        "losses (list): 10 entries added, with their autograd graphs, at most 1.00 MiB");
}

static void invalid_container_marks_change_nothing(void **state)
{
    (void)state;
    receive("KIND=kept\nNAME=a\nTYPE=list\nADDED=-1\nBYTES=1");
    receive("KIND=kept\nNAME=a\nTYPE=list\nADDED=1\nBYTES=nan");
    receive("KIND=kept\nNAME=a\nTYPE=list\nADDED=inf\nBYTES=1");
    receive("KIND=kept\nTYPE=list\nADDED=1\nBYTES=1");
    receive("KIND=other\nNAME=a\nTYPE=list\nADDED=1\nBYTES=1");
    assert_null(kept_of(&lists, PID));
}

static void long_container_names_are_truncated(void **state)
{
    char text[2 * KEPT_NAME_MAX + 64], name[2 * KEPT_NAME_MAX];
    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(text, sizeof text, "KIND=kept\nNAME=%s\nTYPE=list\nADDED=1e300\nBYTES=1e300", name);
    for (int i = 0; i < 2 * KEPT_PROCESSES; i++)
        hear_from(PID + i, text);
    for (int i = 0; i < 2 * KEPT_MAX; i++)
        receive(text);
    assert_int_equal(lists.count, KEPT_PROCESSES);
    const struct kept_list *l = kept_of(&lists, PID);
    assert_int_equal(l->count, KEPT_MAX);
    assert_int_equal(strlen(l->at[0].name), KEPT_NAME_MAX - 1);
    json_t *doc = kept_json(l);
    assert_int_equal(json_array_size(doc), KEPT_MAX);
    json_decref(doc);
    doc = kept_json(NULL);
    assert_int_equal(json_array_size(doc), 0);
    json_decref(doc);
}

/* Adds a value that process PID reports as NAME. */
static void add_figure(struct run *run, uint32_t id, const char *name, uint64_t value)
{
    struct sample s = {0};
    char full[128];
    snprintf(full, sizeof full, "%s@%d", name, PID);
    sample_put(&s, 0, value);
    run_sample(run, ENTITY_SERIES, id, full, &s);
}

/* Returns a run of ten seconds. Each second, the resident memory of process PID grows by GROWTH, a
 * list by 1 MiB and a small dictionary by 100 KiB. */
static struct run *run_with_containers(uint64_t growth)
{
    const struct process_info info = {.id = {.pid = PID, .start_ticks = 1}};
    struct run *run;
    assert_int_equal(run_new(&run_settings_read, 0, &run), 0);
    run_process(run, 0, PROCESS_BORN, 1, &info);
    for (uint64_t i = 0; i <= 10; i++) {
        struct sample s = {0};
        run_tick_begin(run, i * NS_PER_S);
        sample_put(&s, SAMPLE_RSS, (200 << 20) + i * growth / 10);
        run_sample(run, ENTITY_PROCESS, 1, NULL, &s);
        add_figure(run, 1, "container:seen of main()", 5 + 3 * i);
        add_figure(run, 2, "container_bytes:seen of main()", (1 + i) << 20);
        add_figure(run, 5, "container_limit:seen of main()", 500);
        add_figure(run, 3, "container:names of main()", i);
        add_figure(run, 4, "container_bytes:names of main()", (100 << 10) * i);
        run_tick_end(run);
    }
    return run;
}

static void container_metrics_are_used_if_no_container_report_arrived(void **state)
{
    struct run *run = run_with_containers(20 << 20);
    char text[KEPT_TEXT_MAX];
    (void)state;
    kept_take_figures(&lists, run);
    const struct kept_list *l = kept_of(&lists, PID);
    assert_non_null(l);
    assert_int_equal(l->count, 1); /* the dictionary gained less than 1 MiB */
    assert_string_equal(kept_text(text, l, 0),
                        "seen of main(): 30 entries added, at most 10.0 MiB; it is limited to 500 "
                        "entries");
    run_free(run);
}

static void growing_array_is_described_in_bytes_not_in_entries(void **state)
{
    struct run *run;
    char text[KEPT_TEXT_MAX];
    (void)state;
    assert_int_equal(run_new(&run_settings_read, 0, &run), 0);
    for (uint64_t i = 1; i <= 10; i++) {
        run_tick_begin(run, i * NS_PER_S);
        add_figure(run, 1, "container:bank of main()", i << 20);
        add_figure(run, 2, "container_bytes:bank of main()", i << 20);
        run_tick_end(run);
    }
    kept_take_figures(&lists, run);
    const struct kept_list *l = kept_of(&lists, PID);
    assert_non_null(l);
    assert_string_equal(kept_text(text, l, 0),
                        "bank of main(): an array or text that grew by 9.00 MiB");
    lists.at[0].at[0].limit = 40 << 20;
    assert_string_equal(
        kept_text(text, l, 0),
        "bank of main(): an array of 40.0 MiB, of which 9.00 MiB was newly written");
    run_free(run);
}

static void container_metrics_do_not_replace_a_container_report(void **state)
{
    struct run *run = run_with_containers(20 << 20);
    (void)state;
    receive("KIND=kept\nSTEP=40\nSINCE=21" FEATURES);
    kept_take_figures(&lists, run);
    const struct kept_list *l = kept_of(&lists, PID);
    assert_int_equal(l->count, 1);
    assert_string_equal(l->at[0].name, "Features.cache");
    run_free(run);
}

static void container_that_is_cleared_repeatedly_is_not_reported(void **state)
{
    struct run *run;
    (void)state;
    assert_int_equal(run_new(&run_settings_read, 0, &run), 0);
    for (uint64_t i = 0; i <= 10; i++) {
        run_tick_begin(run, i * NS_PER_S);
        add_figure(run, 1, "container:Store.log", i % 4);
        add_figure(run, 2, "container_bytes:Store.log", (i % 4) << 23);
        add_figure(run, 3, "container:Store.rows", 4 * i + i % 4);
        add_figure(run, 4, "container_bytes:Store.rows", (4 * i + i % 4) << 20);
        run_tick_end(run);
    }
    kept_take_figures(&lists, run);
    const struct kept_list *l = kept_of(&lists, PID);
    assert_non_null(l);
    assert_int_equal(l->count, 1);
    assert_string_equal(l->at[0].name, "Store.rows");
    run_free(run);
}

static void container_with_a_small_share_of_growth_is_not_reported(void **state)
{
    struct run *run = run_with_containers(400 << 20);
    (void)state;
    kept_take_figures(&lists, run);
    assert_null(kept_of(&lists, PID));
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(growing_container_is_described_with_its_step_range, begin),
        cmocka_unit_test_setup(container_description_includes_the_entry_limit, begin),
        cmocka_unit_test_setup(new_container_report_replaces_the_previous_report, begin),
        cmocka_unit_test_setup(container_description_without_steps_omits_the_step_range, begin),
        cmocka_unit_test_setup(container_description_mentions_autograd_graphs, begin),
        cmocka_unit_test_setup(invalid_container_marks_change_nothing, begin),
        cmocka_unit_test_setup(long_container_names_are_truncated, begin),
        cmocka_unit_test_setup(container_metrics_are_used_if_no_container_report_arrived, begin),
        cmocka_unit_test_setup(growing_array_is_described_in_bytes_not_in_entries, begin),
        cmocka_unit_test_setup(container_metrics_do_not_replace_a_container_report, begin),
        cmocka_unit_test_setup(container_that_is_cleared_repeatedly_is_not_reported, begin),
        cmocka_unit_test_setup(container_with_a_small_share_of_growth_is_not_reported, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
