/* Who may do what: the tokens, the page's sessions, and where a request may come from. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct auth;
struct err;
struct http_request;

enum auth_right { AUTH_NONE, AUTH_READ, AUTH_WRITE };

/* STATE_DIR/token and STATE_DIR/token.read-only, made (0600, 256 bits) at the first start; -EPERM
 * where others may read them. HOSTS: names beside localhost and literal addresses that a Host
 * header may have; NULL-ended or NULL. */
int auth_open(const char *state_dir, const char *const *hosts, struct auth **ret, struct err *err);
void auth_free(struct auth *a);

/* Host (against DNS rebinding) and Origin: false, and why. */
bool auth_origin_ok(const struct auth *a, const struct http_request *r, const char **ret_why);
/* By the socket, Authorization or the cookie; compared in constant time. */
enum auth_right auth_right_of(struct auth *a, const struct http_request *r, uint64_t now_ns);
/* The token for a cookie: *ret_cookie is the Set-Cookie value, or AUTH_NONE. Wrong ones are slowed
 * down by the caller's counting (-EAGAIN in ret_again). */
enum auth_right auth_login(struct auth *a, const char *token, uint64_t now_ns,
                           char ret_cookie[256]);
void auth_logout(struct auth *a, const struct http_request *r);
