/* Who may do what: the tokens, the page's sessions, and where a request may come from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/http.h"

struct auth;
struct err;

enum { AUTH_SESSIONS_MAX = 64, AUTH_COOKIE_SIZE = 256, AUTH_SECRET_SIZE = 65 };

/* What the page receives for a token. Browsers send a cookie to every port of the host, also to the
 * web server of another user, so the cookie alone grants nothing. KEY and VIEW are stored by the
 * page, and a browser keeps its storage apart by port. */
struct auth_grant {
    char cookie[AUTH_COOKIE_SIZE]; /* a Set-Cookie value */
    char key[AUTH_SECRET_SIZE];    /* with the cookie: everything the token may do */
    /* with the cookie: reading. For addresses that a browser opens itself, without headers. */
    char view[AUTH_SECRET_SIZE];
};

/* STATE_DIR/token and STATE_DIR/token.read-only, made (0600, 256 bits) at the first start; -EPERM
 * where others may read them. Sessions are kept in STATE_DIR/sessions (0600): a restart ends none,
 * unless the token they came from is another by then.
 * HOSTS: names beside localhost and literal addresses that a Host header may have; NULL-ended or
 * NULL. */
int auth_open(const char *state_dir, const char *const *hosts, struct auth **ret, struct err *err);
void auth_free(struct auth *a); /* NULL is fine */
/* The same, but nothing is made: whether what is there can be used. */
int auth_check(const char *state_dir, struct err *err);

/* Host (against DNS rebinding) and Origin: false, and why. */
bool auth_origin_ok(const struct auth *a, const struct http_request *r, const char **ret_why);
/* By the socket, Authorization, or the cookie together with X-Ebb-Key, the WebSocket protocol
 * "ebb-key.KEY" or the parameter "view"; compared in constant time. */
enum http_rank auth_rank(struct auth *a, const struct http_request *r, uint64_t now_ns);
/* Opens a session for a token: *RET, or HTTP_STRANGER. After ten wrong tokens in a row further
 * wrong ones set *ret_again for some seconds; the right one is accepted at any time. NOW_NS is the
 * wall clock's. */
enum http_rank auth_login(struct auth *a, const char *token, uint64_t now_ns,
                          struct auth_grant *ret, bool *ret_again);
/* Ends the session of R's cookie and key; ret_cookie removes the cookie from the browser. */
void auth_logout(struct auth *a, const struct http_request *r, char ret_cookie[AUTH_COOKIE_SIZE]);

/* For tests, which have no request: a Host header, an Origin (NULL: none) beside it, and secrets,
 * which take as long for every GIVEN of one length. */
bool auth_secret_equal(const char *given, const char *secret);
bool auth_host_ok(const char *const *hosts, const char *host);
bool auth_origin_is_host(const char *origin, const char *host);
