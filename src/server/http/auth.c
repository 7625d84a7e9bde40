/* Tokens, the page's sessions, and the host names that requests may use for this server. */
#include "server/http/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "server/http/http.h"

#define COOKIE "ebb"
#define KEY_PROTOCOL "ebb-key."
static const char sessions_file[] = "sessions";

enum { TOKEN_MIN = 32, TOKEN_MAX = 256, WRONG_MAX = 10, SESSION_DAYS = 30 };
/* After WRONG_MAX wrong tokens, one more wrong token is allowed per interval of this length. */
static const uint64_t wrong_every_ns = 6 * NS_PER_S;
static const uint64_t session_ns = UINT64_C(86400) * SESSION_DAYS * NS_PER_S;

/* ---- secrets ---- */

/* Generates 256 random bits in hexadecimal. Returns 0 or -errno. */
static int secret_make(char ret[AUTH_SECRET_SIZE])
{
    return io_random_hex((AUTH_SECRET_SIZE - 1) / 2, ret);
}

bool auth_secret_equal(const char *given, const char *secret)
{
    size_t given_len = strlen(given), secret_len = strlen(secret);
    volatile size_t differs = given_len ^ secret_len;
    for (size_t i = 0; i < given_len; i++)
        differs =
            differs | (size_t)(unsigned char)(given[i] ^ secret[secret_len ? i % secret_len : 0]);
    return differs == 0 && secret_len > 0;
}

static int make_token_file(int dirfd, const char *name)
{
    char text[AUTH_SECRET_SIZE];
    int r = secret_make(text);
    if (r < 0)
        return r;
    AUTO_CLOSE int fd =
        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    text[AUTH_SECRET_SIZE - 1] = '\n';
    r = io_write_all(fd, text, AUTH_SECRET_SIZE);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(dirfd, name, 0);
    return r;
}

static int check_token(char *token, size_t len)
{
    while (len > 0 && strchr("\n\r \t", token[len - 1]))
        token[--len] = '\0';
    if (len < TOKEN_MIN || len > TOKEN_MAX)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            return -EINVAL;
    }
    return 0;
}

/* Reads the token in DIRFD/NAME: one line of 32 to 256 visible characters. If the file is missing,
 * creates it if MAY_MAKE is set, and otherwise returns -ENOENT. Returns -EPERM if other
 * users may read the file. PATH is for the error message. */
static int read_token(int dirfd, const char *name, const char *path, bool may_make,
                      char ret[TOKEN_MAX + 1], struct err *err)
{
    char text[TOKEN_MAX + 16];
    struct stat st;
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    AUTO_CLOSE int fd = openat(dirfd, name, flags);
    if (fd < 0 && errno == ENOENT && may_make) {
        int r = make_token_file(dirfd, name);
        if (r < 0)
            return err_set(err, r, "cannot create %s/%s: %s", path, name, strerror(-r));
        fd = openat(dirfd, name, flags);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot open %s/%s: %s", path, name, strerror(errno));
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != geteuid() && st.st_uid != 0))
        return err_set(
            err, -EPERM,
            "%s/%s must be readable by the server's user only; run `chmod 600` on it, or "
            "remove it to get a new one",
            path, name);
    ssize_t n = io_pread_small(fd, text, sizeof text);
    if (n < 0)
        return err_set(err, (int)n, "cannot read %s/%s: %s", path, name, strerror((int)-n));
    if (check_token(text, (size_t)n) < 0)
        return err_set(
            err, -EINVAL,
            "%s/%s must contain one line of %d to %d visible characters; remove it to get "
            "a new one",
            path, name, TOKEN_MIN, TOKEN_MAX);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

/* ---- sessions ---- */

struct session {
    char name[AUTH_SECRET_SIZE]; /* value of the session's cookie; "" if the entry is unused */
    char key[AUTH_SECRET_SIZE], view[AUTH_SECRET_SIZE];
    enum http_rank rank;
    uint64_t since_ns, used_ns; /* wall-clock times, because sessions survive a restart */
};

struct auth {
    int dirfd;
    char token[TOKEN_MAX + 1], token_read[TOKEN_MAX + 1];
    const char *const *hosts;
    struct session sessions[AUTH_SESSIONS_MAX];
    /* number of recent wrong tokens; decreases by one every wrong_every_ns */
    unsigned wrong;
    uint64_t wrong_ns; /* time at which WRONG was last reduced */
};

/* Saves the sessions. A failure is ignored; users then have to log in again after a restart. */
static void save_sessions(const struct auth *a)
{
    struct buf text = {0};
    for (const struct session *s = a->sessions; s < a->sessions + AUTH_SESSIONS_MAX; s++) {
        if (s->name[0])
            buf_printf(&text, "%s %s %s %c %llu\n", s->name, s->key, s->view,
                       s->rank == HTTP_OWNER ? 'w' : 'r', (unsigned long long)s->since_ns);
    }
    mode_t mask = umask(077);
    if (!text.failed)
        io_replace_file(a->dirfd, sessions_file, buf_str(&text), text.len);
    umask(mask);
    buf_fini(&text);
}

/* Finds a session. Always compares NAME with the names of all sessions, so that the run time does
 * not reveal which one matches. Sessions stay valid if the clock is set back. */
static struct session *find_session(struct auth *a, const char *name, uint64_t now_ns)
{
    struct session *found = NULL;
    for (struct session *s = a->sessions; s < a->sessions + AUTH_SESSIONS_MAX; s++) {
        bool is_old = now_ns > s->since_ns && now_ns - s->since_ns > session_ns;
        if (auth_secret_equal(name, s->name) && !is_old)
            found = s;
    }
    return found;
}

/* Returns an unused entry or, if there is none, the least recently used one. Half of the entries
 * are for owners and half for readers, so a reader's login never removes an owner's session. */
static struct session *session_slot(struct auth *a, enum http_rank rank)
{
    struct session *first = a->sessions + (rank == HTTP_OWNER ? 0 : AUTH_SESSIONS_MAX / 2);
    struct session *oldest = first;
    for (struct session *s = first; s < first + AUTH_SESSIONS_MAX / 2; s++) {
        if (!s->name[0])
            return s;
        if (s->used_ns < oldest->used_ns)
            oldest = s;
    }
    return oldest;
}

/* Returns the time at which the token file was written. Sessions that are older belong to an
 * earlier token and are invalid. */
static uint64_t token_since_ns(const struct auth *a, enum http_rank rank)
{
    struct stat st;
    const char *name = rank == HTTP_OWNER ? "token" : "token.read-only";
    if (fstatat(a->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return UINT64_MAX;
    return (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
}

static void parse_sessions(struct auth *a, char *text)
{
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        struct session s = {0};
        unsigned long long since = 0;
        char right = 0;
        if (sscanf(line, "%64[0-9a-f] %64[0-9a-f] %64[0-9a-f] %c %llu", s.name, s.key, s.view,
                   &right, &since) != 5 ||
            strlen(s.name) != AUTH_SECRET_SIZE - 1 || strlen(s.key) != AUTH_SECRET_SIZE - 1 ||
            strlen(s.view) != AUTH_SECRET_SIZE - 1 || (right != 'r' && right != 'w'))
            continue;
        s.rank = right == 'w' ? HTTP_OWNER : HTTP_READER;
        s.since_ns = s.used_ns = since;
        if (since < token_since_ns(a, s.rank))
            continue;
        *session_slot(a, s.rank) = s;
    }
}

static int load_sessions(struct auth *a, struct err *err)
{
    struct buf text = {0};
    int r = io_read_plain(a->dirfd, sessions_file, AUTH_SESSIONS_MAX * 4 * AUTH_SECRET_SIZE, &text);
    if (r == 0 && buf_str(&text))
        parse_sessions(a, text.data);
    buf_fini(&text);
    if (r == 0 || r == -ENOENT)
        return 0;
    return err_set(
        err, r,
        "cannot read %s in the state folder: %s; remove the file (users of the page must "
        "then log in again)",
        sessions_file, r == -EBADMSG || r == -ELOOP ? "not a plain file" : strerror(-r));
}

/* ---- tokens ---- */

static enum http_rank rank_of_token(const struct auth *a, const char *token)
{
    bool may_write = auth_secret_equal(token, a->token),
         may_read = auth_secret_equal(token, a->token_read);
    return may_write ? HTTP_OWNER : may_read ? HTTP_READER : HTTP_STRANGER;
}

static int read_tokens(struct auth *a, const char *state_dir, bool may_make, struct err *err)
{
    a->dirfd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->dirfd < 0)
        return err_set(err, -errno, "cannot open %s: %s", state_dir, strerror(errno));
    int r = read_token(a->dirfd, "token", state_dir, may_make, a->token, err);
    if (r == 0)
        r = read_token(a->dirfd, "token.read-only", state_dir, may_make, a->token_read, err);
    if (r == 0 && strcmp(a->token, a->token_read) == 0)
        r = err_set(err, -EINVAL, "%s: token and token.read-only are the same; remove one of them",
                    state_dir);
    return r;
}

int auth_open(const char *state_dir, const char *const *hosts, struct auth **ret, struct err *err)
{
    struct auth *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->dirfd = -1;
    a->hosts = hosts;
    int r = read_tokens(a, state_dir, true, err);
    if (r == 0)
        r = load_sessions(a, err);
    if (r < 0) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

int auth_check(const char *state_dir, struct err *err)
{
    struct auth a = {.dirfd = -1};
    int r = read_tokens(&a, state_dir, false, err);
    if (a.dirfd >= 0 && (r == 0 || r == -ENOENT))
        r = load_sessions(&a, err);
    if (a.dirfd >= 0)
        close(a.dirfd);
    explicit_bzero(&a, sizeof a);
    return r == -ENOENT ? 0 : r;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    if (a->dirfd >= 0)
        close(a->dirfd);
    explicit_bzero(a, sizeof *a);
    free(a);
}

/* True if R contains KEY, either in the header X-Ebb-Key or in Sec-WebSocket-Protocol. A browser
 * cannot set X-Ebb-Key in the request that opens a WebSocket. */
static bool has_key(const struct http_request *r, const char *key)
{
    char offered[AUTH_SECRET_SIZE];
    const char *given = http_header(r, "X-Ebb-Key");
    const char *protocols = http_header(r, "Sec-WebSocket-Protocol");
    const char *at = protocols && !given ? strstr(protocols, KEY_PROTOCOL) : NULL;
    if (at) {
        snprintf(offered, sizeof offered, "%s", at + strlen(KEY_PROTOCOL));
        given = offered;
    }
    return given && auth_secret_equal(given, key);
}

/* Returns the session identified by R's cookie if R also contains one of the session's secrets;
 * otherwise NULL. */
static struct session *session_of(struct auth *a, const struct http_request *r, uint64_t now_ns,
                                  enum http_rank *ret)
{
    const char *cookie = http_cookie(r, COOKIE), *view = http_query(r, "view");
    struct session *s = cookie ? find_session(a, cookie, now_ns) : NULL;
    if (!s)
        return NULL;
    if (has_key(r, s->key))
        *ret = s->rank;
    else if (view && auth_secret_equal(view, s->view))
        *ret = HTTP_READER;
    else
        return NULL;
    return s;
}

enum http_rank auth_rank(struct auth *a, const struct http_request *r, uint64_t now_ns)
{
    if (http_is_unix(r))
        return HTTP_OWNER;
    const char *bearer = http_header(r, "Authorization");
    if (bearer) {
        if (strncasecmp(bearer, "Bearer ", 7) != 0)
            return HTTP_STRANGER;
        bearer += 7;
        return rank_of_token(a, bearer + strspn(bearer, " "));
    }
    enum http_rank rank = HTTP_STRANGER;
    struct session *s = session_of(a, r, now_ns, &rank);
    if (s)
        s->used_ns = now_ns;
    return rank;
}

/* True if too many wrong tokens were sent: after ten of them, one more is allowed every six
 * seconds. The right token is never refused, because a stranger could otherwise lock the owner out
 * by sending wrong ones. */
static bool is_locked(struct auth *a, uint64_t now_ns)
{
    uint64_t past = now_ns > a->wrong_ns ? (now_ns - a->wrong_ns) / wrong_every_ns : 0;
    if (past > 0) {
        a->wrong -= past < a->wrong ? (unsigned)past : a->wrong;
        a->wrong_ns = now_ns;
    }
    return a->wrong >= WRONG_MAX;
}

int auth_login(struct auth *a, const char *token, uint64_t now_ns, struct auth_grant *ret)
{
    struct session s = {.since_ns = now_ns, .used_ns = now_ns};
    s.rank = rank_of_token(a, token);
    if (s.rank == HTTP_STRANGER) {
        if (is_locked(a, now_ns))
            return -EAGAIN;
        if (a->wrong++ == 0)
            a->wrong_ns = now_ns;
        return -EACCES;
    }
    int r = secret_make(s.name);
    if (r == 0)
        r = secret_make(s.key);
    if (r == 0)
        r = secret_make(s.view);
    if (r < 0)
        return r;
    *session_slot(a, s.rank) = s;
    save_sessions(a);
    ret->rank = s.rank;
    snprintf(ret->cookie, sizeof ret->cookie,
             COOKIE "=%s; HttpOnly; SameSite=Strict; Path=/; Max-Age=%d", s.name,
             86400 * SESSION_DAYS);
    memcpy(ret->key, s.key, sizeof ret->key);
    memcpy(ret->view, s.view, sizeof ret->view);
    return 0;
}

void auth_logout(struct auth *a, const struct http_request *r, char ret_cookie[AUTH_COOKIE_SIZE])
{
    enum http_rank rank;
    struct session *s = session_of(a, r, 0, &rank);
    if (s) {
        *s = (struct session){0};
        save_sessions(a);
    }
    snprintf(ret_cookie, AUTH_COOKIE_SIZE,
             COOKIE "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
}

/* ---- host names ---- */

/* Copies the name from "name", "name:80", "1.2.3.4:80" or "[::1]:80". Returns false if HOST is
 * invalid. */
static bool split_host(const char *host, char ret[256])
{
    size_t len = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (len == 0 || len >= 256 || strlen(host) < len)
        return false;
    const char *port = host + len;
    if (*port && (port[0] != ':' || strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    memcpy(ret, host, len);
    ret[len] = '\0';
    return true;
}

/* True if NAME is a literal IP address, which DNS cannot redirect. */
static bool is_literal(char *name)
{
    struct in6_addr address;
    size_t len = strlen(name);
    if (name[0] != '[')
        return inet_pton(AF_INET, name, &address) == 1;
    name[len - 1] = '\0';
    return inet_pton(AF_INET6, name + 1, &address) == 1;
}

bool auth_host_ok(const char *const *hosts, const char *host)
{
    char name[256];
    if (!split_host(host, name))
        return false;
    if (strcasecmp(name, "localhost") == 0)
        return true;
    for (; hosts && *hosts; hosts++) {
        if (strcasecmp(name, *hosts) == 0)
            return true;
    }
    return is_literal(name);
}

bool auth_origin_is_host(const char *origin, const char *host)
{
    if (strncasecmp(origin, "http://", 7) == 0)
        origin += 7;
    else if (strncasecmp(origin, "https://", 8) == 0)
        origin += 8;
    else
        return false;
    return strcasecmp(origin, host) == 0;
}

bool auth_origin_ok(const struct auth *a, const struct http_request *r, const char **ret_why)
{
    const char *host = http_header(r, "Host");
    const char *origin = http_header(r, "Origin");
    const char *site = http_header(r, "Sec-Fetch-Site");
    const char *mode = http_header(r, "Sec-Fetch-Mode");
    if (http_is_unix(r))
        return true;
    *ret_why = "unknown host name; allow it with --allow-host";
    /* the Host header is optional in HTTP/1.0, but browsers always send it */
    if (host && !auth_host_ok(a->hosts, host))
        return false;
    *ret_why = "the request comes from a page of another site";
    if (origin && (!host || !auth_origin_is_host(origin, host)))
        return false;
    return !site || strcmp(site, "cross-site") != 0 || (mode && strcmp(mode, "navigate") == 0);
}
