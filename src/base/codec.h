/* Converts a struct to JSON and back, driven by a table of its fields. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum codec_type {
    CODEC_END = 0,
    CODEC_BOOL,
    CODEC_INT,    /* int32_t or int64_t; also an enum that is stored as a number */
    CODEC_UINT,   /* uint32_t, uint64_t, size_t */
    CODEC_REAL,   /* double, written as null if it is not finite */
    CODEC_NAME,   /* an enum that is stored by name; an unknown name is read as 0 */
    CODEC_TEXT,   /* char[N]; longer text is truncated between UTF-8 characters */
    CODEC_STRING, /* char *, owned by the struct; NULL is written as null */
    /* a nested struct; if key is NULL, its members become members of the outer object */
    CODEC_STRUCT,
    CODEC_LIST,    /* pointer to an owned array of structs; another member contains the length */
    CODEC_STRINGS, /* pointer to an owned array of strings; another member contains the length */
};

/* How an absent member is written. A member is absent if its has_… flag is false, or if it is a
 * NULL pointer. */
enum codec_absent { CODEC_REQUIRED = 0, CODEC_OR_NULL, CODEC_OR_NOTHING };

/* Describes one member of a struct. An array of these, terminated by {0}, is the codec of the
 * struct. */
struct codec {
    const char *key;
    enum codec_type type;
    enum codec_absent absent;
    size_t offset, size;    /* offset and size of the member; for a list, the size of one element */
    size_t has;             /* offset of the has_… flag of an optional member */
    size_t count;           /* offset of the size_t member that holds the list's length */
    const struct codec *of; /* for structs and lists: the table of the inner struct */
    const char *const *names; /* for enums: the name of each value, terminated by NULL */
};

#define CODEC_AT(s, m, k, t)                                                                       \
    .key = (k), .type = (t), .offset = offsetof(s, m), .size = sizeof((s *)0)->m
#define CODEC_HAS(s, m, how) .absent = (how), .has = offsetof(s, has_##m)
/* CODEC_FIELD describes a member that is always present. An absent member is written as null by
 * CODEC_NULL, and is left out by CODEC_OPTION. */
#define CODEC_FIELD(s, m, k, t)                                                                    \
    {                                                                                              \
        CODEC_AT(s, m, k, t)                                                                       \
    }
#define CODEC_NULL(s, m, k, t)                                                                     \
    {                                                                                              \
        CODEC_AT(s, m, k, t), CODEC_HAS(s, m, CODEC_OR_NULL)                                       \
    }
#define CODEC_OPTION(s, m, k, t)                                                                   \
    {                                                                                              \
        CODEC_AT(s, m, k, t), CODEC_HAS(s, m, CODEC_OR_NOTHING)                                    \
    }
#define CODEC_OWNED(s, m, k, how)                                                                  \
    {                                                                                              \
        CODEC_AT(s, m, k, CODEC_STRING), .absent = (how)                                           \
    }
#define CODEC_NAMED(s, m, k, list)                                                                 \
    {                                                                                              \
        CODEC_AT(s, m, k, CODEC_NAME), .names = (list)                                             \
    }
#define CODEC_PART(s, m, k, fields)                                                                \
    {                                                                                              \
        CODEC_AT(s, m, k, CODEC_STRUCT), .of = (fields)                                            \
    }
#define CODEC_PART_HAS(s, m, k, fields, how)                                                       \
    {                                                                                              \
        CODEC_AT(s, m, k, CODEC_STRUCT), CODEC_HAS(s, m, how), .of = (fields)                      \
    }
#define CODEC_FLAT(s, m, fields) CODEC_PART(s, m, NULL, fields)
#define CODEC_FLAT_HAS(s, m, fields) CODEC_PART_HAS(s, m, NULL, fields, CODEC_OR_NOTHING)
#define CODEC_MANY(s, m, n, k, fields, how)                                                        \
    {                                                                                              \
        .key = (k), .type = CODEC_LIST, .absent = (how), .offset = offsetof(s, m),                 \
        .size = sizeof *((s *)0)->m, .count = offsetof(s, n), .of = (fields)                       \
    }
#define CODEC_WORDS(s, m, n, k, how)                                                               \
    {                                                                                              \
        .key = (k), .type = CODEC_STRINGS, .absent = (how), .offset = offsetof(s, m),              \
        .count = offsetof(s, n)                                                                    \
    }

/* Converts the struct at FROM to a JSON object. Returns NULL if out of memory. */
json_t *codec_json(const struct codec *fields, const void *from);
/* Adds the members of the struct at FROM to object O, replacing existing keys. Returns 0 or
 * -ENOMEM. */
int codec_put(const struct codec *fields, const void *from, json_t *o);
/* Reads a JSON object into the zeroed struct RET. The document may come from another program:
 * members that are missing or have the wrong type become absent, and lists are truncated to
 * CODEC_LIST_MAX elements. Returns 0, or -ENOMEM with RET empty. */
enum { CODEC_LIST_MAX = 4096 };
int codec_read(const struct codec *fields, const json_t *doc, void *ret, struct err *err);
/* Frees the members that the struct owns and leaves the others unchanged. */
void codec_fini(const struct codec *fields, void *s);
