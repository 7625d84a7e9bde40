/* Who may do what: the tokens, the page's sessions, and where a request may come from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct auth;
struct err;
struct http_request;

enum auth_right { AUTH_NONE, AUTH_READ, AUTH_WRITE };

enum { AUTH_SESSIONS_MAX = 64, AUTH_COOKIE_SIZE = 256 };

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
/* By the socket, Authorization or the cookie; compared in constant time. */
enum auth_right auth_right_of(struct auth *a, const struct http_request *r, uint64_t now_ns);
/* The token for a cookie: ret_cookie is the Set-Cookie value, or AUTH_NONE. After a few wrong ones
 * *ret_again is set with the next ones, for some seconds; the right one is taken at any time.
 * NOW_NS is the wall clock's. */
enum auth_right auth_login(struct auth *a, const char *token, uint64_t now_ns,
                           char ret_cookie[AUTH_COOKIE_SIZE], bool *ret_again);
/* Ends the session of R's cookie; ret_cookie takes it from the browser. */
void auth_logout(struct auth *a, const struct http_request *r, char ret_cookie[AUTH_COOKIE_SIZE]);

/* For tests, which have no request: a Host header, and an Origin (NULL: none) beside it. */
bool auth_host_ok(const char *const *hosts, const char *host);
bool auth_origin_is_host(const char *origin, const char *host);
