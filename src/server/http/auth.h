/* Authentication: tokens, the page's sessions, and checks of Host and Origin. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/http.h"

struct auth;
struct err;

enum { AUTH_SESSIONS_MAX = 64, AUTH_COOKIE_SIZE = 256, AUTH_SECRET_SIZE = 65 };

/* Secrets that the page receives in exchange for a token. The cookie alone grants nothing, because
 * browsers send a cookie to every port of the host, including the port of another user's web
 * server. The page stores KEY and VIEW in the browser, whose storage is separate for each port. */
struct auth_grant {
    enum http_rank rank;           /* rank of the token */
    char cookie[AUTH_COOKIE_SIZE]; /* value of Set-Cookie */
    /* secret that, together with the cookie, grants all rights of the token */
    char key[AUTH_SECRET_SIZE];
    /* secret that, together with the cookie, grants the right to read; for links, which a browser
     * opens without our headers */
    char view[AUTH_SECRET_SIZE];
};

/* Reads STATE_DIR/token and STATE_DIR/token.read-only; creates them (0600, 256 bits) at the first
 * start. Returns -EPERM if other users may read them. Sessions are stored in STATE_DIR/sessions
 * (0600). After a restart, a session is still valid if its token is the same. HOSTS is a list,
 * terminated by NULL, of the names that a Host header may contain in addition to localhost and
 * literal addresses. HOSTS may be NULL. */
int auth_open(const char *state_dir, const char *const *hosts, struct auth **ret, struct err *err);
void auth_free(struct auth *a); /* accepts NULL */
/* Checks whether auth_open can succeed. Creates nothing. */
int auth_check(const char *state_dir, struct err *err);

/* Checks Host (against DNS rebinding) and Origin. Returns false, with the reason in *RET_WHY, if
 * the request is refused. */
bool auth_origin_ok(const struct auth *a, const struct http_request *r, const char **ret_why);
/* Determines the rank (access rights) of R from its socket, from its Authorization header, or from
 * its cookie together with X-Ebb-Key, the WebSocket protocol "ebb-key.KEY" or the parameter "view".
 * Compares in constant time. */
enum http_rank auth_rank(struct auth *a, const struct http_request *r, uint64_t now_ns);
/* Opens a session for a token and fills in *RET. Returns 0; -EACCES if the token is wrong; -EAGAIN
 * if it is wrong and too many wrong tokens were sent recently, by any clients, so that the client
 * must wait some seconds before it tries again; or another -errno if the token is right but no
 * session can be opened. NOW_NS is wall-clock time. */
int auth_login(struct auth *a, const char *token, uint64_t now_ns, struct auth_grant *ret);
/* Ends the session to which R's cookie and key belong. ret_cookie is the value of a Set-Cookie
 * header that removes the cookie from the browser. */
void auth_logout(struct auth *a, const struct http_request *r, char ret_cookie[AUTH_COOKIE_SIZE]);

/* Exported for tests, which cannot create a struct http_request. The run time of auth_secret_equal
 * depends on the length of GIVEN but not on its content. */
bool auth_secret_equal(const char *given, const char *secret);
bool auth_host_ok(const char *const *hosts, const char *host);
bool auth_origin_is_host(const char *origin, const char *host);
