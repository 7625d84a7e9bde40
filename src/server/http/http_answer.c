/* Answers requests with JSON, text, files, embedded assets and errors. All answers have headers
 * that restrict what a browser may do with them. */
#include "server/http/http.h"
#include "server/http/http_answer.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "present/assets.h"
#include "server/http/http_private.h"

static const struct http_pair usual[] = {
    {"X-Content-Type-Options", "nosniff"},
    {"Cache-Control", "no-store"},
    {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

static bool has_header(const struct http_request *r, const char *key)
{
    for (size_t i = 0; i < r->header_count; i++) {
        if (strcasecmp(r->headers[i].key, key) == 0)
            return true;
    }
    return false;
}

void http_add_header(struct http_request *r, const char *key, const char *value)
{
    assert(r->state < REQUEST_DRAINING && r->header_count < HTTP_HEADERS_MAX);
    char *copy = strdup(value);
    if (copy)
        r->headers[r->header_count++] = (struct http_pair){key, copy};
}

static void put_headers(struct http_request *r, struct MHD_Response *response)
{
    for (size_t i = 0; i < r->header_count; i++)
        MHD_add_response_header(response, r->headers[i].key, r->headers[i].value);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (!has_header(r, usual[i].key))
            MHD_add_response_header(response, usual[i].key, usual[i].value);
    }
}

/* Answers a request. Takes ownership of RESPONSE. If RESPONSE is NULL (out of memory), the
 * connection is closed. */
static void answer(struct http_request *r, unsigned status, struct MHD_Response *response)
{
    assert(r->state < REQUEST_DRAINING);
    r->status = status;
    r->response = response;
    if (response)
        put_headers(r, response);
    http_request_resume(r);
    r->state = REQUEST_ANSWERED;
}

enum MHD_Result http_request_queue(struct http_request *r)
{
    r->connection->deadline_ns = clock_mono_ns() + HTTP_ANSWER_MAX_S * NS_PER_S;
    if (r->connection->state == CONNECTION_READING)
        r->connection->state = CONNECTION_BUSY;
    if (!r->response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(r->connection->mhd, r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    return result;
}

/* Reserves memory for an answer of LEN bytes. Returns false if too many large answers are being
 * sent: answers stay in memory until slow clients have read them, so their total size is
 * limited. */
static bool has_room(struct http_request *r, size_t len)
{
    struct http *h = r->http;
    if (len <= HTTP_ANSWER_SMALL)
        return true;
    if (!http_share_take(&h->answers, r->rank, len, HTTP_ANSWERS_MAX))
        return false;
    r->answer_bytes = len;
    return true;
}

/* Answers with LEN bytes. Takes ownership of DATA. */
static void answer_bytes(struct http_request *r, unsigned status, const char *type, char *data,
                         size_t len)
{
    if (!has_room(r, len)) {
        free(data);
        http_answer_error(r, 503, "too many large answers are being sent; try again");
        return;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(data);
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    answer(r, status, response);
}

void http_answer_text(struct http_request *r, unsigned status, const char *type, const void *data,
                      size_t len)
{
    char *copy = malloc(len + 1);
    if (!copy) {
        answer(r, status, NULL);
        return;
    }
    memcpy(copy, data, len);
    answer_bytes(r, status, type, copy, len);
}

void http_answer_json(struct http_request *r, unsigned status, json_t *doc)
{
    struct buf text = {0};
    int failed = doc ? json_print(&text, doc, 0) : -1;
    json_decref(doc);
    if (failed || text.failed) {
        buf_fini(&text);
        answer(r, status, NULL);
        return;
    }
    answer_bytes(r, status, "application/json", text.data, text.len);
}

static json_t *error_json(unsigned status, const char *text, size_t len)
{
    return json_pack("{s:{s:i, s:o}}", "error", "status", (int)status, "message",
                     json_text(text, len));
}

void http_answer_print(struct buf *out, unsigned status, const char *why)
{
    struct buf body = {0};
    json_t *doc = error_json(status, why, strlen(why));
    json_print(&body, doc, 0);
    json_decref(doc);
    buf_printf(out,
               "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n",
               status, MHD_get_reason_phrase_for(status), body.len);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        buf_printf(out, "%s: %s\r\n", usual[i].key, usual[i].value);
    buf_add_str(out, "\r\n");
    buf_add(out, body.data, body.len);
    out->failed = out->failed || body.failed;
    buf_fini(&body);
}

void http_answer_error(struct http_request *r, unsigned status, const char *fmt, ...)
{
    struct buf sentence = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&sentence, fmt, ap);
    va_end(ap);
    r->http->counts.refused++;
    if (status == 429 || status == 503)
        http_add_header(r, "Retry-After", "2");
    http_answer_json(r, status, error_json(status, buf_str(&sentence), sentence.len));
    buf_fini(&sentence);
}

struct stream {
    struct http_request *request;
    http_read_fn *read;
    void *user;
    void (*free_user)(void *user);
};

static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct stream *s = cls;
    ssize_t n = s->request->state == REQUEST_GONE ? -1 : s->read(s->user, pos, buf, max);
    if (n == -EAGAIN) {
        /* READ has no data yet; http_stream_go_on makes MHD call this function again */
        s->request->gone = s->request->late = NULL;
        http_request_wait(s->request);
        return 0;
    }
    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}

void http_stream_go_on(struct http_request *r)
{
    if (r->state != REQUEST_WAITING) /* the client has disconnected */
        return;
    http_request_resume(r);
    r->state = REQUEST_ANSWERED;
}

static void free_stream(void *cls)
{
    struct stream *s = cls;
    s->free_user(s->user);
    free(s);
}

void http_answer_stream(struct http_request *r, unsigned status, const char *type, uint64_t len,
                        http_read_fn *read, void *user, void (*free_user)(void *user))
{
    struct stream *s = malloc(sizeof *s);
    struct MHD_Response *response =
        s ? MHD_create_response_from_callback(len, 32 << 10, read_stream, s, free_stream) : NULL;
    if (response) {
        *s = (struct stream){r, read, user, free_user};
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    } else {
        free(s);
        free_user(user);
    }
    answer(r, status, response);
}

/* True if the client accepts gzip. "q=0" in its header means that it does not. */
static bool takes_gzip(const struct http_request *r)
{
    const char *accept = http_header(r, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    const char *at = accept ? strcasestr(accept, "gzip") : NULL;
    if (!at)
        return false;
    at += 4;
    at += strspn(at, " ");
    if (*at != ';')
        return true;
    const char *q = strcasestr(at, "q=");
    const char *comma = strchr(at, ',');
    return !q || (comma && q > comma) || strtod(q + 2, NULL) > 0;
}

/* Decompresses an asset. Returns NULL if memory ran out or too many large answers are being
 * sent. */
static struct MHD_Response *unpack(struct http_request *r, const void *gz, size_t len)
{
    struct buf out = {0};
    struct MHD_Response *response =
        asset_gunzip(gz, len, &out) == 0 && has_room(r, out.len)
            ? MHD_create_response_from_buffer(out.len, out.data, MHD_RESPMEM_MUST_FREE)
            : NULL;
    if (!response)
        buf_fini(&out);
    return response;
}

static struct MHD_Response *of_static(const void *data, size_t len)
{
    union {
        const void *in;
        void *out;
    } p = {data};
    return MHD_create_response_from_buffer(len, p.out, MHD_RESPMEM_PERSISTENT);
}

void http_answer_gzip(struct http_request *r, const char *type, const char *etag, const void *gz,
                      size_t len)
{
    const char *known = http_header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
    if (!has_header(r, "Cache-Control"))
        http_add_header(r, "Cache-Control", "no-cache");
    http_add_header(r, "Vary", "Accept-Encoding");
    if (etag)
        http_add_header(r, "ETag", etag);
    if (etag && known && strcmp(known, etag) == 0) {
        answer(r, 304, of_static("", 0));
        return;
    }
    bool is_packed = takes_gzip(r);
    struct MHD_Response *response = is_packed ? of_static(gz, len) : unpack(r, gz, len);
    if (response) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        if (is_packed)
            MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    }
    answer(r, 200, response);
}

void http_upgrade(struct http_request *r, http_upgrade_fn *fn, void *user)
{
    r->upgrade = fn;
    r->upgrade_user = user;
    answer(r, 101, MHD_create_response_for_upgrade(http_upgraded_fn, NULL));
}
