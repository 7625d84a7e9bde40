/* The client side of HTTP/1.0: writes a request and reads the complete answer. */
#include "cli/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/number.h"

enum {
    HEAD_MAX = 16 << 10, /* maximum size of an answer's headers, in bytes */
    /* Maximum size of a JSON document, in bytes. A body that is not JSON has no limit, because it
     * is passed on in parts. */
    DOC_MAX = 16 << 20,
    ERROR_MAX = 64 << 10, /* maximum size of an error's body, in bytes */
    /* time limit for the answer, and for each further part of its body, in seconds */
    PATIENCE_S = 30,
};

/* A connection, and the part of the answer that was read so far. */
struct connection {
    int fd;
    uint64_t deadline_ns;
    struct buf in;
    size_t at; /* number of bytes of IN that are already parsed */
    bool is_over;
};

/* ---- the server's socket ---- */

static int join(char ret[PATH_MAX], const char *folder, const char *name, struct err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", folder, name);
    return n >= PATH_MAX ? err_set(err, -ENAMETOOLONG, "path too long: %.200s", folder) : 0;
}

int client_state_dir(const char *given, char ret[PATH_MAX], struct err *err)
{
    const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
    const char *own = getenv("EBB_STATE_DIR");
    char here[PATH_MAX];
    if (!given && own && *own)
        given = own;
    if (given && given[0] == '/') {
        size_t len = strlen(given);
        while (len > 1 && given[len - 1] == '/')
            len--;
        if (len >= PATH_MAX)
            return err_set(err, -ENAMETOOLONG, "path too long: %.200s", given);
        snprintf(ret, PATH_MAX, "%.*s", (int)len, given);
        return 0;
    }
    if (given) {
        if (!getcwd(here, sizeof here))
            return err_set(err, -errno, "cannot find the working directory: %s", strerror(errno));
        return join(ret, here, given, err);
    }
    if (state && state[0] == '/')
        return join(ret, state, "ebb", err);
    if (!home || home[0] != '/')
        return err_set(err, -ENOENT, "$HOME is not set; give the state folder with --state-dir");
    return join(ret, home, ".local/state/ebb", err);
}

static int find_socket(const char *given, char ret[PATH_MAX], struct err *err)
{
    const char *env = getenv("EBB_SERVER");
    char folder[PATH_MAX];
    if (!given && env && *env)
        given = env;
    if (given) {
        snprintf(ret, PATH_MAX, "%s", given);
        return 0;
    }
    int r = client_state_dir(NULL, folder, err);
    return r < 0 ? r : join(ret, folder, "sock", err);
}

static int fail_connect(const char *path, int code, struct err *err)
{
    if (code == -ENOENT || code == -ECONNREFUSED)
        return err_set(err, -ENOENT,
                       "no server at %.200s; start one with `ebb serve`, or give its socket "
                       "with --socket or $EBB_SERVER",
                       path);
    if (code == -EACCES || code == -EPERM)
        return err_set(err, code, "the server at %.200s belongs to another user", path);
    return err_set(err, code, "cannot reach the server at %.200s: %s", path, strerror(-code));
}

static int connect_to(const char *path, int *ret, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return err_set(err, -ENAMETOOLONG, "path too long for a socket: %.200s", path);
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "cannot create a socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) < 0) {
        int r = fail_connect(path, -errno, err);
        close(fd);
        return r;
    }
    *ret = fd;
    return 0;
}

/* ---- transferring bytes ---- */

static int wait_for(const struct connection *t, short events, struct err *err)
{
    uint64_t now = clock_mono_ns();
    struct pollfd p = {.fd = t->fd, .events = events};
    uint64_t left_ms = now < t->deadline_ns ? (t->deadline_ns - now) / NS_PER_MS + 1 : 0;
    int r = left_ms ? poll(&p, 1, (int)left_ms) : 0;
    if (r < 0 && errno != EINTR)
        return err_set(err, -errno, "cannot wait for the server: %s", strerror(errno));
    if (r == 0)
        return err_set(err, -ETIMEDOUT, "the server does not answer");
    return 0;
}

static int send_all(const struct connection *t, const char *data, size_t len, struct err *err)
{
    while (len) {
        int r = wait_for(t, POLLOUT, err);
        if (r < 0)
            return r;
        ssize_t n = send(t->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return err_set(err, -errno, "the server closed the connection: %s", strerror(errno));
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Reads more of the answer. Returns 1 if bytes were read, 0 at the end of the stream, or -errno. */
static int read_more(struct connection *t, struct err *err)
{
    enum { CHUNK = 64 << 10 };
    if (t->is_over)
        return 0;
    if (t->at) {
        memmove(t->in.data, t->in.data + t->at, t->in.len - t->at);
        t->in.len -= t->at;
        t->at = 0;
    }
    if (buf_reserve(&t->in, CHUNK) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    for (;;) {
        int r = wait_for(t, POLLIN, err);
        if (r < 0)
            return r;
        ssize_t n = recv(t->fd, t->in.data + t->in.len, CHUNK, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return err_set(err, -errno, "the server closed the connection: %s", strerror(errno));
        t->is_over = n == 0;
        t->in.len += (size_t)n;
        return n > 0;
    }
}

static int cut_short(struct err *err)
{
    return err_set(err, -EBADMSG, "the server's answer is incomplete");
}

static int no_http(struct err *err)
{
    return err_set(err, -EBADMSG, "the program that answered on the socket is not an ebb server");
}

/* Returns the next line without its line end. The pointer is valid until the next read. */
static int read_line(struct connection *t, const char **ret, size_t *ret_len, struct err *err)
{
    for (;;) {
        size_t there = t->in.len - t->at;
        const char *from = there ? t->in.data + t->at : NULL;
        const char *end = there ? memchr(from, '\n', there) : NULL;
        if (end) {
            *ret = from;
            *ret_len = (size_t)(end - from);
            t->at += *ret_len + 1;
            if (*ret_len && from[*ret_len - 1] == '\r')
                (*ret_len)--;
            return 0;
        }
        if (there > HEAD_MAX)
            return no_http(err);
        int r = read_more(t, err);
        if (r <= 0)
            return r < 0 ? r : cut_short(err);
    }
}

/* ---- the head ---- */

struct head {
    unsigned status;
    bool has_length;
    uint64_t length;
};

static bool take_number(const char *s, size_t len, uint64_t *ret)
{
    int64_t n;
    if (number_parse_i64(s, len, &n) < 0 || n < 0)
        return false;
    *ret = (uint64_t)n;
    return true;
}

static bool is_called(const char *line, size_t len, const char *name)
{
    return len == strlen(name) && strncasecmp(line, name, len) == 0;
}

static void take_header(struct head *h, struct client_answer *a, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return;
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1;
    size_t value_len = len - name_len - 1;
    while (value_len && (*value == ' ' || *value == '\t')) {
        value++;
        value_len--;
    }
    if (is_called(line, name_len, "content-length"))
        h->has_length = take_number(value, value_len, &h->length);
    else if (is_called(line, name_len, "x-log-offset"))
        a->has_offset = take_number(value, value_len, &a->offset);
    else if (is_called(line, name_len, "x-log-end"))
        a->has_end = take_number(value, value_len, &a->end);
    else if (is_called(line, name_len, "retry-after"))
        take_number(value, value_len, &a->retry_after_s);
}

static int read_head(struct connection *t, struct head *h, struct client_answer *a, struct err *err)
{
    const char *line = "";
    size_t len = 0, all = 0;
    uint64_t status;
    int r = read_line(t, &line, &len, err);
    if (r < 0)
        return r;
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' ||
        !take_number(line + 9, 3, &status))
        return no_http(err);
    h->status = (unsigned)status;
    while ((r = read_line(t, &line, &len, err)) == 0 && len) {
        all += len;
        if (all > HEAD_MAX)
            return no_http(err);
        take_header(h, a, line, len);
    }
    return r;
}

/* ---- the body ---- */

/* Passes the body to FN. If the headers do not contain the body's length, the body ends with the
 * stream. */
static int pass_body(struct connection *t, const struct head *h, client_body_fn *fn, void *user,
                     struct err *err)
{
    bool is_open = !h->has_length;
    uint64_t len = is_open ? UINT64_MAX : h->length;
    while (len) {
        size_t there = t->in.len - t->at;
        size_t n = there < len ? there : (size_t)len;
        if (n && fn(user, t->in.data + t->at, n) != 0)
            return -ECANCELED;
        /* a slow reader of our output must not cause a timeout, so the time limit starts again */
        if (n)
            t->deadline_ns = clock_mono_ns() + PATIENCE_S * NS_PER_S;
        t->at += n;
        if (!is_open)
            len -= n;
        if (!len)
            break;
        int r = read_more(t, err);
        if (r < 0 || (r == 0 && is_open))
            return r;
        if (r == 0)
            return cut_short(err);
    }
    return 0;
}

struct keep {
    struct buf text;
    size_t max;
};

static int keep_bytes(void *user, const char *data, size_t len)
{
    struct keep *k = user;
    if (k->text.len + len > k->max)
        return -EFBIG;
    buf_add(&k->text, data, len);
    return k->text.failed ? -ENOMEM : 0;
}

static int take_doc(struct connection *t, const struct head *h, struct client_answer *a,
                    struct err *err)
{
    bool is_good = h->status / 100 == 2;
    struct keep k = {.max = is_good ? DOC_MAX : ERROR_MAX};
    struct err why = {""};
    int r = pass_body(t, h, keep_bytes, &k, err);
    if (r == -ECANCELED)
        r = err_set(err, -EFBIG, "the server's answer is too long");
    if (r == 0 && k.text.len)
        a->doc = json_parse(k.text.data, k.text.len, &why);
    buf_fini(&k.text);
    if (r < 0 || is_good)
        return r < 0 ? r : a->doc ? 0 : err_set(err, -EBADMSG, "the server's answer is not JSON");
    const char *sentence =
        json_string_value(json_object_get(json_object_get(a->doc, "error"), "message"));
    if (sentence)
        return err_set(err, -EREMOTEIO, "%s", sentence);
    return err_set(err, -EREMOTEIO, "the server answered with HTTP status %u", h->status);
}

/* ---- the complete request ---- */

static int send_request(const struct connection *t, const struct client_request *q, struct err *err)
{
    struct buf text = {0}, body = {0};
    if (q->body)
        json_print(&body, q->body, 0);
    /* with HTTP/1.0, the server closes the connection after the answer and sends no chunks */
    buf_printf(&text, "%s %s HTTP/1.0\r\nHost: localhost\r\n", q->method, q->path);
    if (strcmp(q->method, "GET") != 0)
        buf_printf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    buf_add_str(&text, "\r\n");
    buf_add(&text, body.data, body.len);
    int r = text.failed || body.failed ? err_set(err, -ENOMEM, "out of memory")
                                       : send_all(t, text.data, text.len, err);
    buf_fini(&text);
    buf_fini(&body);
    return r;
}

int client_receive(int fd, const struct client_request *q, struct client_answer *ret,
                   struct err *err)
{
    struct connection t = {.fd = fd,
                           .deadline_ns = clock_mono_ns() + (PATIENCE_S + q->wait_s) * NS_PER_S};
    struct head h = {0};
    *ret = (struct client_answer){0};
    int r = read_head(&t, &h, ret, err);
    ret->status = h.status;
    if (r == 0 && q->fn && h.status / 100 == 2)
        r = pass_body(&t, &h, q->fn, q->user, err);
    else if (r == 0)
        r = take_doc(&t, &h, ret, err);
    buf_fini(&t.in);
    return r;
}

int client_ask(const struct client_request *q, struct client_answer *ret, struct err *err)
{
    char path[PATH_MAX];
    struct connection t = {.fd = -1, .deadline_ns = clock_mono_ns() + PATIENCE_S * NS_PER_S};
    *ret = (struct client_answer){0};
    int r = find_socket(q->socket, path, err);
    if (r == 0)
        r = connect_to(path, &t.fd, err);
    if (r < 0)
        return r;
    r = send_request(&t, q, err);
    if (r == 0)
        r = client_receive(t.fd, q, ret, err);
    close(t.fd);
    return r;
}

void client_answer_fini(struct client_answer *answer)
{
    json_decref(answer->doc);
    *answer = (struct client_answer){0};
}

int client_json(const char *socket, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *err)
{
    const struct client_request request = {
        .socket = socket, .method = method, .path = path, .body = body};
    struct client_answer answer;
    int r = client_ask(&request, &answer, err);
    if (r < 0)
        client_answer_fini(&answer);
    *ret = answer.doc;
    return r;
}

int client_parse_id(const char *text, int64_t *ret, struct err *err)
{
    if (number_parse_i64(text, strlen(text), ret) == 0 && *ret > 0)
        return 0;
    return err_set(err, -EINVAL, "invalid job id \"%.100s\"; `ebb jobs` lists the jobs", text);
}

bool client_encode(const char *s, char *out, size_t size)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,";
    size_t n = 0;
    for (; *s; s++) {
        bool is_plain = strchr(plain, *s) != NULL;
        if (n + (is_plain ? 1 : 3) >= size)
            return false;
        if (is_plain)
            out[n++] = *s;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*s);
    }
    out[n] = '\0';
    return true;
}
