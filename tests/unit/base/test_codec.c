/* Tests that structs survive conversion to JSON and back, and that documents of other programs are
 * accepted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/codec.h"

enum colour { COLOUR_UNKNOWN, COLOUR_RED, COLOUR_GREEN };
static const char *const colour_names[] = {"unknown", "red", "green", NULL};

struct part {
    uint32_t number;
    bool has_part_name;
    char part_name[8];
};
static const struct codec part_codec[] = {
    CODEC_FIELD(struct part, number, "number", CODEC_UINT),
    CODEC_OPTION(struct part, part_name, "name", CODEC_TEXT),
    {0},
};

struct whole {
    bool is_on;
    int32_t small;
    int64_t large;
    bool has_bytes;
    uint64_t bytes;
    double real;
    enum colour colour;
    char *note;
    bool has_one;
    struct part one;
    struct part *parts;
    size_t part_count;
    char **words;
    size_t word_count;
    struct part beside;
};
static const struct codec whole_codec[] = {
    CODEC_FIELD(struct whole, is_on, "on", CODEC_BOOL),
    CODEC_FIELD(struct whole, small, "small", CODEC_INT),
    CODEC_FIELD(struct whole, large, "large", CODEC_INT),
    CODEC_NULL(struct whole, bytes, "bytes", CODEC_UINT),
    CODEC_FIELD(struct whole, real, "real", CODEC_REAL),
    CODEC_NAMED(struct whole, colour, "colour", colour_names),
    CODEC_OWNED(struct whole, note, "note", CODEC_OR_NULL),
    CODEC_PART_HAS(struct whole, one, "one", part_codec, CODEC_OR_NOTHING),
    CODEC_MANY(struct whole, parts, part_count, "parts", part_codec, CODEC_REQUIRED),
    CODEC_FLAT(struct whole, beside, part_codec),
    CODEC_WORDS(struct whole, words, word_count, "words", CODEC_REQUIRED),
    {0},
};

static struct whole read_text(const char *text)
{
    struct whole w = {0};
    json_t *doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    assert_int_equal(codec_read(whole_codec, doc, &w, NULL), 0);
    json_decref(doc);
    return w;
}

static void codec_round_trip_keeps_a_document_unchanged(void **state)
{
    static const char text[] =
        "{\"on\": true, \"small\": -3, \"large\": -5000000000, \"bytes\": 7, \"real\": 0.5, "
        "\"colour\": \"green\", \"note\": \"n\", \"one\": {\"number\": 1, \"name\": \"a\"}, "
        "\"parts\": [{\"number\": 2}, {\"number\": 3, \"name\": \"b\"}], \"number\": 9, \"words\": "
        "[\"x\", \"\"]}";
    (void)state;
    struct whole w = read_text(text);
    assert_int_equal(w.colour, COLOUR_GREEN);
    assert_int_equal(w.part_count, 2);
    assert_string_equal(w.parts[1].part_name, "b");
    json_t *doc = codec_json(whole_codec, &w);
    char *out = json_dumps(doc, 0);
    assert_string_equal(out, text);
    free(out);
    json_decref(doc);
    codec_fini(whole_codec, &w);
    assert_null(w.parts);
}

static void codec_writes_empty_struct_as_nulls_and_omits_optional_keys(void **state)
{
    const struct whole w = {.real = (double)NAN};
    (void)state;
    json_t *doc = codec_json(whole_codec, &w);
    char *out = json_dumps(doc, 0);
    assert_string_equal(out, "{\"on\": false, \"small\": 0, \"large\": 0, \"bytes\": null, "
                             "\"real\": null, \"colour\": \"unknown\", \"note\": null, "
                             "\"parts\": [], \"number\": 0, \"words\": []}");
    free(out);
    json_decref(doc);
}

static void codec_reads_members_of_a_wrong_type_as_absent(void **state)
{
    (void)state;
    struct whole w =
        read_text("{\"on\": 1, \"small\": 5000000000, \"large\": 1.5, \"bytes\": -1, \"real\": "
                  "\"x\", \"colour\": \"mauve\", \"note\": {}, \"one\": [], \"parts\": [3, null, "
                  "{\"name\": \"äöüß\"}], \"words\": [1]}");
    assert_false(w.is_on || w.small || w.large || w.has_bytes || w.note || w.has_one);
    assert_int_equal(w.colour, COLOUR_UNKNOWN);
    assert_int_equal(w.part_count, 3);
    /* The two-byte character that does not fit is dropped as a whole. */
    assert_string_equal(w.parts[2].part_name, "äöü");
    assert_string_equal(w.words[0], "");
    codec_fini(whole_codec, &w);
    w = read_text("[]");
    assert_int_equal(w.part_count, 0);
    codec_fini(whole_codec, &w);
}

static void codec_reader_truncates_a_list_to_the_maximum_length(void **state)
{
    struct whole w = {0};
    json_t *list = json_array(), *doc = json_pack("{s:o}", "parts", list);
    (void)state;
    for (int i = 0; i < CODEC_LIST_MAX + 5; i++)
        json_array_append_new(list, json_object());
    assert_int_equal(codec_read(whole_codec, doc, &w, NULL), 0);
    assert_int_equal(w.part_count, CODEC_LIST_MAX);
    codec_fini(whole_codec, &w);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codec_round_trip_keeps_a_document_unchanged),
        cmocka_unit_test(codec_writes_empty_struct_as_nulls_and_omits_optional_keys),
        cmocka_unit_test(codec_reads_members_of_a_wrong_type_as_absent),
        cmocka_unit_test(codec_reader_truncates_a_list_to_the_maximum_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
