/* Converts structs to JSON and back, driven by a table of their fields. */
#include "base/codec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"

static void *member_of(const struct codec *f, const void *s)
{
    return (char *)(uintptr_t)s + f->offset;
}

static size_t *count_of(const struct codec *f, const void *s)
{
    return (size_t *)(void *)((char *)(uintptr_t)s + f->count);
}

static bool *has_of(const struct codec *f, const void *s)
{
    return (bool *)((char *)(uintptr_t)s + f->has);
}

/* Returns true if the member is a pointer. A NULL pointer means that the member is absent; for
 * other members, a has_… flag shows this. */
static bool is_pointer(const struct codec *f)
{
    return f->type == CODEC_STRING || f->type == CODEC_LIST || f->type == CODEC_STRINGS;
}

/* ---- writing ---- */

static json_t *list_json(const struct codec *f, const void *s)
{
    const char *at = *(char *const *)member_of(f, s);
    json_t *list = json_array();
    for (size_t i = 0; i < *count_of(f, s); i++)
        json_array_append_new(list, f->type == CODEC_STRINGS
                                        ? json_text0(((char *const *)(const void *)at)[i])
                                        : codec_json(f->of, at + i * f->size));
    return list;
}

static json_t *member_json(const struct codec *f, const void *s)
{
    const void *at = member_of(f, s);
    double real;
    switch (f->type) {
    case CODEC_BOOL:
        return json_boolean(*(const bool *)at);
    case CODEC_INT:
        return json_integer(f->size == 4 ? *(const int32_t *)at : *(const int64_t *)at);
    case CODEC_UINT:
        return json_u64(f->size == 4 ? *(const uint32_t *)at : *(const uint64_t *)at);
    case CODEC_REAL:
        real = *(const double *)at;
        return isfinite(real) ? json_real(real) : json_null();
    case CODEC_NAME:
        return json_text0(f->names[*(const uint32_t *)at]);
    case CODEC_TEXT:
        return json_text(at, strnlen(at, f->size));
    case CODEC_STRING:
        return json_text0(*(char *const *)at);
    case CODEC_STRUCT:
        return codec_json(f->of, at);
    case CODEC_LIST:
    case CODEC_STRINGS:
        return list_json(f, s);
    case CODEC_END:
        break;
    }
    return NULL;
}

int codec_put(const struct codec *fields, const void *from, json_t *o)
{
    int r = 0;
    for (const struct codec *f = fields; f->type; f++) {
        const void *at = member_of(f, from);
        bool has = !f->absent || (is_pointer(f) ? !!*(char *const *)at : *has_of(f, from));
        if (!f->key)
            r |= has ? codec_put(f->of, at, o) : 0;
        else if (has || f->absent == CODEC_OR_NULL)
            r |= json_object_set_new(o, f->key, has ? member_json(f, from) : json_null());
    }
    return r ? -ENOMEM : 0;
}

json_t *codec_json(const struct codec *fields, const void *from)
{
    json_t *o = json_object();
    if (o && codec_put(fields, from, o) == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- reading ---- */

static uint32_t name_read(const struct codec *f, const char *name)
{
    for (uint32_t i = 0; f->names[i]; i++)
        if (strcmp(f->names[i], name) == 0)
            return i;
    return 0;
}

static int list_read(const struct codec *f, const json_t *list, void *s)
{
    size_t count = json_array_size(list);
    count = count < CODEC_LIST_MAX ? count : CODEC_LIST_MAX;
    size_t size = f->type == CODEC_STRINGS ? sizeof(char *) : f->size;
    char *at = count ? calloc(count, size) : NULL;
    if (count && !at)
        return -ENOMEM;
    *(char **)member_of(f, s) = at;
    *count_of(f, s) = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(list, i);
        if (f->type == CODEC_LIST) {
            if (codec_read(f->of, v, at + i * size, NULL) < 0)
                return -ENOMEM;
            continue;
        }
        const char *text = json_string_value(v);
        char *copy = strdup(text ? text : "");
        if (!copy)
            return -ENOMEM;
        ((char **)(void *)at)[i] = copy;
    }
    return 0;
}

/* Stores the JSON value V in the member described by F. Returns 1 on success, 0 if V is missing or
 * has the wrong type. */
static int member_read(const struct codec *f, const json_t *v, void *s)
{
    void *at = member_of(f, s);
    json_int_t whole = json_integer_value(v);
    switch (f->type) {
    case CODEC_BOOL:
        if (!json_is_boolean(v))
            return 0;
        *(bool *)at = json_is_true(v);
        return 1;
    case CODEC_INT:
        if (!json_is_integer(v) || (f->size == 4 && whole != (int32_t)whole))
            return 0;
        if (f->size == 4)
            *(int32_t *)at = (int32_t)whole;
        else
            *(int64_t *)at = whole;
        return 1;
    case CODEC_UINT:
        if (!json_is_integer(v) || whole < 0 || (f->size == 4 && whole > UINT32_MAX))
            return 0;
        if (f->size == 4)
            *(uint32_t *)at = (uint32_t)whole;
        else
            *(uint64_t *)at = (uint64_t)whole;
        return 1;
    case CODEC_REAL:
        if (!json_is_number(v) || !isfinite(json_number_value(v)))
            return 0;
        *(double *)at = json_number_value(v);
        return 1;
    case CODEC_NAME:
        if (!json_is_string(v))
            return 0;
        *(uint32_t *)at = name_read(f, json_string_value(v));
        return 1;
    case CODEC_TEXT:
        if (!json_is_string(v))
            return 0;
        text_copy(at, f->size, json_string_value(v));
        return 1;
    case CODEC_STRING:
        if (!json_is_string(v))
            return 0;
        *(char **)at = strdup(json_string_value(v));
        return *(char **)at ? 1 : -ENOMEM;
    case CODEC_STRUCT:
        if (!json_is_object(v))
            return 0;
        return codec_read(f->of, v, at, NULL) < 0 ? -ENOMEM : 1;
    case CODEC_LIST:
    case CODEC_STRINGS:
        return list_read(f, v, s) < 0 ? -ENOMEM : 1;
    case CODEC_END:
        break;
    }
    return 0;
}

int codec_read(const struct codec *fields, const json_t *doc, void *ret, struct err *err)
{
    for (const struct codec *f = fields; f->type; f++) {
        int r = member_read(f, f->key ? json_object_get(doc, f->key) : doc, ret);
        if (r < 0) {
            codec_fini(fields, ret);
            return err_set(err, r, "out of memory");
        }
        if (f->absent && !is_pointer(f))
            *has_of(f, ret) = r > 0;
    }
    return 0;
}

void codec_fini(const struct codec *fields, void *s)
{
    for (const struct codec *f = fields; f->type; f++) {
        char **at = member_of(f, s);
        if (f->type == CODEC_STRUCT)
            codec_fini(f->of, at);
        if (f->type == CODEC_LIST || f->type == CODEC_STRINGS) {
            for (size_t i = 0; i < *count_of(f, s); i++)
                if (f->type == CODEC_LIST)
                    codec_fini(f->of, *at + i * f->size);
                else
                    free(((char **)(void *)*at)[i]);
            *count_of(f, s) = 0;
        }
        if (is_pointer(f)) {
            free(*at);
            *at = NULL;
        }
    }
}
