/* Tests the buffer, its integer encodings, the cursor over hostile bytes, and CRC-32C. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static void zeroed_buffer_is_an_empty_string(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_str(&b), "");
    buf_add(&b, NULL, 0);
    assert_int_equal(b.len, 0);
    assert_false(b.failed);
    buf_fini(&b);
    buf_fini(&b);
}

static void buffer_keeps_appended_bytes_in_order(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    buf_add_str(&b, "end");
    buf_add_byte(&b, '!');
    char want[8000] = "";
    size_t n = 0;
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(want + n, sizeof(want) - n, "%d,", i);
    snprintf(want + n, sizeof(want) - n, "end!");
    assert_string_equal(buf_str(&b), want);
    assert_int_equal(b.len, strlen(want));
    buf_fini(&b);
}

static void formatting_a_long_text_grows_the_buffer(void **state)
{
    (void)state;
    char longer[5001];
    memset(longer, 'x', 5000);
    longer[5000] = '\0';
    /* These lengths lie on both sides of the buffer's initial capacity. */
    for (size_t before = 0; before < 70; before++) {
        struct buf b = {0};
        for (size_t i = 0; i < before; i++)
            buf_add_byte(&b, '.');
        buf_printf(&b, "%s", longer);
        assert_int_equal(b.len, before + 5000);
        assert_string_equal(buf_str(&b) + before, longer);
        buf_fini(&b);
    }
}

static void buffer_that_failed_to_grow_stays_failed_until_cleared(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_str(&b, "kept");
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -ENOMEM);
    assert_true(b.failed);
    buf_add_str(&b, "lost");
    buf_printf(&b, "lost");
    buf_add_varint(&b, 1);
    assert_int_equal(b.len, 4);
    assert_string_equal(buf_str(&b), "");
    buf_clear(&b);
    buf_add_str(&b, "again");
    assert_string_equal(buf_str(&b), "again");
    buf_fini(&b);
}

static void buffer_reservation_fails_if_the_size_overflows(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_str(&b, "1234567890");
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 9), -ENOMEM);
    buf_fini(&b);
}

static void integers_survive_encoding_and_decoding(void **state)
{
    (void)state;
    struct buf b = {0};
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t v = UINT64_C(1) << bit;
        buf_add_varint(&b, v - 1);
        buf_add_varint(&b, v);
        buf_add_zigzag(&b, (int64_t)v);
        buf_add_zigzag(&b, -(int64_t)(v - 1));
    }
    buf_add_varint(&b, UINT64_MAX);
    buf_add_zigzag(&b, INT64_MIN);
    buf_add_zigzag(&b, INT64_MAX);
    struct cur c = cur_of(b.data, b.len);
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t v = UINT64_C(1) << bit;
        assert_true(cur_varint(&c) == v - 1);
        assert_true(cur_varint(&c) == v);
        assert_true(cur_zigzag(&c) == (int64_t)v);
        assert_true(cur_zigzag(&c) == -(int64_t)(v - 1));
    }
    assert_true(cur_varint(&c) == UINT64_MAX);
    assert_true(cur_zigzag(&c) == INT64_MIN);
    assert_true(cur_zigzag(&c) == INT64_MAX);
    assert_false(c.bad);
    assert_int_equal(cur_left(&c), 0);
    buf_fini(&b);
}

static void varints_have_the_shortest_leb128_form(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_varint(&b, 127);
    buf_add_varint(&b, 300);
    buf_add_zigzag(&b, -1);
    buf_add_varint(&b, UINT64_MAX);
    assert_int_equal(b.len, 1 + 2 + 1 + 10);
    assert_memory_equal(b.data, "\x7F\xAC\x02\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 14);
    buf_fini(&b);
}

static void fixed_size_integers_are_little_endian(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_u16le(&b, 0x0102);
    buf_add_u32le(&b, 0x01020304);
    buf_add_u64le(&b, UINT64_C(0x0102030405060708));
    assert_int_equal(b.len, 14);
    assert_memory_equal(b.data, "\2\1\4\3\2\1\10\7\6\5\4\3\2\1", 14);
    struct cur c = cur_of(b.data, b.len);
    assert_int_equal(cur_u16le(&c), 0x0102);
    assert_int_equal(cur_u32le(&c), 0x01020304);
    assert_true(cur_u64le(&c) == UINT64_C(0x0102030405060708));
    assert_false(c.bad);
    buf_fini(&b);
}

static void varint_without_its_final_byte_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[64];
    memset(bytes, 0x80, sizeof(bytes));
    struct cur c = cur_of(bytes, sizeof(bytes));
    assert_true(cur_varint(&c) == 0);
    assert_true(c.bad);
}

static void varint_beyond_64_bits_is_refused(void **state)
{
    (void)state;
    struct cur c = cur_of("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 10);
    assert_true(cur_varint(&c) == 0);
    assert_true(c.bad);
}

static void truncated_varint_is_refused(void **state)
{
    (void)state;
    struct cur c = cur_of("\xFF\xFF", 2);
    assert_true(cur_varint(&c) == 0);
    assert_true(c.bad);
}

static void cursor_returns_zeros_after_a_failed_read(void **state)
{
    (void)state;
    struct cur c = cur_of("\1\2\3", 3);
    assert_int_equal(cur_u32le(&c), 0);
    assert_true(c.bad);
    assert_int_equal(cur_left(&c), 0);
    assert_int_equal(cur_byte(&c), 0);
    assert_int_equal(cur_u16le(&c), 0);
    size_t len = 99;
    assert_non_null(cur_blob(&c, &len));
    assert_int_equal(len, 0);
}

static void cursor_reads_no_byte_past_the_end(void **state)
{
    (void)state;
    for (size_t len = 0; len < 9; len++) {
        /* The copy has exactly the right size, so the sanitizer detects reads past its end. */
        uint8_t *exact = malloc(len ? len : 1);
        memset(exact, 0xFF, len ? len : 1);
        size_t blob_len;
        struct cur c = cur_of(exact, len);
        cur_varint(&c);
        assert_true(c.bad);
        c = cur_of(exact, len);
        cur_u64le(&c);
        assert_int_equal(c.bad, len < 8);
        c = cur_of(exact, len);
        cur_blob(&c, &blob_len);
        assert_true(c.bad);
        free(exact);
    }
    struct cur nothing = cur_of(NULL, 0);
    assert_int_equal(cur_byte(&nothing), 0);
    assert_true(nothing.bad);
}

static void blob_is_read_back_byte_for_byte(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_blob(&b, "a\0b", 3);
    buf_add_blob(&b, "", 0);
    struct cur c = cur_of(b.data, b.len);
    size_t len = 0;
    const char *p = cur_blob(&c, &len);
    assert_int_equal(len, 3);
    assert_memory_equal(p, "a\0b", 3);
    assert_non_null(cur_blob(&c, &len));
    assert_int_equal(len, 0);
    assert_false(c.bad);
    buf_fini(&b);
}

static void blob_longer_than_the_remaining_input_is_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_add_varint(&b, UINT64_MAX);
    buf_add_str(&b, "abc");
    struct cur c = cur_of(b.data, b.len);
    size_t len = 99;
    assert_non_null(cur_blob(&c, &len));
    assert_int_equal(len, 0);
    assert_true(c.bad);
    buf_fini(&b);
}

/* This CRC is computed bit by bit, directly from the polynomial. */
static uint32_t slow_crc32c(const uint8_t *p, size_t len)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) ? (crc >> 1) ^ UINT32_C(0x82F63B78) : crc >> 1;
    }
    return ~crc;
}

static void crc32c_matches_published_vectors(void **state)
{
    (void)state;
    static const uint8_t zeros[32];
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c(0, zeros, 32), 0x8A9136AA); /* RFC 3720 B.4 */
}

static void crc32c_is_independent_of_how_data_is_split(void **state)
{
    (void)state;
    uint8_t data[100];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 37 + 11);
    for (size_t len = 0; len <= sizeof(data); len++) {
        uint32_t want = slow_crc32c(data, len);
        assert_int_equal(crc32c(0, data, len), want);
        for (size_t split = 0; split <= len; split++)
            assert_int_equal(crc32c(crc32c(0, data, split), data + split, len - split), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_buffer_is_an_empty_string),
        cmocka_unit_test(buffer_keeps_appended_bytes_in_order),
        cmocka_unit_test(formatting_a_long_text_grows_the_buffer),
        cmocka_unit_test(buffer_that_failed_to_grow_stays_failed_until_cleared),
        cmocka_unit_test(buffer_reservation_fails_if_the_size_overflows),
        cmocka_unit_test(integers_survive_encoding_and_decoding),
        cmocka_unit_test(varints_have_the_shortest_leb128_form),
        cmocka_unit_test(fixed_size_integers_are_little_endian),
        cmocka_unit_test(varint_without_its_final_byte_is_refused),
        cmocka_unit_test(varint_beyond_64_bits_is_refused),
        cmocka_unit_test(truncated_varint_is_refused),
        cmocka_unit_test(cursor_returns_zeros_after_a_failed_read),
        cmocka_unit_test(cursor_reads_no_byte_past_the_end),
        cmocka_unit_test(blob_is_read_back_byte_for_byte),
        cmocka_unit_test(blob_longer_than_the_remaining_input_is_refused),
        cmocka_unit_test(crc32c_matches_published_vectors),
        cmocka_unit_test(crc32c_is_independent_of_how_data_is_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
