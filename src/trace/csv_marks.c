/* Reads marks from a JSON lines file. Each object becomes a mark in the wire format. */
#include "trace/csv.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "trace/csv_table.h"
#include "trace/export_text.h"

enum { LINE_MAX_BYTES = 1 << 20 };

struct lines {
    FILE *in;
    const char *name;
    uint64_t number;
    struct buf line;
};

static int bad(const struct lines *l, struct err *err, const char *why)
{
    return err_set(err, -EBADMSG, "%s line %" PRIu64 ": %s", l->name, l->number, why);
}

/* Reads a line without its newline. Returns 1, 0 at the end of the file, or -errno. */
static int next_line(struct lines *l, struct err *err)
{
    int c;
    buf_clear(&l->line);
    l->number++;
    while ((c = getc_unlocked(l->in)) != EOF && c != '\n') {
        if (l->line.len >= LINE_MAX_BYTES)
            return bad(l, err, "longer than 1 MiB");
        buf_add_byte(&l->line, (uint8_t)c);
    }
    if (c == EOF && ferror(l->in)) {
        int code = errno > 0 ? -errno : -EIO;
        return err_set(err, code, "cannot read %s: %s", l->name, strerror(-code));
    }
    if (l->line.failed)
        return err_set(err, -ENOMEM, "out of memory while reading %s", l->name);
    return c != EOF || l->line.len > 0;
}

static bool is_blank(const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        if (!strchr(" \t\r", b->data[i]) || b->data[i] == '\0')
            return false;
    return true;
}

/* Converts a JSON key to the wire format and appends it: "step" becomes STEP, "lr-now" becomes
 * LR_NOW, and "2nd" becomes K_2ND. */
static void add_key(struct buf *out, const char *key)
{
    if (!((key[0] >= 'a' && key[0] <= 'z') || (key[0] >= 'A' && key[0] <= 'Z')))
        buf_add_str(out, "K_");
    for (; *key; key++) {
        char c = *key;
        if (c >= 'a' && c <= 'z')
            c = (char)(c - 'a' + 'A');
        else if (!((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
            c = '_';
        buf_add_byte(out, (uint8_t)c);
    }
}

static int add_value(struct buf *out, const json_t *v)
{
    char *s;
    if (json_is_string(v)) {
        const char *text = json_string_value(v);
        size_t len = json_string_length(v);
        if (memchr(text, '\n', len) || memchr(text, '\0', len))
            return -EBADMSG; /* a value must be on one line */
        buf_add(out, text, len);
        return 0;
    }
    if (json_is_real(v)) { /* 120.0 becomes 120, because a step may be written as a float */
        export_add_double(out, json_real_value(v));
        return 0;
    }
    s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!s)
        return -ENOMEM;
    buf_add_str(out, s);
    free(s);
    return 0;
}

static bool is_own_key(const char *key)
{
    static const char *const own[] = {"t", "type", "pid", "kind"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(key, own[i]) == 0)
            return true;
    return false;
}

/* Appends one KEY=VALUE line. The line is checked on its own, so that an error message can contain
 * the key. */
static int add_pair(const struct lines *l, struct buf *out, const char *key, const json_t *v,
                    struct err *err)
{
    struct buf alone = {0};
    struct mark m;
    int r;
    buf_add_str(&alone, "KIND=other\n");
    add_key(&alone, key);
    buf_add_byte(&alone, '=');
    r = add_value(&alone, v);
    buf_add_byte(&alone, '\n');
    if (r == -ENOMEM || alone.failed) {
        r = err_set(err, -ENOMEM, "out of memory while reading %s", l->name);
    } else if (r < 0 || mark_parse(alone.data, alone.len, &m) < 0) {
        char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        r = err_set(err, -EBADMSG, "%s line %" PRIu64 ": invalid value of \"%.40s\": %.60s",
                    l->name, l->number, key, s ? s : "that");
        free(s);
    } else {
        buf_add(out, alone.data + strlen("KIND=other\n"), alone.len - strlen("KIND=other\n"));
    }
    buf_fini(&alone);
    return r;
}

static int make_text(const struct lines *l, json_t *object, struct buf *out, struct err *err)
{
    const json_t *kind = json_object_get(object, "kind");
    const char *key;
    json_t *v;
    int r;
    if (!json_is_string(kind) || json_string_length(kind) == 0)
        return bad(l, err, "a mark requires a \"kind\", such as \"step\" or \"eval\"");
    r = add_pair(l, out, "kind", kind, err);
    json_object_foreach(object, key, v)
    {
        if (r < 0)
            return r;
        if (!is_own_key(key) && !json_is_null(v))
            r = add_pair(l, out, key, v, err);
    }
    return r;
}

/* Converts an object to a mark and stores its text in OUT. Returns 1, 0 if the object is not a
 * mark, or -errno. */
static int read_mark(const struct lines *l, json_t *object, struct buf *out, double *ret_t_s,
                     struct mark *ret, struct err *err)
{
    const json_t *type = json_object_get(object, "type"), *t = json_object_get(object, "t");
    const json_t *pid = json_object_get(object, "pid");
    int r;
    if (!json_is_object(object))
        return bad(l, err, "not a JSON object like {\"t\": 12.5, \"kind\": \"step\", \"step\": 3}");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "mark") != 0))
        return 0;
    if (!json_is_number(t) || !isfinite(json_number_value(t)))
        return bad(l, err, "a mark requires \"t\", its time in seconds");
    r = make_text(l, object, out, err);
    if (r < 0)
        return r;
    if (out->failed)
        return err_set(err, -ENOMEM, "out of memory while reading %s", l->name);
    if (mark_parse(out->data, out->len, ret) < 0)
        return bad(l, err, "the mark is too long (maximum 8192 bytes)");
    if (json_is_integer(pid) && json_integer_value(pid) > 0 && json_integer_value(pid) <= INT32_MAX)
        ret->pid = (int32_t)json_integer_value(pid);
    *ret_t_s = json_number_value(t);
    return 1;
}

static int read_line(struct lines *l, struct buf *text, csv_mark_fn *fn, void *user,
                     struct err *err)
{
    struct err why = {""};
    json_t *object;
    struct mark m;
    double t_s = 0;
    int r;
    if (is_blank(&l->line))
        return 0;
    object = json_parse(l->line.data, l->line.len, &why);
    if (!object)
        return err_set(err, -EBADMSG, "%s line %" PRIu64 ": %s", l->name, l->number, why.text);
    buf_clear(text);
    r = read_mark(l, object, text, &t_s, &m, err);
    json_decref(object);
    return r > 0 ? fn(user, t_s, &m) : r;
}

int csv_read_marks_stream(FILE *in, const char *name, csv_mark_fn *fn, void *user, struct err *err)
{
    struct lines l = {.in = in, .name = name};
    struct buf text = {0};
    int r;
    while ((r = next_line(&l, err)) > 0) {
        r = read_line(&l, &text, fn, user, err);
        if (r != 0)
            break;
    }
    buf_fini(&l.line);
    buf_fini(&text);
    return r;
}

int csv_read_marks(const char *path, csv_mark_fn *fn, void *user, struct err *err)
{
    FILE *f;
    int r = csv_open(path, &f, err);
    if (r < 0)
        return r;
    r = csv_read_marks_stream(f, path, fn, user, err);
    fclose(f);
    return r;
}
