/* Parses the request target (path and query), and gives handlers access to a request's parts. */
#include "server/http/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "server/http/http_private.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes S in place. Returns NULL, or the reason why S is invalid. */
static const char *decode(char *s, bool is_query)
{
    char *to = s;
    for (const char *from = s; *from; from++, to++) {
        if (*from == ' ')
            return "the request target contains a space";
        *to = is_query && *from == '+' ? ' ' : *from;
        if (*from == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0)
                return "the request target contains an invalid % escape";
            *to = (char)(high << 4 | low);
            from += 2;
        }
        if ((unsigned char)*to < ' ' || *to == 0x7f)
            return "the request target contains a control character";
    }
    *to = '\0';
    uint32_t c;
    for (size_t i = 0, n, len = (size_t)(to - s); i < len; i += n) {
        n = text_utf8(s + i, len - i, &c);
        if (n == 0)
            return "the request target is not UTF-8";
    }
    return NULL;
}

/* Returns the reason why PATH is invalid, or NULL. Refuses segments such as "..", which leave a
 * folder, and alternative spellings of a path. */
static const char *check_path(const char *path)
{
    if (path[0] != '/')
        return "the request target does not begin with /";
    if (strchr(path, '\\'))
        return "the request target contains a backslash";
    for (const char *p = path; (p = strchr(p, '/')) != NULL; p++) {
        size_t len = strcspn(p + 1, "/");
        if ((len == 0 && p[1]) || (len == 1 && p[1] == '.') ||
            (len == 2 && p[1] == '.' && p[2] == '.'))
            return "the path contains an empty segment, \".\" or \"..\"";
    }
    return NULL;
}

static const char *split_query(struct http_request *r, char *query)
{
    char *rest = query, *pair;
    while ((pair = strsep(&rest, "&")) != NULL) {
        if (!*pair)
            continue;
        if (r->query_count == HTTP_QUERY_MAX)
            return "too many query parameters (maximum 16)";
        char *value = strchr(pair, '=');
        if (value)
            *value++ = '\0';
        const char *why = decode(pair, true);
        if (!why && value)
            why = decode(value, true);
        if (why)
            return why;
        if (http_query(r, pair))
            return "a query parameter is repeated";
        r->query[r->query_count++] = (struct http_pair){pair, value ? value : ""};
    }
    return NULL;
}

struct http_request *http_request_new(struct http *h, const char *uri)
{
    size_t len = strlen(uri), path_len = strcspn(uri, "?");
    struct http_request *r = calloc(1, sizeof *r + 2 * (len + 1));
    if (!r)
        return NULL;
    r->http = h;
    r->method = HTTP_OTHER;
    r->raw_address = uri;
    r->raw_len = len;
    memcpy(r->text, uri, len + 1);
    r->query_text = uri[path_len] ? r->text + path_len + 1 : r->text + len;
    r->path = r->text + len + 1;
    memcpy(r->path, uri, len + 1);
    char *query = uri[path_len] ? r->path + path_len + 1 : NULL;
    r->path[path_len] = '\0';
    bool has_slash = strcasestr(r->path, "%2f") != NULL;
    r->refusal = decode(r->path, false);
    if (!r->refusal)
        r->refusal = has_slash ? "the request target contains an escaped /" : check_path(r->path);
    if (!r->refusal && query)
        r->refusal = split_query(r, query);
    return r;
}

void http_request_free(struct http_request *r)
{
    struct http *h = r->http;
    if (r->state == REQUEST_WAITING)
        http_request_leave(r);
    http_share_return(&h->bodies, r->rank, r->body_held);
    http_share_return(&h->answers, r->rank, r->answer_bytes);
    buf_fini(&r->body);
    for (size_t i = 0; i < r->header_count; i++) {
        union {
            const char *in;
            char *out;
        } value = {r->headers[i].value};
        free(value.out);
    }
    if (r->response)
        MHD_destroy_response(r->response);
    free(r);
}

enum http_method http_method(const struct http_request *r)
{
    return r->method;
}

const char *http_path(const struct http_request *r)
{
    return r->path;
}

const char *http_query(const struct http_request *r, const char *key)
{
    for (size_t i = 0; i < r->query_count; i++) {
        if (strcmp(r->query[i].key, key) == 0)
            return r->query[i].value;
    }
    return NULL;
}

const char *http_query_key(const struct http_request *r, size_t index)
{
    return index < r->query_count ? r->query[index].key : NULL;
}

const char *http_query_text(const struct http_request *r)
{
    return r->query_text;
}

const char *http_header(const struct http_request *r, const char *key)
{
    return MHD_lookup_connection_value(r->connection->mhd, MHD_HEADER_KIND, key);
}

const char *http_cookie(const struct http_request *r, const char *key)
{
    return MHD_lookup_connection_value(r->connection->mhd, MHD_COOKIE_KIND, key);
}

const char *http_body(const struct http_request *r, size_t *ret_len)
{
    *ret_len = r->body.len;
    return r->body.len ? r->body.data : "";
}

bool http_is_unix(const struct http_request *r)
{
    return r->connection->daemon->is_unix;
}

bool http_is_answered(const struct http_request *r)
{
    return r->state == REQUEST_DRAINING || r->state == REQUEST_ANSWERED;
}

void *http_context(struct http_request *r)
{
    return r->context;
}
