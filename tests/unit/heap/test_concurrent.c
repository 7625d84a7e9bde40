/* Tests threads that concurrently use the tables of live samples and call sites, the sampling
 * interval and the strings. Also built for ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fresh_table.h"

enum { THREADS = 4, ROUNDS = 20000, KEPT = 8, STACKS = 4000 };

#define ARENA UINT64_C(0x7f0000000000)
#define MS UINT64_C(1000000)

/* cmocka's assertions work in the main thread only, so a worker returns an error text. */
struct worker {
    pthread_t thread;
    uint32_t number;
    const char *wrong;
    uint32_t sites[STACKS];
};

static struct worker workers[THREADS];
static _Atomic(bool) is_over;

static pthread_barrier_t gate;
static void *(*work)(void *);
static _Atomic(uint32_t) arrived;

/* All threads start at once; otherwise the first would finish before the last starts. */
static void *through_the_gate(void *argument)
{
    pthread_barrier_wait(&gate);
    return work(argument);
}

static void run_workers(void *(*body)(void *))
{
    work = body;
    atomic_store(&arrived, 0);
    pthread_barrier_init(&gate, NULL, THREADS);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].wrong = NULL;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, through_the_gate, &workers[i]),
                         0);
    }
}

static void join_workers(void)
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&gate);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].wrong)
            fail_msg("thread %d: %s", i, workers[i].wrong);
}

/* This barrier makes operations collide within nanoseconds: the last thread to arrive releases
 * all. */
static void meet(void)
{
    uint32_t mine = atomic_fetch_add(&arrived, 1), all = mine / THREADS * THREADS + THREADS;
    for (int i = 0; (int32_t)(atomic_load(&arrived) - all) < 0; i++)
        if (i % 256 == 255)
            sched_yield();
}

static const void *at(uint64_t address)
{
    return (const void *)(uintptr_t)address;
}

/* ---- live samples ---- */

/* All fields of a sample are derived from its address, so a mixture of two samples is detected. */
static struct live_sample sample_of(uint64_t p)
{
    uint32_t word = (uint32_t)(p * UINT64_C(0x9e3779b97f4a7c15) >> 40);
    return (struct live_sample){.size = p ^ 0x5555,
                                .interval = UINT64_C(512) << 10,
                                .site = word % HEAP_SITES,
                                .born_ms = ~word,
                                .kind = word % 2 ? HEAP_KIND_MALLOC : HEAP_KIND_NEW};
}

static bool is_sample_of(uint64_t p, const struct live_sample *s)
{
    struct live_sample want = sample_of(p);
    return s->size == want.size && s->site == want.site && s->born_ms == want.born_ms &&
           s->kind == want.kind;
}

static uint64_t shared_bit[THREADS * KEPT];

/* Chooses addresses that share one filter bit; each thread has its own addresses. */
static void choose_addresses(void)
{
    uint64_t p = ARENA;
    for (int i = 0; i < THREADS * KEPT; i++) {
        while (live_bit((uintptr_t)p) != live_bit(ARENA))
            p += 16;
        shared_bit[i] = p;
        p += 16;
    }
}

/* Each of four threads has at most two samples at a time, so all samples fit into the bucket. */
static void *churn_one_bit(void *argument)
{
    struct worker *w = argument;
    for (int i = 0; i < ROUNDS && !w->wrong; i++) {
        uint64_t p[2] = {shared_bit[w->number * KEPT + (uint32_t)i % KEPT],
                         shared_bit[w->number * KEPT + ((uint32_t)i + 3) % KEPT]};
        struct live_sample a = sample_of(p[0]), b = sample_of(p[1]), ret;
        if (!live_add(at(p[0]), &a) || !live_add(at(p[1]), &b))
            w->wrong = "a sample was refused although the bucket has room";
        else if (!live_find(at(p[1]), &ret) || !is_sample_of(p[1], &ret))
            w->wrong = "a sample was not found unchanged";
        else if (!live_end(at(p[0]), &ret) || !is_sample_of(p[0], &ret))
            w->wrong = "a sample did not end unchanged";
        else if (!live_end(at(p[1]), &ret) || live_end(at(p[1]), &ret))
            w->wrong = "a sample did not end exactly once";
    }
    /* Each thread leaves its last sample live. */
    uint64_t last = shared_bit[w->number * KEPT];
    struct live_sample s = sample_of(last);
    if (!w->wrong && !live_add(at(last), &s))
        w->wrong = "the last sample was refused";
    return NULL;
}

/* Reads an entry without a lock, as src/profile does from another process. */
static const char *read_live(const struct heap_table *t, uint32_t i)
{
    const struct heap_live *e = &t->live[i];
    uint32_t turn = atomic_load_explicit(&e->kind_turn, memory_order_acquire);
    uint64_t p = atomic_load_explicit(&e->ptr, memory_order_acquire);
    struct live_sample s = {
        .size = atomic_load_explicit(&e->size, memory_order_acquire),
        .site = atomic_load_explicit(&e->site, memory_order_acquire),
        .born_ms = atomic_load_explicit(&e->born_ms, memory_order_acquire),
        .kind = turn & 15,
    };
    if (p == 0 || atomic_load_explicit(&e->ptr, memory_order_acquire) != p ||
        atomic_load_explicit(&e->kind_turn, memory_order_acquire) != turn)
        return NULL;
    return is_sample_of(p, &s) ? NULL : "a reader accepted a mixture of two samples";
}

static void *read_all_live(void *argument)
{
    const char **ret_wrong = argument;
    const struct heap_table *t = heap_process.table;
    while (!atomic_load(&is_over))
        for (uint32_t i = 0; i < atomic_load(&t->header.live_high); i++) {
            const char *wrong = read_live(t, i);
            if (wrong)
                *ret_wrong = wrong;
        }
    return NULL;
}

static void concurrent_samples_with_one_filter_bit_are_all_found(void **state)
{
    pthread_t reader;
    const char *wrong = NULL;
    struct live_sample ret;

    (void)state;
    choose_addresses();
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&reader, NULL, read_all_live, &wrong), 0);
    run_workers(churn_one_bit);
    join_workers();
    atomic_store(&is_over, true);
    pthread_join(reader, NULL);
    if (wrong)
        fail_msg("%s", wrong);
    for (int i = 0; i < THREADS; i++) {
        assert_true(live_maybe(at(shared_bit[i * KEPT])));
        assert_true(live_end(at(shared_bit[i * KEPT]), &ret));
    }
    assert_false(live_maybe(at(ARENA)));
    assert_true(heap_process.table->header.live_high <= 2 * THREADS);
    assert_int_equal(drops(HEAP_DROP_STALE), 0);
}

/* In each round, half of the threads add samples while the other half end samples that they added
 * before. All samples share one filter bit, which must be set at the end because some samples are
 * still live. */
static void *add_against_end(void *argument)
{
    struct worker *w = argument;
    uint64_t p = shared_bit[w->number * KEPT];
    struct live_sample s = sample_of(p), ret;
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        bool adds = (i + w->number) % 2 == 0;
        meet();
        if (adds)
            live_add(at(p), &s);
        else
            live_end(at(p), &ret);
        meet();
        if (adds && (!live_maybe(at(p)) || !live_find(at(p), &ret)))
            w->wrong = "the end of another sample cleared the filter bit";
        meet();
    }
    return NULL;
}

static void filter_bit_stays_set_if_another_sample_ends_concurrently(void **state)
{
    (void)state;
    choose_addresses();
    run_workers(add_against_end);
    join_workers();
}

/* Adds more samples than fit into the table, and thins the table whenever a sample is refused. */
static void *fill_and_thin(void *argument)
{
    struct worker *w = argument;
    uint64_t random = w->number + 1;
    uint64_t arena = ARENA + ((uint64_t)w->number << 40);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t p = arena + (sampler_random(&random) & 0x3ffffffff0);
        struct live_sample s = sample_of(p), ret;
        s.size = 64;
        if (!live_add(at(p), &s))
            live_thin(&random);
        if (i % 3 == 0)
            live_end(at(p), &ret);
    }
    return NULL;
}

static void concurrent_thinning_leaves_every_live_sample_findable(void **state)
{
    const struct heap_table *t = heap_process.table;
    uint32_t n = 0;
    struct live_sample ret;

    (void)state;
    run_workers(fill_and_thin);
    join_workers();
    assert_true(drops(HEAP_DROP_THINNED) > 0);
    for (uint32_t i = 0; i < t->header.live_high; i++) {
        uint64_t p = t->live[i].ptr;
        if (p == 0)
            continue;
        n++;
        assert_true(live_maybe(at(p)));
        assert_true(live_end(at(p), &ret));
    }
    assert_true(n > HEAP_LIVE / 8);
    for (size_t i = 0; i < LIVE_FILTER_BITS / 64; i++)
        assert_true(atomic_load(&live_filter[i]) == 0);
}

static void *map_and_cut(void *argument)
{
    struct worker *w = argument;
    const struct live_sample s = {
        .size = 8 * 4096, .interval = 4096, .site = w->number + 1, .kind = HEAP_KIND_MAP};
    for (int i = 0; i < ROUNDS / 20 && !w->wrong; i++) {
        uint64_t p = ARENA + ((uint64_t)w->number << 30);
        struct live_sample ret;
        if (!live_add(at(p), &s))
            w->wrong = "a mapping was refused";
        live_cut((uintptr_t)p + 4096, 4096);
        if (!live_find(at(p), &ret) || ret.size != 4096 || ret.site != s.site)
            w->wrong = "the part before the cut is missing";
        if (!live_find(at(p + 2 * 4096), &ret) || ret.size != 6 * 4096)
            w->wrong = "the part after the cut is missing";
        live_cut((uintptr_t)p, 8 * 4096);
        if (live_find(at(p), &ret) || live_find(at(p + 2 * 4096), &ret))
            w->wrong = "an unmapped mapping is still live";
    }
    return NULL;
}

static void threads_can_unmap_parts_of_mappings_concurrently(void **state)
{
    (void)state;
    run_workers(map_and_cut);
    join_workers();
    assert_int_equal(heap_process.table->header.ends, 2 * THREADS * (ROUNDS / 20));
}

/* ---- stacks ---- */

static void stack_number(uint32_t i, uint64_t frames[3])
{
    frames[0] = 1 + i % 3;
    frames[1] = 100 + i % 50;
    frames[2] = 1000 + i;
}

static void *add_stacks(void *argument)
{
    struct worker *w = argument;
    for (uint32_t i = 0; i < STACKS; i++) {
        uint64_t frames[3];
        stack_number(i, frames);
        meet();
        w->sites[i] = stacks_site(frames, 3);
        stacks_allocated(w->sites[i], 8, 1);
    }
    return NULL;
}

/* Stacks added by other threads may still be incomplete. */
static void *read_stacks(void *argument)
{
    const char **ret_wrong = argument;
    struct heap_table *t = heap_process.table;
    while (!atomic_load(&is_over)) {
        uint32_t node = atomic_load(&t->header.nodes) - 1;
        if (node && (__atomic_load_n(&t->nodes[node].frame, __ATOMIC_RELAXED) == 0 ||
                     t->nodes[node].parent >= node))
            *ret_wrong = "a node was published before it was complete";
        uint32_t site = atomic_load(&t->header.sites) - 1;
        if (site && __atomic_load_n(&t->sites[site].node, __ATOMIC_RELAXED) == 0)
            *ret_wrong = "a site was published before it was complete";
        sched_yield();
    }
    return NULL;
}

static void threads_with_equal_stacks_get_the_same_call_site(void **state)
{
    const struct heap_table *t = heap_process.table;
    pthread_t reader;
    const char *wrong = NULL;

    (void)state;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&reader, NULL, read_stacks, &wrong), 0);
    run_workers(add_stacks);
    join_workers();
    atomic_store(&is_over, true);
    pthread_join(reader, NULL);
    if (wrong)
        fail_msg("%s", wrong);
    for (uint32_t i = 0; i < STACKS; i++) {
        uint32_t site = workers[0].sites[i];
        for (int k = 1; k < THREADS; k++)
            assert_int_equal(workers[k].sites[i], site);
        assert_int_equal(t->sites[site].samples, THREADS);
        assert_int_equal(t->sites[site].allocated_bytes, 8 * THREADS);
        assert_int_equal(t->nodes[t->sites[site].node].frame, 1000 + i);
    }
    /* All reserved nodes are published once the last thread has finished. */
    uint64_t extra = 1;
    for (uint32_t n = t->header.nodes; n < HEAP_NODES; n++)
        assert_int_equal(t->nodes[n].frame, 0);
    for (uint32_t n = t->header.sites; n < HEAP_SITES; n++)
        assert_int_equal(t->sites[n].node, 0);
    uint32_t last = stacks_site(&extra, 1);
    assert_int_equal(last + 1, t->header.sites);
}

/* ---- sampling interval and strings ---- */

static void *sample_in_a_hurry(void *argument)
{
    struct worker *w = argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct heap_thread *t = &heap_thread;
        uint64_t interval, size = UINT64_C(1) << i % 24;
        t->countdown -= (int64_t)size;
        if (t->countdown >= 0 || !sampler_hit(t, size, &interval))
            continue;
        sampler_adapt(false, 1000 * MS + i * MS / 4);
        if (interval < UINT64_C(512) << 10 || interval > SAMPLER_INTERVAL_MAX)
            w->wrong = "a sample has an impossible interval";
    }
    return NULL;
}

static void threads_can_adapt_the_sampling_interval_concurrently(void **state)
{
    (void)state;
    run_workers(sample_in_a_hurry);
    join_workers();
    assert_true(sampler_interval() > UINT64_C(512) << 10);
    assert_int_equal(sampler_interval() % (UINT64_C(512) << 10), 0);
}

static void *add_texts(void *argument)
{
    struct worker *w = argument;
    uint32_t word[4];
    for (uint32_t i = 0; i < 4; i++)
        word[i] = w->number + 1;
    for (int i = 0; i < ROUNDS / 10; i++)
        if (heap_text_add(heap_process.table, word, sizeof(word)).len != sizeof(word))
            w->wrong = "no room for text";
    return NULL;
}

static void strings_added_concurrently_do_not_overlap(void **state)
{
    const struct heap_table *t = heap_process.table;
    uint32_t counts[THREADS + 1] = {0};

    (void)state;
    run_workers(add_texts);
    join_workers();
    for (uint32_t at_byte = 0; at_byte < t->header.text_bytes; at_byte += 16) {
        uint32_t word[4];
        memcpy(word, t->text + at_byte, sizeof(word));
        assert_in_range(word[0], 1, THREADS);
        assert_true(word[0] == word[1] && word[1] == word[2] && word[2] == word[3]);
        counts[word[0]]++;
    }
    for (int i = 1; i <= THREADS; i++)
        assert_int_equal(counts[i], ROUNDS / 10);
}

#define FRESH(test) cmocka_unit_test_setup_teardown(test, fresh_table, drop_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(concurrent_samples_with_one_filter_bit_are_all_found),
        FRESH(filter_bit_stays_set_if_another_sample_ends_concurrently),
        FRESH(concurrent_thinning_leaves_every_live_sample_findable),
        FRESH(threads_can_unmap_parts_of_mappings_concurrently),
        FRESH(threads_with_equal_stacks_get_the_same_call_site),
        FRESH(threads_can_adapt_the_sampling_interval_concurrently),
        FRESH(strings_added_concurrently_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
