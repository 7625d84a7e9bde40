/* Tests the queue of a viewer that reads slowly or not at all: the queue stays short and contains
 * the newest messages. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/live_queue.h"
#include "server/http/live_private.h"

static int put(struct live_queue *q, enum live_kind kind, int64_t id, const char *text)
{
    struct live_message *m = live_message_new(kind, id, text, strlen(text));
    assert_non_null(m);
    int rc = live_queue_add(q, m);
    live_message_drop(m);
    return rc;
}

/* Checks the payloads of all queued messages, separated by spaces, and empties the queue. */
static void queue_holds(struct live_queue *q, const char *want)
{
    char text[8192] = "";
    struct iovec piece;
    while (live_queue_next(q, &piece, 1) == 1) {
        const uint8_t *frame = piece.iov_base;
        assert_int_equal(frame[0], 0x81);
        assert_int_equal(piece.iov_len, 2 + frame[1]); /* These tests use only short frames. */
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.*s", text[0] ? " " : "",
                 (int)frame[1], (const char *)frame + 2);
        live_queue_written(q, piece.iov_len);
    }
    assert_string_equal(text, want);
    assert_int_equal(q->bytes, 0);
}

static void websocket_frame_header_depends_on_payload_length(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint8_t head[10];
        size_t head_len;
    } cases[] = {
        {0, {0x81, 0}, 2},
        {125, {0x81, 125}, 2},
        {126, {0x81, 126, 0, 126}, 4},
        {65535, {0x81, 126, 255, 255}, 4},
        {65536, {0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0}, 10},
    };
    char *text = malloc(65536);
    memset(text, 'x', 65536);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct live_message *m = live_message_new(LIVE_LOG, 1, text, cases[i].len);
        assert_int_equal(m->len, cases[i].head_len + cases[i].len);
        assert_memory_equal(m->bytes, cases[i].head, cases[i].head_len);
        live_message_drop(m);
    }
    free(text);
}

static void live_queues_share_messages_and_keep_message_order(void **state)
{
    (void)state;
    struct live_queue a = {0}, b = {0};
    struct live_message *m = live_message_new(LIVE_EVENT, 1, "shared", 6);
    assert_int_equal(live_queue_add(&a, m), 0);
    assert_int_equal(live_queue_add(&b, m), 0);
    assert_int_equal(m->holders, 3);
    live_message_drop(m);
    assert_int_equal(put(&a, LIVE_MARK, 1, "mark"), 0);
    queue_holds(&a, "shared mark");
    queue_holds(&b, "shared");
    live_queue_fini(&a);
    live_queue_fini(&b);
}

static void queued_job_state_is_replaced_unless_already_partly_sent(void **state)
{
    (void)state;
    struct live_queue q = {0};
    put(&q, LIVE_JOB, 1, "one");
    live_queue_written(&q, 3);
    assert_false(live_queue_is_between(&q));
    put(&q, LIVE_JOB, 1, "two");
    put(&q, LIVE_JOB, 2, "other");
    put(&q, LIVE_JOB, 1, "three");
    put(&q, LIVE_VERDICT, 1, "v1");
    put(&q, LIVE_VERDICT, 1, "v2");
    put(&q, LIVE_REMOVED, 2, "gone");
    struct iovec piece;
    assert_int_equal(live_queue_next(&q, &piece, 1), 1);
    assert_memory_equal(piece.iov_base, "ne", 2);
    assert_int_equal(piece.iov_len, 2);
    live_queue_written(&q, 2);
    assert_true(live_queue_is_between(&q));
    queue_holds(&q, "three gone v2");
    live_queue_fini(&q);
}

static void newer_sample_replaces_a_queued_one_and_sets_the_skip_flag(void **state)
{
    (void)state;
    struct live_queue q = {0};
    assert_int_equal(put(&q, LIVE_SAMPLE, 1, "a"), 0);
    assert_int_equal(q.skipped, 0);
    assert_int_equal(put(&q, LIVE_SAMPLE, 1, "b"), 1);
    assert_int_equal(put(&q, LIVE_SAMPLE, 1, "c"), 1);
    assert_int_equal(q.skipped, 1u << LIVE_SAMPLE);
    queue_holds(&q, "c");
    live_queue_fini(&q);
}

static void log_lines_are_queued_again_after_skipped_lines_are_reported(void **state)
{
    (void)state;
    struct live_queue q = {0};
    int added = 0;
    while (put(&q, LIVE_LOG, 1, "line") == 0)
        added++;
    assert_true(added > 10 && added < LIVE_QUEUE_ITEMS);
    assert_int_equal(q.skipped, 1u << LIVE_LOG);
    live_queue_written(&q, 5 * 6);
    assert_int_equal(put(&q, LIVE_LOG, 1, "not yet"),
                     1); /* The message would fit, but the skip has not been reported yet. */
    assert_int_equal(put(&q, LIVE_MARK, 1, "mark"), 0);
    q.skipped = 0;
    assert_int_equal(put(&q, LIVE_LOG, 1, "now"), 0);
    live_queue_leave(&q, 1);
    queue_holds(&q, "");
    live_queue_fini(&q);
}

static void live_queue_exceeds_the_limit_only_for_a_single_message(void **state)
{
    (void)state;
    struct live_queue q = {0};
    size_t size = 20 << 10;
    char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    for (int i = 0; i < 10; i++)
        put(&q, LIVE_LOG, 1, text);
    assert_true(q.bytes <= LIVE_QUEUE_BYTES);
    assert_int_equal(q.count, 3);
    live_queue_clear(&q);
    assert_int_equal(q.count, 0);
    free(text);
    size = 4 * LIVE_QUEUE_BYTES;
    text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    assert_int_equal(put(&q, LIVE_JOB, 1, text), 0);
    assert_int_equal(q.count, 1);
    live_queue_fini(&q);
    free(text);
}

static void job_without_room_in_the_live_queue_is_put_on_the_late_list(void **state)
{
    (void)state;
    struct live_queue q = {0};
    enum { JOBS = 1000 };
    bool seen[JOBS + 1] = {false};
    for (int round = 0; round < 3; round++) {
        for (int id = 1; id <= JOBS; id++)
            assert_int_equal(put(&q, LIVE_JOB, id, "job"), 0);
    }
    assert_true(q.count < LIVE_QUEUE_ITEMS);
    for (unsigned i = 0; i < q.count; i++)
        seen[q.items[(q.first + i) % LIVE_QUEUE_ITEMS]->id] = true;
    for (int64_t id; (id = live_queue_take_late(&q)) != 0;) {
        assert_false(seen[id]);
        seen[id] = true;
    }
    for (int id = 1; id <= JOBS; id++)
        assert_true(seen[id]);
    assert_null(q.late);
    live_queue_fini(&q);
}

static void live_queue_returns_enobufs_if_too_many_jobs_are_late(void **state)
{
    (void)state;
    struct live_queue q = {0};
    int rc = 0, id = 0;
    while (rc == 0 && id < 4 * LIVE_LATE_MAX)
        rc = put(&q, LIVE_JOB, ++id, "job");
    assert_int_equal(rc, -ENOBUFS);
    assert_true(id > LIVE_LATE_MAX);
    live_queue_fini(&q);
}

/* For any input, the queue has a bounded size and writes complete frames. */
static void live_queue_stays_consistent_after_random_operations(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 300; round++) {
        struct live_queue q = {0};
        for (int step = 0; step < 400; step++) {
            seed = seed * 1664525 + 1013904223;
            enum live_kind kind = (enum live_kind)((seed >> 8) % (LIVE_SKIPPED + 1));
            int64_t id = kind <= LIVE_MACHINE ? 0 : 1 + (seed >> 16) % 90;
            char text[64];
            snprintf(text, sizeof(text), "%.*s", (int)((seed >> 20) % 60),
                     "0123456789012345678901234567890123456789012345678901234567890");
            if ((seed >> 27) % 4 == 0)
                live_queue_written(&q, (seed >> 10) % (q.bytes - q.sent + 1));
            else if ((seed >> 27) % 29 == 0)
                live_queue_leave(&q, id);
            else if ((seed >> 27) % 31 == 0)
                live_queue_clear(&q);
            else
                put(&q, kind, id, text);
            size_t bytes = 0;
            for (unsigned i = 0; i < q.count; i++)
                bytes += q.items[(q.first + i) % LIVE_QUEUE_ITEMS]->len;
            assert_int_equal(bytes, q.bytes);
            assert_true(q.count <= LIVE_QUEUE_ITEMS);
            assert_true(q.count == 0 ? q.sent == 0 : q.sent < q.items[q.first]->len);
        }
        live_queue_fini(&q);
    }
}

static void sha1_matches_the_test_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hash;
    } cases[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {"dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
         "b37a4f2cc0624f1690f64606cf385945b2bec4ea"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t hash[SHA1_BYTES];
        char text[2 * SHA1_BYTES + 1];
        live_sha1(cases[i].text, strlen(cases[i].text), hash);
        for (size_t k = 0; k < SHA1_BYTES; k++)
            snprintf(text + 2 * k, 3, "%02x", hash[k]);
        assert_string_equal(text, cases[i].hash);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(websocket_frame_header_depends_on_payload_length),
        cmocka_unit_test(live_queues_share_messages_and_keep_message_order),
        cmocka_unit_test(queued_job_state_is_replaced_unless_already_partly_sent),
        cmocka_unit_test(newer_sample_replaces_a_queued_one_and_sets_the_skip_flag),
        cmocka_unit_test(log_lines_are_queued_again_after_skipped_lines_are_reported),
        cmocka_unit_test(live_queue_exceeds_the_limit_only_for_a_single_message),
        cmocka_unit_test(job_without_room_in_the_live_queue_is_put_on_the_late_list),
        cmocka_unit_test(live_queue_returns_enobufs_if_too_many_jobs_are_late),
        cmocka_unit_test(live_queue_stays_consistent_after_random_operations),
        cmocka_unit_test(sha1_matches_the_test_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
