/* A struct and its JSON from one table of fields, so that what is written can be read back. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum codec_type {
    CODEC_END = 0,
    CODEC_BOOL,
    CODEC_INT,     /* int32_t, int64_t; an enum whose numbers count */
    CODEC_UINT,    /* uint32_t, uint64_t, size_t */
    CODEC_REAL,    /* double; what is not finite is null */
    CODEC_NAME,    /* an enum by its names: 0 for a name that is not known */
    CODEC_TEXT,    /* char[N], cut at a character's end */
    CODEC_STRING,  /* char *, owned; NULL is null */
    CODEC_STRUCT,  /* within the struct; without a key its members are keys beside the others */
    CODEC_LIST,    /* pointer to COUNT structs, owned */
    CODEC_STRINGS, /* pointer to COUNT strings, owned */
};

/* What is written for a member that has none: its has_… is false, a pointer is NULL. */
enum codec_absent { CODEC_REQUIRED = 0, CODEC_OR_NULL, CODEC_OR_NOTHING };

/* One member; a table of them, ended by {0}, is a struct's codec. */
struct codec {
    const char *key;
    enum codec_type type;
    enum codec_absent absent;
    size_t offset, size;      /* of the member; of an element of a list */
    size_t has;               /* offset of its bool, where it may be absent */
    size_t count;             /* offset of a list's size_t */
    const struct codec *of;   /* a struct's or an element's fields, ended by CODEC_END */
    const char *const *names; /* by value, ended by NULL */
};

#define CODEC_AT(s, m, k, t)                                                                       \
    .key = (k), .type = (t), .offset = offsetof(s, m), .size = sizeof((s *)0)->m
#define CODEC_HAS(s, m, how) .absent = (how), .has = offsetof(s, has_##m)
/* A member that is always written, one that is null, one that is left out where it is absent. */
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

/* NULL: out of memory. */
json_t *codec_json(const struct codec *fields, const void *from);
/* Adds the keys to O, over those that it has. 0 or -ENOMEM. */
int codec_put(const struct codec *fields, const void *from, json_t *o);
/* Into zeroed memory. A document of others is survived: what is missing or of a wrong type is as if
 * absent, lists are cut at CODEC_LIST_MAX. 0 or -ENOMEM, and then RET is empty. */
enum { CODEC_LIST_MAX = 4096 };
int codec_read(const struct codec *fields, const json_t *doc, void *ret, struct err *err);
/* Frees what it owns; the rest is as before. */
void codec_fini(const struct codec *fields, void *s);
