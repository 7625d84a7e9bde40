/* Tests planning with small hand-made cases, and with simulated days of random jobs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "server/jobs/plan.h"

enum { GIB = 1 << 30 };

static uint64_t gib(unsigned n)
{
    return (uint64_t)n * GIB;
}

static void plan_starts_one_job_at_a_time_even_if_several_fit(void **state)
{
    (void)state;
    struct plan_room room = {.slots = 4};
    struct plan_job jobs[4] = {{.waits = true}};
    struct plan_verdict v[4];
    plan_next(&room, jobs, 4, v);
    assert_int_equal(v[0].why, PLAN_WAITS_AFTER);
    assert_int_equal(v[1].why, PLAN_STARTS);
    assert_int_equal(v[2].why, PLAN_WAITS_TURN);
    assert_int_equal(v[3].why, PLAN_WAITS_TURN);
}

static void small_job_may_overtake_a_job_that_waits_for_a_gpu(void **state)
{
    (void)state;
    struct plan_room room = {.slots = 3,
                             .memory_bytes = gib(32),
                             .gpus = 2,
                             .slots_used = 1,
                             .memory_used = gib(8),
                             .gpus_used = 1};
    struct plan_job jobs[] = {
        {.gpus = 2, .memory_bytes = gib(8)}, {.memory_bytes = gib(16)}, {.memory_bytes = gib(17)}};
    struct plan_verdict v[3];
    plan_next(&room, jobs, 2, v);
    assert_int_equal(v[0].why, PLAN_WAITS_GPU);
    /* 24 GiB are free, of which 8 GiB are reserved for the first job. */
    assert_int_equal(v[1].why, PLAN_STARTS);
    jobs[1].memory_bytes = gib(17);
    plan_next(&room, jobs, 2, v);
    assert_int_equal(v[1].why, PLAN_WAITS_TURN);
}

static void free_memory_is_reserved_for_a_job_that_waits_for_memory(void **state)
{
    (void)state;
    struct plan_room room = {
        .slots = 8, .memory_bytes = gib(32), .slots_used = 1, .memory_used = gib(16)};
    struct plan_job jobs[] = {{.memory_bytes = gib(24)}, {.memory_bytes = 1}, {.gpus = 0}};
    struct plan_verdict v[3];
    plan_next(&room, jobs, 3, v);
    assert_int_equal(v[0].why, PLAN_WAITS_MEMORY);
    assert_int_equal(v[1].why, PLAN_WAITS_TURN);
    assert_int_equal(v[2].why, PLAN_STARTS); /* A job with unknown memory may start. */
}

static void job_that_waits_for_others_or_never_fits_reserves_nothing(void **state)
{
    (void)state;
    struct plan_room room = {.slots = 1, .memory_bytes = gib(32), .gpus = 1};
    struct plan_job jobs[] = {{.waits = true, .gpus = 1},
                              {.gpus = 2},
                              {.memory_bytes = gib(33)},
                              {.gpus = 1, .memory_bytes = gib(32)}};
    struct plan_verdict v[4];
    plan_next(&room, jobs, 4, v);
    assert_int_equal(v[0].why, PLAN_WAITS_AFTER);
    assert_int_equal(v[1].why, PLAN_NEVER);
    assert_int_equal(v[2].why, PLAN_NEVER);
    assert_int_equal(v[3].why, PLAN_STARTS);
    assert_int_equal(v[3].gpus, 1);
}

static void no_job_starts_while_used_resources_exceed_the_limits(void **state)
{
    (void)state; /* The server was restarted with fewer slots and less memory. */
    struct plan_room room = {.slots = 1,
                             .memory_bytes = gib(4),
                             .gpus = 1,
                             .slots_used = 3,
                             .memory_used = gib(9),
                             .gpus_used = 7};
    struct plan_job job = {.gpus = 0};
    struct plan_verdict v;
    plan_next(&room, &job, 1, &v);
    assert_int_equal(v.why, PLAN_WAITS_SLOT);
    room.slots = 4;
    job.gpus = 1;
    plan_next(&room, &job, 1, &v);
    assert_int_equal(v.why, PLAN_WAITS_GPU);
    job.gpus = 0;
    job.memory_bytes = 1;
    plan_next(&room, &job, 1, &v);
    assert_int_equal(v.why, PLAN_WAITS_MEMORY);
}

static void one_job_can_use_64_gpus(void **state)
{
    (void)state;
    struct plan_room room = {.slots = 1, .gpus = 64};
    struct plan_job job = {.gpus = 64};
    struct plan_verdict v;
    plan_next(&room, &job, 1, &v);
    assert_int_equal(v.why, PLAN_STARTS);
    assert_true(v.gpus == UINT64_MAX);
    plan_next(&room, NULL, 0, NULL);
}

static void reason_for_waiting_contains_requested_and_free_resources(void **state)
{
    (void)state;
    struct plan_room room = {.slots = 2,
                             .memory_bytes = gib(58),
                             .gpus = 4,
                             .slots_used = 1,
                             .memory_used = gib(47),
                             .gpus_used = 7};
    struct plan_job job = {.memory_bytes = gib(24), .gpus = 2};
    struct plan_verdict v;
    char text[128];
    plan_next(&room, &job, 1, &v);
    plan_sentence(&room, &job, &v, text, sizeof(text));
    assert_string_equal(text, "waits for memory: needs 24.0 GiB (free: 11.0 GiB of 58.0 GiB)");
    v.why = PLAN_WAITS_GPU;
    plan_sentence(&room, &job, &v, text, sizeof(text));
    assert_string_equal(text, "waits for GPUs: needs 2 (free: 1 of 4)");
    v.why = PLAN_NEVER;
    job.gpus = 5;
    plan_sentence(&room, &job, &v, text, sizeof(text));
    assert_string_equal(text, "can never start: it needs 5 GPUs, and the server has 4");
    for (v.why = PLAN_STARTS; v.why <= PLAN_NEVER; v.why++) {
        text[0] = '\0';
        plan_sentence(&room, &job, &v, text, sizeof(text));
        assert_true(strlen(text) > 5);
    }
}

/* ---- a simulated day ---- */

enum { JOBS = 400, TICKS = 200000 };

struct day {
    struct plan_room room;
    struct plan_job jobs[JOBS];
    unsigned life[JOBS]; /* Run time of each job in ticks. */
    uint64_t gpus[JOBS]; /* GPUs assigned to each job, one bit each */
    enum { COMING, WAITING, RUNNING, OVER } is[JOBS];
    int head;               /* Index of the first job of the queue. */
    bool before_head[JOBS]; /* True if the job was running when HEAD became the first job of the
                               queue. */
    uint32_t seed;
};

static unsigned pick(struct day *d, unsigned below)
{
    d->seed = d->seed * 1664525 + 1013904223;
    return (d->seed >> 8) % below;
}

static void begin(struct day *d, uint32_t seed)
{
    memset(d, 0, sizeof(*d));
    d->seed = seed;
    d->head = -1;
    d->room = (struct plan_room){.slots = 1 + pick(d, 6), .gpus = pick(d, 9)};
    d->room.memory_bytes = pick(d, 4) ? gib(8 + pick(d, 64)) : 0;
    for (int i = 0; i < JOBS; i++) {
        unsigned most = d->room.memory_bytes ? (unsigned)(d->room.memory_bytes / GIB) : 64;
        d->jobs[i] = (struct plan_job){0};
        /* Most jobs are small, and some need all resources. */
        d->jobs[i].memory_bytes = gib(pick(d, 10) ? pick(d, 1 + most / 4) : pick(d, most + 1));
        d->jobs[i].gpus = pick(d, 10) ? pick(d, 1 + d->room.gpus / 3) : pick(d, d->room.gpus + 1);
        d->life[i] = 1 + pick(d, 30);
    }
}

static void check_room(const struct day *d)
{
    uint64_t memory = 0, gpus = 0;
    unsigned slots = 0;
    for (int i = 0; i < JOBS; i++) {
        if (d->is[i] != RUNNING)
            continue;
        slots++;
        memory += d->jobs[i].memory_bytes;
        assert_int_equal(gpus & d->gpus[i], 0); /* No GPU is shared by two jobs. */
        gpus |= d->gpus[i];
        assert_int_equal(__builtin_popcountll(d->gpus[i]), d->jobs[i].gpus);
    }
    assert_true(slots <= d->room.slots);
    assert_true(!d->room.memory_bytes || memory <= d->room.memory_bytes);
    assert_int_equal(gpus >> d->room.gpus, 0);
}

/* Checks that the first job of the queue starts at the latest when all jobs have ended that were
 * running when it became the first. */
static void check_head(struct day *d)
{
    int head = 0;
    while (head < JOBS && d->is[head] != WAITING)
        head++;
    if (head == JOBS)
        return;
    if (head != d->head) {
        d->head = head;
        for (int i = 0; i < JOBS; i++)
            d->before_head[i] = d->is[i] == RUNNING;
        return;
    }
    for (int i = 0; i < JOBS; i++) {
        if (d->before_head[i] && d->is[i] == RUNNING)
            return;
    }
    fail_msg(
        "job %d is the first of the queue and still waits, although all earlier jobs have ended",
        head + 1);
}

static bool start_one(struct day *d)
{
    struct plan_job queue[JOBS];
    struct plan_verdict verdicts[JOBS];
    int index[JOBS];
    size_t n = 0, started = 0;
    for (int i = 0; i < JOBS; i++) {
        if (d->is[i] != WAITING)
            continue;
        index[n] = i;
        queue[n++] = d->jobs[i];
    }
    plan_next(&d->room, queue, n, verdicts);
    for (size_t i = 0; i < n; i++) {
        if (verdicts[i].why != PLAN_STARTS)
            continue;
        int job = index[i];
        started++;
        d->is[job] = RUNNING;
        d->gpus[job] = verdicts[i].gpus;
        d->room.slots_used++;
        d->room.memory_used += queue[i].memory_bytes;
        d->room.gpus_used |= verdicts[i].gpus;
    }
    assert_true(started <= 1);
    return started == 1;
}

static void end_some(struct day *d)
{
    for (int i = 0; i < JOBS; i++) {
        if (d->is[i] != RUNNING || --d->life[i] > 0)
            continue;
        d->is[i] = OVER;
        d->room.slots_used--;
        d->room.memory_used -= d->jobs[i].memory_bytes;
        d->room.gpus_used &= ~d->gpus[i];
    }
}

static void simulated_queue_respects_limits_and_starts_every_job(void **state)
{
    (void)state;
    static struct day d;
    for (uint32_t seed = 1; seed <= 150; seed++) {
        int over = 0;
        unsigned come = 0;
        begin(&d, seed);
        for (int tick = 0; tick < TICKS && over < JOBS; tick++) {
            for (unsigned n = pick(&d, 3); n > 0 && come < JOBS; n--)
                d.is[come++] = WAITING;
            while (start_one(&d))
                check_room(&d);
            check_head(&d);
            end_some(&d);
            over = 0;
            for (int i = 0; i < JOBS; i++)
                over += d.is[i] == OVER;
        }
        assert_int_equal(over, JOBS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_starts_one_job_at_a_time_even_if_several_fit),
        cmocka_unit_test(small_job_may_overtake_a_job_that_waits_for_a_gpu),
        cmocka_unit_test(free_memory_is_reserved_for_a_job_that_waits_for_memory),
        cmocka_unit_test(job_that_waits_for_others_or_never_fits_reserves_nothing),
        cmocka_unit_test(no_job_starts_while_used_resources_exceed_the_limits),
        cmocka_unit_test(one_job_can_use_64_gpus),
        cmocka_unit_test(reason_for_waiting_contains_requested_and_free_resources),
        cmocka_unit_test(simulated_queue_respects_limits_and_starts_every_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
