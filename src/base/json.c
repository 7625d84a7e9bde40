/* JSON through jansson: converts arbitrary bytes to valid strings, writes only valid documents, and
 * limits the size and depth of untrusted input. */
#include "base/json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/number.h"
#include "base/text.h"

enum { SIZE_MAX_BYTES = 16 * 1024 * 1024, DEPTH_MAX = 64 };

json_t *json_text(const char *s, size_t len)
{
    AUTO_BUF struct buf clean = {0};
    for (size_t i = 0; i < len;) {
        uint32_t c;
        size_t n = text_utf8(s + i, len - i, &c);
        if (n > 0)
            buf_add(&clean, s + i, n);
        else
            buf_add_str(&clean, "\xEF\xBF\xBD"); /* each invalid byte becomes U+FFFD */
        i += n > 0 ? n : 1;
    }
    json_t *string = clean.failed ? NULL : json_stringn_nocheck(buf_str(&clean), clean.len);
    return string;
}

json_t *json_text0(const char *s)
{
    return s ? json_text(s, strlen(s)) : json_null();
}

json_t *json_arguments(const char *args, size_t len)
{
    json_t *list = json_array();
    for (size_t i = 0; i < len;) {
        size_t n = strnlen(args + i, len - i);
        json_array_append_new(list, json_text(args + i, n));
        i += n + 1;
    }
    return list;
}

json_t *json_u64(uint64_t v)
{
    return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

json_t *json_count(double v)
{
    return json_u64(number_to_u64(v));
}

json_t *json_seconds(uint64_t ns)
{
    uint64_t us = ns / NS_PER_US + (ns % NS_PER_US >= NS_PER_US / 2);
    return json_real((double)us / 1e6);
}

static int add_chunk(const char *data, size_t len, void *user)
{
    struct buf *out = user;
    buf_add(out, data, len);
    return out->failed ? -1 : 0;
}

int json_print(struct buf *out, const json_t *doc, int indent)
{
    /* 15 digits survive the conversion from decimal to double and back. With more digits, 0.1 would
     * be written as 0.10000000000000001. */
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    flags |= indent > 0 ? JSON_INDENT((size_t)indent) : (size_t)JSON_COMPACT;
    size_t before = out->len;
    if (json_dump_callback(doc, add_chunk, out, flags) < 0) {
        out->len = before;
        return out->failed ? -ENOMEM : -EINVAL;
    }
    buf_add_byte(out, '\n');
    return out->failed ? -ENOMEM : 0;
}

int json_write(int fd, const json_t *doc, int indent)
{
    AUTO_BUF struct buf out = {0};
    int r = json_print(&out, doc, indent);
    if (r == 0)
        r = io_write_all(fd, out.data, out.len);
    return r;
}

/* True if the JSON text S is nested too deeply. The depth is checked before parsing, because
 * jansson recurses once per level, up to 2048 levels. The result may be wrong for invalid JSON,
 * which the parser rejects anyway. */
static bool is_too_deep(const char *s, size_t len)
{
    int depth = 0;
    bool is_in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        if (is_in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                is_in_string = false;
        } else if (c == '"') {
            is_in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

json_t *json_parse(const char *s, size_t len, struct err *err)
{
    if (len > SIZE_MAX_BYTES) {
        err_set(err, -EFBIG, "the JSON is too large: %zu bytes (maximum 16 MiB)", len);
        return NULL;
    }
    if (is_too_deep(s, len)) {
        err_set(err, -ELOOP, "the JSON is nested more than %d levels deep", DEPTH_MAX);
        return NULL;
    }
    json_error_t why = {0};
    /* NUL is allowed because json_text writes it, and ebb must be able to read its own files */
    json_t *doc = json_loadb(len ? s : "", len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!doc)
        err_set(err, -EINVAL, "not valid JSON at line %d, column %d: %s", why.line, why.column,
                why.text);
    return doc;
}

json_t *json_local_time(uint64_t wall_ns)
{
    char text[TEXT_LOCAL_MAX];
    return text_local_time(text, wall_ns)[0] ? json_string(text) : json_null();
}

bool json_is_crowded(const char *s, size_t len, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += s[i] == ',' || s[i] == '[' || s[i] == '{';
    return count > max;
}

int json_refuse(struct err *err, const char *key, const json_t *value, const char *why)
{
    enum { SHOWN_MAX = 100 };
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    char shown[SHOWN_MAX + 1];
    text_copy(shown, sizeof shown, text);
    bool is_cut = text && strlen(shown) < strlen(text);
    free(text);
    return err_set(err, -EINVAL, "%s: %s%s %s", key, shown, is_cut ? "…" : "", why);
}
