/* Tests workers that exit with each epoch and are replaced. Replaced workers release their memory,
 * so the tree is judged by the remaining processes and by the sum over all processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#include "judged_run.h"

static const uint64_t MIB = 1 << 20;
enum { MAIN = 1000, EPOCH_STEPS = 32, A_SECOND = 4 };

/* A parent in slot 0 that starts two new workers for each epoch of eight seconds. */
struct job {
    struct judge *judge;
    uint64_t t_ns;
    enum process_role parent, child;
    uint64_t load_s; /* Seconds until the parent reaches its final size. */
    /* additional memory of each pair of workers compared with the previous pair */
    uint64_t higher;
    uint64_t first;         /* Additional memory of the first pair of workers. */
    uint64_t last_epochs;   /* number of epochs that the last pair lives; 0 means one */
    uint64_t parent_growth; /* growth of the parent per reading */
    bool has_marks;
    uint64_t step, parent_bytes;
};

static void put_process(struct job *job, uint32_t slot, uint64_t rss)
{
    struct sample s = {0};
    sample_put(&s, SAMPLE_RSS, rss);
    sample_put(&s, SAMPLE_FILE, 0);
    sample_put(&s, SAMPLE_SWAP, 0);
    sample_put(&s, SAMPLE_UNIQUE, slot ? 20 * MIB : rss);
    run_sample(job->judge->run, ENTITY_PROCESS, slot, NULL, &s);
}

static void mark(struct job *job, const char *text)
{
    struct mark m;
    assert_int_equal(mark_parse(text, strlen(text), &m), 0);
    m.t_ns = job->t_ns;
    m.pid = MAIN;
    if (job->has_marks)
        run_add_mark(job->judge->run, &m);
}

/* Adds a reading of the parent and, if SLOT is not 0, of the workers in SLOT and SLOT + 1, each
 * with GROWN bytes of its own. */
static void reading(struct job *job, uint32_t slot, uint64_t begun, uint64_t grown)
{
    struct sample machine = {0};
    sample_put(&machine, MACHINE_TREE_LOW, job->parent_bytes + (slot ? 2 * grown : 0));
    run_tick_begin(job->judge->run, job->t_ns);
    run_sample(job->judge->run, ENTITY_MACHINE, 0, NULL, &machine);
    put_process(job, 0, job->parent_bytes);
    for (uint32_t i = 0; slot && i < 2; i++)
        put_process(job, slot + i, begun + grown);
    run_tick_end(job->judge->run);
    job->t_ns += NS_PER_S / A_SECOND;
    job->parent_bytes += job->parent_growth;
}

static void event(struct job *job, enum process_event_kind kind, uint32_t slot)
{
    struct process_info info = {.id = {.pid = MAIN + (int32_t)slot, .start_ticks = 7},
                                .ppid = slot ? MAIN : 1,
                                .role = slot ? job->child : job->parent};
    run_process(job->judge->run, job->t_ns, kind, slot, &info);
}

static void begin(struct job *job)
{
    job->judge = judge_with_run(NULL);
    job->t_ns = NS_PER_S;
    event(job, PROCESS_BORN, 0);
    for (uint64_t i = 1; i <= job->load_s * A_SECOND; i++) {
        job->parent_bytes = 20 * MIB + 180 * MIB * i / (job->load_s * A_SECOND);
        reading(job, 0, 0, 0);
    }
    mark(job, "KIND=begin\nSTEP=0\nSTEPS_PER_EPOCH=32\n");
}

static void epoch(struct job *job, uint32_t slot, uint64_t begun, uint64_t grown)
{
    for (uint64_t i = 0; i < EPOCH_STEPS; i++) {
        char text[48];
        reading(job, slot, begun, grown + i * MIB);
        snprintf(text, sizeof text, "KIND=step\nSTEP=%llu\n", (unsigned long long)++job->step);
        mark(job, text);
    }
    mark(job, "KIND=epoch\n");
}

/* Runs EPOCHS pairs of workers one after another; the last pair stays alive. */
static void train(struct job *job, uint64_t epochs)
{
    begin(job);
    for (uint64_t k = 0; k < epochs; k++) {
        uint32_t slot = (uint32_t)(1 + 2 * k);
        uint64_t begun = 200 * MIB + k * job->higher + (k ? 0 : job->first);
        event(job, PROCESS_BORN, slot);
        event(job, PROCESS_BORN, slot + 1);
        epoch(job, slot, begun, 0);
        for (uint64_t i = 1; k + 1 == epochs && i < job->last_epochs; i++)
            epoch(job, slot, begun, i * EPOCH_STEPS * MIB);
        if (k + 1 == epochs)
            break;
        event(job, PROCESS_DIED, slot);
        event(job, PROCESS_DIED, slot + 1);
        reading(job, 0, 0, 0);
    }
    judge_update(job->judge);
}

static void end(struct job *job, uint32_t slot)
{
    static const char text[] = "{\"kind\":\"exited\",\"status\":0,\"cause_kind\":\"finished\"}";
    event(job, PROCESS_DIED, slot);
    event(job, PROCESS_DIED, slot + 1);
    event(job, PROCESS_DIED, 0);
    judge_take_note(job->judge, "end", text);
    judge_update(job->judge);
}

static struct job usual(bool has_marks)
{
    return (struct job){.parent = ROLE_MAIN,
                        .child = ROLE_DATA_WORKER,
                        .load_s = has_marks ? 4 : 16,
                        .has_marks = has_marks};
}

static enum verdict_word word(const struct job *job)
{
    return judge_tree(job->judge)->result.word;
}

static enum verdict_word word_of(const struct job *job, int32_t pid)
{
    for (size_t i = 0; i < job->judge->listed_count; i++)
        if (job->judge->listed[i]->info.id.pid == pid)
            return result_at(job->judge, i)->word;
    fail_msg("no process %d", (int)pid);
    return VERDICT_UNDECIDED;
}

static void job_is_judged_filling_while_the_first_data_workers_grow(void **state)
{
    struct job job = usual(true);
    (void)state;
    train(&job, 1);
    assert_int_equal(word(&job), VERDICT_FILLING);
    judge_free_with_run(job.judge);
}

static void job_does_not_grow_if_workers_are_replaced_by_equal_ones(void **state)
{
    struct job job = usual(true);
    (void)state;
    train(&job, 4);
    assert_int_equal(word_of(&job, MAIN + 7), VERDICT_FILLING);
    assert_int_not_equal(word(&job), VERDICT_FILLING);
    assert_int_equal(judge_tree(job.judge)->result.leak, VERDICT_LEAK_NO);
    assert_null(judge_tree(job.judge)->grower);
    /* Replaced workers have exited and use no memory. */
    assert_int_equal(judge_tree(job.judge)->of.n_flat, 2);
    for (size_t i = 0; i < 2; i++)
        if (judge_tree(job.judge)->of.flat[i].role == ROLE_DATA_WORKER)
            assert_int_equal(judge_tree(job.judge)->of.flat[i].count, 2);
    judge_free_with_run(job.judge);
}

static void job_leaks_if_workers_are_replaced_by_ever_larger_ones(void **state)
{
    struct job job = usual(true);
    (void)state;
    job.higher = 30 * MIB;
    train(&job, 4);
    assert_int_equal(word(&job), VERDICT_FILLING);
    assert_non_null(judge_tree(job.judge)->grower);
    judge_free_with_run(job.judge);
}

static void replacement_workers_that_live_long_are_judged(void **state)
{
    struct job job = usual(true);
    (void)state;
    job.first = 200 * MIB; /* the first workers belong to a data loader that is no longer used */
    job.last_epochs = 4;
    train(&job, 2);
    assert_int_equal(word(&job), VERDICT_LEAKING);
    assert_non_null(judge_tree(job.judge)->grower);
    judge_free_with_run(job.judge);
}

static void process_restarted_by_a_launcher_is_not_a_replaced_worker(void **state)
{
    struct job job = usual(true);
    (void)state;
    job.parent = ROLE_LAUNCHER;
    train(&job, 3);
    assert_int_equal(word(&job), VERDICT_FILLING);
    judge_free_with_run(job.judge);
}

/* Workers share the pages of their parent, so their RSS is as large as the parent's. When they
 * exit, the series of the job's memory must continue without a drop. */
static void memory_series_of_the_job_continues_when_large_workers_exit(void **state)
{
    struct job job = usual(false);
    (void)state;
    train(&job, 4);
    end(&job, 7);
    assert_int_equal(judge_tree(job.judge)->result.leak, VERDICT_LEAK_NO);
    assert_true(judge_tree(job.judge)->result.samples > 5 * EPOCH_STEPS);
    judge_free_with_run(job.judge);
}

static void leak_of_the_parent_is_found_although_workers_are_replaced(void **state)
{
    struct job job = usual(false);
    (void)state;
    job.load_s = 3;
    job.parent_growth = 2 * MIB;
    train(&job, 4);
    end(&job, 7);
    assert_int_equal(word(&job), VERDICT_LEAKING);
    assert_int_equal(judge_tree(job.judge)->grower->info.id.pid, MAIN);
    judge_free_with_run(job.judge);
}

/* The only process of the training exits 20 s before the job ends. Memory that the launcher uses
 * after that is not added to the job's series, so growth up to the exit did not last to the end of
 * the job. */
static void growth_that_ended_when_the_process_exited_is_not_a_leak(void **state)
{
    struct job job = usual(false);
    static const char text[] = "{\"kind\":\"exited\",\"status\":0,\"cause_kind\":\"finished\"}";
    struct process_info shell = {.id = {.pid = 900, .start_ticks = 7}, .role = ROLE_LAUNCHER};
    (void)state;
    begin(&job);
    job.parent_growth = MIB;
    for (int i = 0; i < 25 * A_SECOND; i++)
        reading(&job, 0, 0, 0);
    run_process(job.judge->run, job.t_ns, PROCESS_BORN, 9, &shell);
    event(&job, PROCESS_DIED, 0);
    for (int i = 0; i < 20 * A_SECOND; i++, job.t_ns += NS_PER_S / A_SECOND) {
        struct sample machine = {0};
        sample_put(&machine, MACHINE_TREE_LOW, 5 * MIB);
        run_tick_begin(job.judge->run, job.t_ns);
        run_sample(job.judge->run, ENTITY_MACHINE, 0, NULL, &machine);
        put_process(&job, 9, 5 * MIB);
        run_tick_end(job.judge->run);
    }
    run_process(job.judge->run, job.t_ns, PROCESS_DIED, 9, &shell);
    judge_take_note(job.judge, "end", text);
    judge_update(job.judge);
    assert_int_not_equal(word(&job), VERDICT_LEAKING);
    judge_free_with_run(job.judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_is_judged_filling_while_the_first_data_workers_grow),
        cmocka_unit_test(job_does_not_grow_if_workers_are_replaced_by_equal_ones),
        cmocka_unit_test(job_leaks_if_workers_are_replaced_by_ever_larger_ones),
        cmocka_unit_test(replacement_workers_that_live_long_are_judged),
        cmocka_unit_test(process_restarted_by_a_launcher_is_not_a_replaced_worker),
        cmocka_unit_test(memory_series_of_the_job_continues_when_large_workers_exit),
        cmocka_unit_test(leak_of_the_parent_is_found_although_workers_are_replaced),
        cmocka_unit_test(growth_that_ended_when_the_process_exited_is_not_a_leak),
    };
    return cmocka_run_group_tests_name("judge_replaced", tests, NULL, NULL);
}
