/* Tests which readings and processes decide a verdict, and that a recording gives the same verdict
 * as the live run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "judge/verdicts.h"
#include "trace/writer.h"

#include "judged_run.h"

static const uint64_t MIB = 1 << 20;

/* A job with its judge; WRITER also records the job unless it is NULL. */
struct job {
    struct judge *judge;
    struct trace_writer *writer;
    uint64_t t_ns;
    bool has_figures;      /* true if the trainer reports its heap and two other metrics */
    uint64_t figures_from; /* step after which the trainer reports metrics */
    /* true if the trainer also stores the container's entries in a list */
    bool has_list;
    /* maximum number of entries of the trainer's container, or 0 if unlimited */
    uint64_t container_limit;
    bool is_spare; /* true if the trainer frees its growing memory and malloc retains it */
};

static struct job job_begin(const struct judge_options *options)
{
    struct job job = {.t_ns = NS_PER_S};
    job.judge = judge_with_run(options);
    return job;
}

static struct process_info info_of(int32_t pid, enum process_role role)
{
    struct process_info info = {.id = {.pid = pid, .start_ticks = 7}, .role = role, .comm_len = 4};
    memcpy(info.comm, "proc", 4);
    return info;
}

static void event(struct job *job, enum process_event_kind kind, uint32_t slot,
                  enum process_role role)
{
    struct process_info info = info_of((int32_t)(1000 + slot), role);
    run_process(job->judge->run, job->t_ns, kind, slot, &info);
    if (job->writer)
        trace_writer_process(job->writer, job->t_ns, kind, slot, &info);
}

static void tick_begin(struct job *job)
{
    run_tick_begin(job->judge->run, job->t_ns);
    if (job->writer)
        trace_writer_tick_begin(job->writer, job->t_ns);
}

static void put(struct job *job, enum sample_entity_kind kind, uint32_t id, const struct sample *s)
{
    run_sample(job->judge->run, kind, id, NULL, s);
    if (job->writer)
        trace_writer_sample(job->writer, kind, id, s);
}

static void tick_end(struct job *job, uint64_t step_ns)
{
    run_tick_end(job->judge->run);
    if (job->writer) {
        trace_writer_tick_end(job->writer);
        trace_writer_flush(job->writer, job->t_ns, false);
    }
    job->t_ns += step_ns;
}

static void put_series(struct job *job, uint32_t id, const char *name, uint64_t value)
{
    struct sample s = {0};
    sample_put(&s, 0, value);
    run_sample(job->judge->run, ENTITY_SERIES, id, name, &s);
    if (job->writer)
        trace_writer_sample(job->writer, ENTITY_SERIES, id, &s);
}

static const char *const figure_names[] = {"heap_live_bytes@1000", "cuda_allocated_bytes@1000",
                                           "gc_collections@1000", "heap_free_bytes@1000"};

static void name_figures(struct job *job)
{
    for (uint32_t i = 0; job->writer && i < 4; i++)
        trace_writer_entity(job->writer, job->t_ns, ENTITY_SERIES, i, figure_names[i]);
}

static void put_figures(struct job *job, uint64_t heap)
{
    put_series(job, 0, figure_names[0], job->is_spare ? 200 * MIB : heap);
    put_series(job, 1, figure_names[1], 4096 * MIB);
    put_series(job, 2, figure_names[2], heap);
    put_series(job, 3, figure_names[3], job->is_spare ? heap - 190 * MIB : 10 * MIB);
}

/* Reports a container of the trainer. The container has one entry per step and HELD bytes in total.
 */
static void put_container(struct job *job, uint64_t step, uint64_t held)
{
    put_series(job, 4, "container_bytes:buffer@1000", held);
    put_series(job, 5, "container:buffer@1000", step);
    put_series(job, 6, "container_limit:buffer@1000", job->container_limit);
    if (job->has_list)
        put_series(job, 7, "container_bytes:list@1000", held);
}

static void put_process(struct job *job, uint32_t slot, uint64_t rss, uint64_t file, uint64_t swap)
{
    struct sample s = {0};
    sample_put(&s, SAMPLE_RSS, rss);
    sample_put(&s, SAMPLE_FILE, file);
    sample_put(&s, SAMPLE_SWAP, swap);
    put(job, ENTITY_PROCESS, slot, &s);
}

static void put_machine(struct job *job, uint64_t low, uint64_t used)
{
    struct sample s = {0};
    sample_put(&s, MACHINE_TREE_LOW, low);
    sample_put(&s, MACHINE_LIMIT, 64 * 1024 * MIB);
    sample_put(&s, MACHINE_LIMIT_USED, used);
    put(job, ENTITY_MACHINE, 0, &s);
}

static void mark_text(struct job *job, int32_t pid, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.t_ns = job->t_ns;
    m.pid = pid;
    run_add_mark(job->judge->run, &m);
    if (job->writer)
        trace_writer_mark(job->writer, &m);
}

static void mark_step(struct job *job, int32_t pid, uint64_t step)
{
    char text[64];
    snprintf(text, sizeof text, "KIND=step\nSTEP=%llu\n", (unsigned long long)step);
    mark_text(job, pid, text);
}

static const struct run_entity *process(const struct judge *j, int32_t pid)
{
    for (size_t i = 0; i < j->listed_count; i++)
        if (j->listed[i]->info.id.pid == pid)
            return j->listed[i];
    return NULL;
}

static struct verdict_result result_of(const struct judge *j, int32_t pid)
{
    const struct run_entity *p = process(j, pid);
    assert_non_null(p);
    return p && judge_result(p) ? *judge_result(p) : (struct verdict_result){0};
}

static enum verdict_word word_of(const struct judge *j, int32_t pid)
{
    return result_of(j, pid).word;
}

/* Runs a trainer in slot 0 with epochs of 40 steps and a large flat worker in slot 1. The trainer
 * retains GROWTH bytes per step up to step LAST. */
static void train(struct job *job, uint64_t steps, uint64_t growth, uint64_t last)
{
    event(job, PROCESS_BORN, 0, ROLE_MAIN);
    event(job, PROCESS_BORN, 1, ROLE_DATA_WORKER);
    for (uint64_t step = 0; step <= steps; step++) {
        uint64_t held = 300 * MIB + growth * (step < last ? step : last);
        tick_begin(job);
        put_machine(job, held + 500 * MIB, held + 900 * MIB);
        put_process(job, 0, held + 50 * MIB, 50 * MIB, 0);
        put_process(job, 1, 500 * MIB + 20 * MIB, 20 * MIB, 0);
        if (job->has_figures && step >= job->figures_from)
            put_figures(job, held - 100 * MIB);
        if (job->container_limit)
            put_container(job, step, held - 300 * MIB);
        tick_end(job, NS_PER_S / 2);
        if (step == 0)
            mark_text(job, 1000, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=40\n");
        else
            mark_step(job, 1000, step);
        if (step && step % 40 == 0)
            mark_text(job, 1000, "KIND=epoch\n");
        job->t_ns += NS_PER_S / 2;
    }
}

static void leak_after_the_first_epoch_names_the_growing_process(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    const struct judge_tree *tree = judge_tree(job.judge);
    assert_int_equal(tree->result.word, VERDICT_LEAKING);
    assert_non_null(tree->grower);
    assert_int_equal(tree->grower->info.id.pid, 1000);
    assert_int_equal(word_of(job.judge, 1001), VERDICT_STABLE);
    assert_int_equal(tree->of.n_flat, 1);
    assert_int_equal(tree->of.flat[0].role, ROLE_DATA_WORKER);
    assert_true(tree->result.oom.known);
    assert_true(tree->result.rate_bytes_per_step.known);
    assert_true(tree->result.rate_bytes_per_step.value > 9.5 * (double)MIB);
    assert_true(tree->result.rate_bytes_per_step.value < 10.5 * (double)MIB);
    judge_free_with_run(job.judge);
}

static void job_that_grows_within_the_first_epoch_is_judged_filling(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 30, 10 * MIB, 160);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_FILLING);
    judge_free_with_run(job.judge);
}

static void job_whose_growth_ends_with_first_epoch_is_judged_plateaued(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 40);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_PLATEAUED);
    assert_int_equal(judge_tree(job.judge)->result.growth_ended.step, 40);
    judge_free_with_run(job.judge);
}

/* Reads DOC, writes it again, and checks that both documents are equal. */
static void assert_reads_back(const json_t *doc)
{
    struct verdicts v;
    assert_int_equal(verdicts_read(doc, &v), 0);
    json_t *again = verdicts_json(&v);
    assert_true(json_equal(doc, again));
    json_decref(again);
    verdicts_fini(&v);
}

static void recording_gives_the_same_verdict_as_the_live_run(void **state)
{
    char folder[] = "/tmp/ebb-judge-XXXXXX";
    struct err err = {""};
    struct job job = job_begin(NULL);
    struct judge *again;
    struct run *run;
    (void)state;
    assert_non_null(mkdtemp(folder));
    int dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    json_t *header = json_pack("{s:I,s:I}", "start_mono_ns", (json_int_t)NS_PER_S, "start_wall_ns",
                               (json_int_t)0);
    assert_int_equal(trace_writer_new(dirfd, "trace.ebb", header, NULL, &job.writer, &err), 0);
    job.has_figures = true;
    name_figures(&job);
    train(&job, 120, 7 * MIB, 200);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    tick_begin(&job);
    put_machine(&job, 500 * MIB, 900 * MIB);
    put_process(&job, 1, 500 * MIB, 20 * MIB, 0);
    tick_end(&job, NS_PER_S);
    event(&job, PROCESS_DIED, 1, ROLE_DATA_WORKER);
    assert_int_equal(trace_writer_close(job.writer, NULL, 120 * NS_PER_S), 0);

    const struct judge_options none = {.no_marks = false};
    assert_int_equal(judge_new(&none, &again), 0);
    assert_int_equal(run_read(folder, &run_settings_read, judge_observer(again), &run, &err), 0);
    judge_update(job.judge);
    judge_update(again);
    json_t *live = judge_json(job.judge), *replayed = judge_json(again);
    assert_int_equal(judge_tree(again)->result.word, VERDICT_LEAKING);
    assert_int_equal(json_array_size(json_object_get(replayed, "series")), 2);
    assert_true(json_equal(live, replayed));
    assert_reads_back(live);
    json_decref(live);
    json_decref(replayed);
    json_decref(header);
    judge_free_with_run(again);
    judge_free_with_run(job.judge);
    unlinkat(dirfd, "trace.ebb", 0);
    close(dirfd);
    rmdir(folder);
}

/* Memory leaks for 20 min without marks, and falls for two seconds while the process exits. */
static void memory_drop_of_an_exiting_process_changes_no_verdict(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i < 2400; i++) {
        uint64_t held = 500 * MIB + i * (MIB / 2);
        if (i >= 2396)
            held = (2400 - i) * 300 * MIB;
        tick_begin(&job);
        put_machine(&job, held, 0);
        put_process(&job, 0, held, 0, 0);
        tick_end(&job, NS_PER_S / 2);
    }
    judge_update(job.judge);
    /* the verdict is leaking even before the exit is known */
    assert_int_equal(word_of(job.judge, 1000), VERDICT_LEAKING);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_LEAKING);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_LEAKING);
    assert_true(judge_tree(job.judge)->result.floor_last_bytes > 1600 * (double)MIB);
    assert_int_equal(result_of(job.judge, 1000).samples, 2400 - 2 * TAIL_S);
    judge_free_with_run(job.judge);
}

static void memory_drop_of_a_running_process_changes_its_verdict(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i < 2400; i++) {
        tick_begin(&job);
        put_process(&job, 0, i < 2380 ? 500 * MIB + i * (MIB / 2) : 500 * MIB, 0, 0);
        tick_end(&job, NS_PER_S / 2);
    }
    judge_update(job.judge);
    assert_int_not_equal(word_of(job.judge, 1000), VERDICT_LEAKING);
    judge_free_with_run(job.judge);
}

static void readings_held_back_for_a_mark_are_judged_if_process_exits(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i < 20; i++) {
        tick_begin(&job);
        put_process(&job, 0, 500 * MIB, 0, 0);
        tick_end(&job, NS_PER_S / 2);
    }
    mark_step(&job, 1000, 1);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_update(job.judge);
    assert_int_equal(result_of(job.judge, 1000).samples, 20);
    judge_free_with_run(job.judge);
}

static void growing_mapped_page_cache_is_judged_stable(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i < 2000; i++) {
        tick_begin(&job);
        put_machine(&job, 200 * MIB + i * MIB, 0);
        put_process(&job, 0, 200 * MIB + i * MIB, 100 * MIB + i * MIB, 0);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_STABLE);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_STABLE);
    judge_free_with_run(job.judge);
}

/* Samples a process once per second for 100 s. Up to sample number LAST, the process maps another
 * 40 MiB of files between two samples. Every third sample includes RssFile. Training begins after
 * the fourth sample. */
static void map_files(struct job *job, uint64_t last)
{
    event(job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i <= 100; i++) {
        uint64_t file = 40 * MIB * (i < last ? i : last);
        struct sample s = {0};
        tick_begin(job);
        sample_put(&s, SAMPLE_RSS, 300 * MIB + file);
        if (i % 3 == 0)
            sample_put(&s, SAMPLE_FILE, file);
        put(job, ENTITY_PROCESS, 0, &s);
        put_machine(job, 300 * MIB + file, 900 * MIB + file);
        tick_end(job, NS_PER_S);
        if (i == 3)
            mark_text(job, 1000, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=40\n");
        else if (i > 3)
            mark_step(job, 1000, i - 3);
        if (i == 43 || i == 83)
            mark_text(job, 1000, "KIND=epoch\n");
    }
}

static void newly_mapped_files_are_not_judged_as_a_memory_spike(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    map_files(&job, 100);
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_STABLE);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_STABLE);
    judge_free_with_run(job.judge);
}

static void readings_are_judged_again_after_mapped_file_size_is_known(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    map_files(&job, 10);
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_STABLE);
    assert_true(result_of(job.judge, 1000).samples > 85);
    judge_free_with_run(job.judge);
}

static void growth_of_swapped_out_memory_is_judged_leaking(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint64_t i = 0; i < 3000; i++) {
        tick_begin(&job);
        put_process(&job, 0, 500 * MIB, 0, i * MIB); /* resident memory is flat while swap grows */
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_LEAKING);
    judge_free_with_run(job.judge);
}

static void readings_before_the_first_status_reading_are_not_judged(void **state)
{
    struct job job = job_begin(NULL);
    struct sample rss = {0};
    (void)state;
    sample_put(&rss, SAMPLE_RSS, 900 * MIB);
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (int i = 0; i < 2; i++) {
        tick_begin(&job);
        put(&job, ENTITY_PROCESS, 0, &rss);
        tick_end(&job, NS_PER_S);
    }
    for (int i = 0; i < 60; i++) {
        tick_begin(&job);
        put_process(&job, 0, 900 * MIB, 600 * MIB, 0);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_true(result_of(job.judge, 1000).peak_bytes < 301 * (double)MIB);
    assert_int_equal(result_of(job.judge, 1000).samples,
                     /* the newest readings of a series are held back and not yet judged */
                     60 - TAIL_S);
    judge_free_with_run(job.judge);
}

static void exec_in_a_process_starts_a_new_memory_series(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_OTHER);
    for (uint64_t i = 0; i < 200; i++) {
        if (i == 100)
            event(&job, PROCESS_EXECED, 0, ROLE_MAIN);
        tick_begin(&job);
        put_process(&job, 0, i < 100 ? 10 * MIB : 800 * MIB, 0, 0);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_int_equal(result_of(job.judge, 1000).samples, 100 - TAIL_S);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_STABLE);
    judge_free_with_run(job.judge);
}

static void only_the_largest_of_thousands_of_processes_are_judged(void **state)
{
    enum { PROCESSES = 3000 };
    struct job job = job_begin(NULL);
    (void)state;
    for (uint32_t p = 0; p < PROCESSES; p++)
        event(&job, PROCESS_BORN, p, ROLE_OTHER);
    for (int i = 0; i < 400; i++) {
        tick_begin(&job);
        for (uint32_t p = 0; p < PROCESSES; p++)
            put_process(&job, p, p >= PROCESSES - 3 ? 900 * MIB : 5 * MIB, 0, 0);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_int_equal(job.judge->listed_count, JUDGE_LIVING);
    assert_int_equal(job.judge->run->processes_seen - job.judge->listed_count,
                     PROCESSES - JUDGE_LIVING);
    for (uint32_t p = PROCESSES - 3; p < PROCESSES; p++)
        assert_int_equal(word_of(job.judge, (int32_t)(1000 + p)), VERDICT_STABLE);
    for (uint32_t p = 0; p < PROCESSES; p++)
        event(&job, PROCESS_DIED, p, ROLE_OTHER);
    judge_update(job.judge);
    assert_int_equal(job.judge->listed_count, JUDGE_DEAD);
    assert_non_null(process(job.judge, 1000 + PROCESSES - 1));
    judge_free_with_run(job.judge);
}

static void list_of_verdicts_stays_valid_after_processes_exit(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 100, 10 * MIB, 200);
    judge_update(job.judge);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    event(&job, PROCESS_DIED, 1, ROLE_DATA_WORKER);
    event(&job, PROCESS_BORN, 2, ROLE_OTHER);
    event(&job, PROCESS_DIED, 2, ROLE_OTHER);
    /* the list is from the last update, before the processes exited */
    json_t *doc = judge_json(job.judge);
    assert_string_equal(json_string_value(json_object_get(json_object_get(doc, "tree"), "verdict")),
                        "leaking");
    json_decref(doc);
    judge_free_with_run(job.judge);
}

static void verdict_on_the_job_is_kept_after_the_largest_process_exits(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 2, ROLE_LAUNCHER);
    train(&job, 120, 10 * MIB, 200);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    event(&job, PROCESS_DIED, 1, ROLE_DATA_WORKER);
    for (int i = 0; i < 40; i++) { /* the shell that started the training is still running */
        tick_begin(&job);
        put_machine(&job, 2 * MIB, 400 * MIB);
        put_process(&job, 2, 2 * MIB, MIB, 0);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_LEAKING);
    assert_int_equal(judge_tree(job.judge)->grower->info.id.pid, 1000);
    judge_free_with_run(job.judge);
}

static void steps_of_a_second_rank_do_not_advance_the_step_count(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    event(&job, PROCESS_BORN, 1, ROLE_MAIN);
    for (uint64_t step = 0; step < 120; step++) {
        tick_begin(&job);
        put_process(&job, 0, 300 * MIB + step * 5 * MIB, 0, 0);
        put_process(&job, 1, 300 * MIB, 0, 0);
        tick_end(&job, NS_PER_S);
        mark_step(&job, 1000, step);
        mark_step(&job, 1001, 1000 + 7 * step);
    }
    judge_update(job.judge);
    double rate = result_of(job.judge, 1000).rate_bytes_per_step.value;
    assert_true(rate > 4.5 * (double)MIB && rate < 5.5 * (double)MIB);
    judge_free_with_run(job.judge);
}

static void training_restarted_within_one_process_is_judged_anew(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 100, 10 * MIB, 200);
    mark_text(&job, 1000, "KIND=end\n");
    mark_text(&job, 1000, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=40\n");
    for (uint64_t step = 1; step <= 100; step++) {
        tick_begin(&job);
        put_machine(&job, 1800 * MIB, 2000 * MIB);
        put_process(&job, 0, 1300 * MIB, 50 * MIB, 0);
        tick_end(&job, NS_PER_S);
        mark_step(&job, 1000, step);
    }
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_STABLE);
    judge_free_with_run(job.judge);
}

static void limit_is_set_in_bytes_or_as_a_percentage_of_host_memory(void **state)
{
    const struct judge_options given = {.has_limit = true, .limit = {.bytes = 8 * 1024 * MIB}};
    const struct judge_options half = {.has_limit = true,
                                       .limit = {.is_percent = true, .permyriad = 5000}};
    struct job a = job_begin(&given), b = job_begin(&half);
    (void)state;
    train(&a, 160, 10 * MIB, 160);
    train(&b, 160, 10 * MIB, 160);
    judge_update(a.judge);
    judge_update(b.judge);
    assert_int_equal(judge_tree(a.judge)->result.oom.limit_bytes, 8 * 1024 * MIB);
    assert_int_equal(judge_tree(b.judge)->result.oom.limit_bytes, 32 * 1024 * MIB);
    judge_free_with_run(a.judge);
    judge_free_with_run(b.judge);
}

static void gpu_is_judged_only_after_the_job_has_used_that_gpu(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    (void)state;
    for (uint64_t i = 0; i < 120; i++) {
        struct sample used = {0}, idle = {0};
        sample_put(&used, GPU_TOTAL, 80 * 1024 * MIB);
        sample_put(&used, GPU_USED, 9 * 1024 * MIB);
        sample_put(&used, GPU_JOB, i < 10 ? 0 : 8 * 1024 * MIB);
        sample_put(&idle, GPU_JOB, 0);
        tick_begin(&job);
        put(&job, ENTITY_GPU, 0, &idle);
        put(&job, ENTITY_GPU, 1, &used);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    const struct run_entity *gpu = next_judged(job.judge, RUN_GPU, &at);
    assert_non_null(gpu);
    if (!gpu)
        return;
    assert_int_equal(gpu->id, 1);
    assert_int_equal(judge_result(gpu)->word, VERDICT_STABLE);
    assert_int_equal(judge_result(gpu)->samples, 110 - TAIL_S);
    assert_null(next_judged(job.judge, RUN_GPU, &at));
    judge_free_with_run(job.judge);
}

/* Returns the lower bound, in seconds, of the forecast time until a GPU of 80 GiB is full. PyTorch
 * has reserved 70 GiB, allocates 20 MiB/s without freeing it, and has a peak of PEAK_BYTES
 * allocated. */
static double gpu_full_in_s(uint64_t peak_bytes)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    for (uint64_t i = 0; i < 600; i++) {
        struct sample s = {0};
        sample_put(&s, GPU_TOTAL, 80 * 1024 * MIB);
        sample_put(&s, GPU_USED, 70 * 1024 * MIB);
        sample_put(&s, GPU_JOB, 70 * 1024 * MIB);
        sample_put(&s, GPU_ALLOCATED, 1024 * MIB + i * 20 * MIB);
        sample_put(&s, GPU_RESERVED, 70 * 1024 * MIB);
        sample_put(&s, GPU_PEAK, peak_bytes);
        tick_begin(&job);
        put(&job, ENTITY_GPU, 0, &s);
        tick_end(&job, NS_PER_S);
    }
    judge_update(job.judge);
    const struct run_entity *gpu = next_judged(job.judge, RUN_GPU, &at);
    assert_non_null(gpu);
    double left_s = gpu && judge_result(gpu)->oom.known ? judge_result(gpu)->oom.eta_s_low : 0;
    judge_free_with_run(job.judge);
    return left_s;
}

static void gpu_forecast_treats_cached_memory_as_free(void **state)
{
    (void)state;
    double full_s = gpu_full_in_s(70 * 1024 * MIB), cached_s = gpu_full_in_s(20 * 1024 * MIB);
    assert_in_range((int)full_s, 400, 520);     /* 10 GiB at 20 MiB/s */
    assert_in_range((int)cached_s, 2700, 3080); /* 60 GiB */
}

static void reported_metrics_in_bytes_have_their_own_verdicts(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    (void)state;
    job.has_figures = true;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    const struct run_entity *heap = next_judged(job.judge, RUN_FIGURE, &at);
    const struct run_entity *cuda = next_judged(job.judge, RUN_FIGURE, &at);
    assert_non_null(heap);
    assert_non_null(cuda);
    /* a metric that is a count or is unused gets no verdict */
    assert_null(next_judged(job.judge, RUN_FIGURE, &at));
    assert_string_equal(heap->name, "heap_live_bytes");
    assert_string_equal(judge_figure_label(heap), "heap (live)");
    assert_int_equal(heap->info.id.pid, 1000);
    assert_int_equal(judge_result(heap)->word, VERDICT_LEAKING);
    assert_true(judge_result(heap)->rate_bytes_per_step.value > 9.5 * (double)MIB);
    assert_true(judge_result(heap)->rate_bytes_per_step.value < 10.5 * (double)MIB);
    assert_true(judge_result(heap)->oom.known);
    assert_int_equal(judge_result(cuda)->word, VERDICT_STABLE);
    judge_free_with_run(job.judge);
}

static void job_that_fills_a_limited_container_is_judged_filling(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    (void)state;
    job.has_figures = true;
    job.container_limit = 1000;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_FILLING);
    const struct verdict_result *r = &judge_tree(job.judge)->result;
    assert_int_equal(r->word, VERDICT_FILLING);
    assert_int_equal(r->leak, VERDICT_LEAK_UNKNOWN);
    assert_true(r->forecast.is_limited);
    const struct run_entity *heap = next_judged(job.judge, RUN_FIGURE, &at);
    assert_string_equal(heap->name, "heap_live_bytes");
    assert_int_equal(judge_result(heap)->word, VERDICT_FILLING);
    judge_free_with_run(job.judge);
}

static void unlimited_list_beside_a_limited_container_is_a_leak(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    job.has_figures = job.has_list = true;
    job.container_limit = 1000;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_LEAKING);
    judge_free_with_run(job.judge);
}

static void container_too_large_for_the_memory_limit_is_a_leak(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    job.container_limit = 100000; /* entries for 1 TB, on a machine with 64 GiB */
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_LEAKING);
    judge_free_with_run(job.judge);
}

static void memory_retained_by_malloc_is_not_a_leak(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    job.has_figures = job.is_spare = true;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    assert_int_equal(word_of(job.judge, 1000), VERDICT_UNDECIDED);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_UNDECIDED);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.word, VERDICT_UNDECIDED);
    judge_free_with_run(job.judge);
}

static void metric_first_reported_late_is_judged_with_epochs_of_the_job(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    (void)state;
    job.has_figures = true;
    job.figures_from = 4;
    train(&job, 160, 10 * MIB, 40);
    judge_update(job.judge);
    const struct run_entity *heap = next_judged(job.judge, RUN_FIGURE, &at);
    assert_non_null(heap);
    assert_int_equal(judge_result(heap)->word, VERDICT_PLATEAUED);
    assert_int_equal(judge_result(heap)->growth_ended.at, VERDICT_AT_FIRST_EPOCH);
    assert_int_equal(judge_result(heap)->growth_ended.step, 40);
    judge_free_with_run(job.judge);
}

static void malformed_verdict_json_is_read_as_unknown(void **state)
{
    struct verdicts v = {0};
    json_t *doc =
        json_pack("{s:{s:i,s:s,s:[i],s:[{},i]},s:[i,{s:s}],s:s}", "tree", "verdict", 3, "grower",
                  "x", "evidence", 1, "flat", 2, "processes", 4, "pid", "one", "gpus", "none");
    (void)state;
    assert_int_equal(verdicts_read(NULL, &v), -EINVAL);
    assert_int_equal(verdicts_read(doc, &v), 0);
    assert_true(v.has_job && !v.has_grower && v.n_flat == 0 && v.job.n_reasons == 0);
    assert_int_equal(v.job.result.word, VERDICT_UNDECIDED);
    assert_int_equal(v.processes.count, 1);
    assert_false(v.processes.at[0].has_pid);
    verdicts_fini(&v);
    json_decref(doc);
}

static void leak_before_a_restart_is_kept_in_the_verdict(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 160);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    assert_false(job.judge->earlier_leak.is_known);
    judge_take_note(job.judge, "segment", "{}");
    judge_take_note(job.judge, "segment", "{}");
    const struct judge_earlier *leak = &job.judge->earlier_leak;
    assert_int_equal(job.judge->segment, 2);
    assert_true(leak->is_known);
    assert_int_equal(leak->segment, 0);
    assert_int_equal(leak->result.word, VERDICT_LEAKING);
    json_t *doc = judge_json(job.judge);
    const json_t *told = json_object_get(doc, "earlier_leak");
    assert_string_equal(json_string_value(json_object_get(told, "verdict")), "leaking");
    assert_true(json_is_object(json_object_get(told, "rate_bytes_per_step")));
    assert_reads_back(doc);
    json_decref(doc);
    judge_free_with_run(job.judge);
}

/* The guard restarts a leaking job, which then finishes within a few steps. */
static void leak_before_a_restart_outweighs_a_short_last_segment(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 160);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_take_note(job.judge, "segment", "{}");
    train(&job, 4, 10 * MIB, 4);
    judge_update(job.judge);
    const struct verdict_result *r = &judge_tree(job.judge)->result;
    assert_int_equal(r->word, VERDICT_LEAKING);
    assert_int_equal(r->evidence[0].code, VERDICT_SAID_SEGMENT);
    judge_free_with_run(job.judge);
}

static void long_flat_segment_outweighs_a_short_leak_before_a_restart(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 160);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_take_note(job.judge, "segment", "{}");
    train(&job, 400, 0, 400);
    judge_update(job.judge);
    assert_int_equal(judge_tree(job.judge)->result.leak, VERDICT_LEAK_NO);
    judge_free_with_run(job.judge);
}

static void reported_metric_keeps_its_verdict_after_process_exit(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0;
    (void)state;
    job.has_figures = true;
    train(&job, 160, 10 * MIB, 160);
    event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    judge_update(job.judge);
    const struct run_entity *heap = next_judged(job.judge, RUN_FIGURE, &at);
    if (heap &&
        /* metrics of exited processes are in no particular order, so either may come first */
        strcmp(heap->name, "heap_live_bytes") != 0)
        heap = next_judged(job.judge, RUN_FIGURE, &at);
    assert_true(heap && heap->is_dead);
    assert_int_equal(judge_result(heap)->word, VERDICT_LEAKING);
    judge_take_note(job.judge, "segment", "{}");
    at = 0;
    assert_null(next_judged(job.judge, RUN_FIGURE, &at));
    judge_free_with_run(job.judge);
}

static void new_metrics_take_series_of_exited_processes_if_none_is_free(void **state)
{
    struct job job = job_begin(NULL);
    size_t at = 0, count = 0;
    char name[32];
    (void)state;
    event(&job, PROCESS_BORN, 0, ROLE_MAIN);
    for (uint32_t round = 0; round < 2; round++) {
        tick_begin(&job);
        for (uint32_t i = round; i < JUDGE_FIGURES + 5; i++) {
            snprintf(name, sizeof name, "x%u_bytes@%u", i, 1000 + i);
            put_series(&job, i, name, 100 * MIB);
        }
        tick_end(&job, NS_PER_S);
        if (round == 0)
            event(&job, PROCESS_DIED, 0, ROLE_MAIN);
    }
    judge_update(job.judge);
    for (const struct run_entity *s; (s = next_judged(job.judge, RUN_FIGURE, &at)); count++)
        assert_true(strcmp(s->name, "x0_bytes") != 0);
    assert_int_equal(count, JUDGE_FIGURES);
    judge_free_with_run(job.judge);
}

static void job_without_memory_readings_gets_no_verdict(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    judge_update(job.judge);
    assert_null(judge_tree(job.judge));
    json_t *doc = judge_json(job.judge);
    assert_true(json_is_null(json_object_get(doc, "tree")));
    json_decref(doc);
    judge_free_with_run(job.judge);
}

static size_t changes_seen;
static void on_change(void *user, const struct run_entity *p, enum verdict_word from,
                      const struct verdict_result *now)
{
    (void)user;
    (void)p;
    assert_true(from != now->word);
    changes_seen++;
}

static void each_change_of_the_verdict_word_is_reported_once(void **state)
{
    struct job job = job_begin(NULL);
    (void)state;
    train(&job, 160, 10 * MIB, 160);
    judge_update(job.judge);
    changes_seen = 0;
    judge_changes(job.judge, on_change, NULL);
    /* the verdict words of the tree, the trainer and the worker changed once each */
    assert_int_equal(changes_seen, 3);
    judge_update(job.judge);
    judge_changes(job.judge, on_change, NULL);
    assert_int_equal(changes_seen, 3);
    judge_free_with_run(job.judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leak_after_the_first_epoch_names_the_growing_process),
        cmocka_unit_test(job_that_grows_within_the_first_epoch_is_judged_filling),
        cmocka_unit_test(job_whose_growth_ends_with_first_epoch_is_judged_plateaued),
        cmocka_unit_test(recording_gives_the_same_verdict_as_the_live_run),
        cmocka_unit_test(memory_drop_of_an_exiting_process_changes_no_verdict),
        cmocka_unit_test(memory_drop_of_a_running_process_changes_its_verdict),
        cmocka_unit_test(readings_held_back_for_a_mark_are_judged_if_process_exits),
        cmocka_unit_test(growing_mapped_page_cache_is_judged_stable),
        cmocka_unit_test(newly_mapped_files_are_not_judged_as_a_memory_spike),
        cmocka_unit_test(readings_are_judged_again_after_mapped_file_size_is_known),
        cmocka_unit_test(growth_of_swapped_out_memory_is_judged_leaking),
        cmocka_unit_test(readings_before_the_first_status_reading_are_not_judged),
        cmocka_unit_test(exec_in_a_process_starts_a_new_memory_series),
        cmocka_unit_test(only_the_largest_of_thousands_of_processes_are_judged),
        cmocka_unit_test(list_of_verdicts_stays_valid_after_processes_exit),
        cmocka_unit_test(verdict_on_the_job_is_kept_after_the_largest_process_exits),
        cmocka_unit_test(steps_of_a_second_rank_do_not_advance_the_step_count),
        cmocka_unit_test(training_restarted_within_one_process_is_judged_anew),
        cmocka_unit_test(limit_is_set_in_bytes_or_as_a_percentage_of_host_memory),
        cmocka_unit_test(gpu_is_judged_only_after_the_job_has_used_that_gpu),
        cmocka_unit_test(gpu_forecast_treats_cached_memory_as_free),
        cmocka_unit_test(reported_metrics_in_bytes_have_their_own_verdicts),
        cmocka_unit_test(job_that_fills_a_limited_container_is_judged_filling),
        cmocka_unit_test(unlimited_list_beside_a_limited_container_is_a_leak),
        cmocka_unit_test(container_too_large_for_the_memory_limit_is_a_leak),
        cmocka_unit_test(memory_retained_by_malloc_is_not_a_leak),
        cmocka_unit_test(metric_first_reported_late_is_judged_with_epochs_of_the_job),
        cmocka_unit_test(malformed_verdict_json_is_read_as_unknown),
        cmocka_unit_test(leak_before_a_restart_is_kept_in_the_verdict),
        cmocka_unit_test(leak_before_a_restart_outweighs_a_short_last_segment),
        cmocka_unit_test(long_flat_segment_outweighs_a_short_leak_before_a_restart),
        cmocka_unit_test(reported_metric_keeps_its_verdict_after_process_exit),
        cmocka_unit_test(new_metrics_take_series_of_exited_processes_if_none_is_free),
        cmocka_unit_test(job_without_memory_readings_gets_no_verdict),
        cmocka_unit_test(each_change_of_the_verdict_word_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
