/* Converts a struct to JSON and back by one table of fields. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum codec_type {
    CODEC_END = 0,
    CODEC_BOOL,
    CODEC_INT,    /* int32_t, int64_t; an enum stored by its number */
    CODEC_UINT,   /* uint32_t, uint64_t, size_t */
    CODEC_REAL,   /* double; null if not finite */
    CODEC_NAME,   /* an enum stored by its name; an unknown name becomes 0 */
    CODEC_TEXT,   /* char[N], truncated at a character boundary */
    CODEC_STRING, /* char *, owned; NULL is null */
    /* a struct within the struct; if it has no key, its members are added to the outer object */
    CODEC_STRUCT,
    CODEC_LIST,    /* pointer to COUNT structs, owned */
    CODEC_STRINGS, /* pointer to COUNT strings, owned */
};

/* How a member is written if it is absent (its has_… is false or its pointer is NULL). */
enum codec_absent { CODEC_REQUIRED = 0, CODEC_OR_NULL, CODEC_OR_NOTHING };

/* One member. The codec of a struct is a table of members, ended by {0}. */
struct codec {
    const char *key;
    enum codec_type type;
    enum codec_absent absent;
    size_t offset, size;      /* of the member; for a list, the size of an element */
    size_t has;               /* offset of its has_… member, if it may be absent */
    size_t count;             /* offset of the size_t with a list's length */
    const struct codec *of;   /* fields of the struct or list element, ended by CODEC_END */
    const char *const *names; /* names by value, ended by NULL */
};

#define CODEC_AT(s, m, k, t)                                                                       \
    .key = (k), .type = (t), .offset = offsetof(s, m), .size = sizeof((s *)0)->m
#define CODEC_HAS(s, m, how) .absent = (how), .has = offsetof(s, has_##m)
/* CODEC_FIELD is always written, the other two are null or left out if absent. */
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

/* Converts *FROM to an object. NULL: out of memory. */
json_t *codec_json(const struct codec *fields, const void *from);
/* Sets the keys in O and replaces existing ones. 0 or -ENOMEM. */
int codec_put(const struct codec *fields, const void *from, json_t *o);
/* Reads an object into zeroed memory. Foreign documents are accepted: missing members and those of
 * a wrong type are absent, and lists are truncated at CODEC_LIST_MAX. 0, or -ENOMEM with RET
 * empty. */
enum { CODEC_LIST_MAX = 4096 };
int codec_read(const struct codec *fields, const json_t *doc, void *ret, struct err *err);
/* Frees owned members and leaves the others unchanged. */
void codec_fini(const struct codec *fields, void *s);
