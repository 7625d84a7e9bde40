/* Checks the head of a request: refuses everything that two HTTP parsers could interpret
 * differently. */
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/number.h"
#include "server/http/http_private.h"

enum { LINE_END = 2 }; /* CR LF */

/* Headers that must not be repeated, because parsers disagree on whether the first or the last one
 * is valid. */
static const char *const single[] = {"Host",
                                     "Content-Length",
                                     "Transfer-Encoding",
                                     "Authorization",
                                     "Origin",
                                     "Content-Type",
                                     "Range",
                                     "Cookie",
                                     "Expect",
                                     "Sec-Fetch-Site",
                                     "Sec-WebSocket-Key",
                                     "Sec-WebSocket-Protocol",
                                     "X-Ebb-Key",
                                     "Upgrade"};
enum { SINGLES = sizeof single / sizeof *single, HOST = 0, LENGTH = 1, ENCODING = 2 };

struct head_check {
    const char *at; /* position at which the next header must begin in strict HTTP */
    bool is_strict, has_odd_key, has_control;
    unsigned count[SINGLES];
    const char *value[SINGLES];
};

/* True if KEY contains only characters that are valid in a header name. Some parsers, but not all,
 * accept "Content-Length : 5" as a Content-Length. */
static bool is_token(const char *key)
{
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *key && strspn(key, letters) == strlen(key);
}

static bool has_control(const char *value)
{
    for (; *value; value++) {
        if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
            return true;
    }
    return false;
}

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    (void)kind;
    struct head_check *c = cls;
    value = value ? value : "";
    const char *text = key + strlen(key) + 1;
    c->is_strict = c->is_strict && key == c->at && value == text + strspn(text, " \t");
    c->at = value + strlen(value) + LINE_END;
    c->has_odd_key = c->has_odd_key || !is_token(key);
    c->has_control = c->has_control || has_control(value);
    for (size_t i = 0; i < SINGLES; i++) {
        if (strcasecmp(key, single[i]) == 0) {
            c->count[i]++;
            c->value[i] = value;
        }
    }
    return MHD_YES;
}

/* True if the head is strict HTTP. libmicrohttpd 0.9 writes a NUL after every part of the head, in
 * place. A NUL that the client sends also ends a part, and the rest of that part is lost.
 * libmicrohttpd also accepts lines that end in LF alone, and folded lines, whose text it appends to
 * the header's name. All of these shift the parts that follow. In a strict request each part begins
 * right after the previous part, and the last part ends where the head ends. Two kinds of invalid
 * line ends are not detected: "\0\n" instead of CR LF, and "\0\n" or ":\n" instead of the empty
 * line. Both are harmless: they end the line or the head without hiding any of it. */
static bool is_strict(const struct http_request *r, const struct head_check *c, const char *method,
                      const char *version)
{
    static const char end[2 * LINE_END] = {0};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return c->is_strict && info && method + strlen(method) + 1 == r->raw_address &&
           r->raw_address + r->raw_len + 1 == version &&
           c->at + LINE_END == method + info->header_size &&
           memcmp(c->at - LINE_END, end, sizeof end) == 0;
}

/* Returns the reason why the headers are invalid, or NULL. */
static const char *check_headers(const struct head_check *c)
{
    if (c->has_odd_key)
        return "invalid character in a header name";
    if (c->has_control)
        return "control character in a header";
    for (size_t i = 0; i < SINGLES; i++) {
        if (c->count[i] > 1)
            return "a header that may appear only once is repeated";
    }
    if (c->count[LENGTH] && c->count[ENCODING])
        return "Content-Length and Transfer-Encoding cannot be combined";
    if (c->count[ENCODING] && strcasecmp(c->value[ENCODING], "chunked") != 0)
        return "Transfer-Encoding must be chunked";
    return NULL;
}

static unsigned check_length(struct http_request *r, const struct head_check *c,
                             const char **ret_why)
{
    int64_t length = 0;
    const char *text = c->value[LENGTH];
    if (c->count[LENGTH] && (number_parse_i64(text, strlen(text), &length) < 0 || length < 0)) {
        *ret_why = "Content-Length is not a number";
        return 400;
    }
    r->has_body = length > 0 || c->count[ENCODING];
    if (length > HTTP_BODY_MAX) {
        *ret_why = "the body is larger than 1 MiB";
        return 413;
    }
    return 0;
}

bool http_head_is_lenient(void)
{
    return strncmp(MHD_get_version(), "0.", 2) == 0;
}

unsigned http_head_check(struct http_request *r, const char *method, const char *version,
                         const char **ret_why)
{
    struct head_check c = {.at = version + strlen(version) + LINE_END, .is_strict = true};
    MHD_get_connection_values(r->connection->mhd, MHD_HEADER_KIND, count_header, &c);
    *ret_why = NULL;
    if (http_head_is_lenient() && !is_strict(r, &c, method, version))
        *ret_why =
            "the request contains a NUL, a line that does not end in CR LF, or a folded header";
    else if (!c.count[HOST] && strcmp(version, "HTTP/1.0") != 0)
        *ret_why = "the Host header is missing";
    else
        *ret_why = check_headers(&c);
    if (!*ret_why)
        *ret_why = r->refusal;
    return *ret_why ? 400 : check_length(r, &c, ret_why);
}

/* ---- errors that MHD would answer twice ---- */

/* Answers a request that libmicrohttpd 0.9 itself refuses. If a complete head is invalid (for
 * example, Content-Length is not a number), libmicrohttpd sends the head of its answer twice.
 * Before it answers, it logs an error, and the logger is the only callback that it calls in this
 * case. So the logger calls this function, which sends the answer and shuts the socket down. */
static void refuse(struct http_connection *c)
{
    struct head_check check = {0};
    struct buf text = {0};
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, count_header, &check);
    const char *why = check_headers(&check);
    unsigned status = why ? 400 : check_length(c->request, &check, &why);
    http_answer_print(&text, status ? status : 431, why ? why : "the headers are too large");
    if (!text.failed)
        send(c->fd, text.data, text.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    buf_fini(&text);
    http_connection_cut(c);
}

void http_head_error(void *cls, const char *fmt, va_list ap)
{
    (void)fmt, (void)ap;
    struct http_daemon *d = cls;
    struct http_connection *c;
    if (!http_head_is_lenient())
        return;
    LIST_FOREACH(c, &d->http->connections, link)
    {
        /* header_size is set once all headers are read, right before the handler is called */
        if (c->daemon == d && c->request && c->request->state == REQUEST_ADDRESS &&
            c->state != CONNECTION_CUT &&
            MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)) {
            d->http->counts.refused++;
            refuse(c);
        }
    }
}
