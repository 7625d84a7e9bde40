/* Request handlers for the page, its sessions, and the server itself. */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "present/assets.h"
#include "server/http/auth.h"
#include "server/http/log.h"
#include "server/http/routes_private.h"
#include "server/jobs/jobs.h"
#include "version.h"

static void answer_asset(struct route_call *c, const char *name)
{
    struct asset_file file;
    if (asset_find(name, &file) < 0) {
        http_answer_error(c->r, 404, "no such file: %.100s", name);
        return;
    }
    http_add_header(c->r, "Content-Security-Policy", ASSET_POLICY);
    http_answer_gzip(c->r, file.type, file.etag, file.gzip, file.len);
}

/* Answers with the page. The HTML is the same for every path of the page; the page's script reads
 * the path. */
void route_page(struct route_call *c)
{
    answer_asset(c, "serve.html");
}

void route_asset(struct route_call *c)
{
    answer_asset(c, c->name);
}

void route_health(struct route_call *c)
{
    json_t *trouble = jobs_trouble(c->routes->options.jobs);
    const char *status = json_array_size(trouble) > 0 ? "degraded" : "ok";
    /* messages about problems contain folder paths, which strangers must not see */
    if (http_rank(c->r) == HTTP_STRANGER) {
        json_decref(trouble);
        trouble = json_array();
    }
    http_answer_json(c->r, 200,
                     json_pack("{s:s, s:s, s:o, s:o}", "status", status, "version", EBB_VERSION,
                               "now_s", json_seconds(clock_wall_ns()), "trouble", trouble));
}

void route_machine(struct route_call *c)
{
    const struct routes_options *o = &c->routes->options;
    if (!route_answer_cached(c))
        route_answer_and_cache(c, 0, o->machine(o->user), NULL);
}

__asm__(".pushsection .rodata\n.globl route_openapi_text, "
        "route_openapi_end\nroute_openapi_text:\n.incbin \"" EBB_OPENAPI
        "\"\nroute_openapi_end:\n.byte 0\n.popsection\n");

void route_openapi(struct route_call *c)
{
    http_answer_text(c->r, 200, "application/json", route_openapi_text,
                     (size_t)(route_openapi_end - route_openapi_text));
}

void route_metrics(struct route_call *c)
{
    const struct routes_options *o = &c->routes->options;
    struct buf text = {0};
    o->metrics(o->user, &text);
    if (text.failed)
        http_answer_error(c->r, 503, "out of memory");
    else
        http_answer_text(c->r, 200, "text/plain; version=0.0.4; charset=utf-8", buf_str(&text),
                         text.len);
    buf_fini(&text);
}

void route_live(struct route_call *c)
{
    const struct routes_options *o = &c->routes->options;
    if (o->live)
        o->live(o->user, c->r);
    else
        http_answer_error(c->r, 503, "the live stream is not available: %s", o->no_live);
}

/* ---- sessions ---- */

static json_t *session_json(enum http_rank rank)
{
    return json_pack("{s:b}", "write", rank == HTTP_OWNER);
}

void route_session_get(struct route_call *c)
{
    if (http_rank(c->r) == HTTP_STRANGER)
        http_answer_error(c->r, 401, "not logged in; POST the token to /api/v1/session");
    else
        http_answer_json(c->r, 200, session_json(http_rank(c->r)));
}

void route_session_post(struct route_call *c)
{
    struct auth_grant grant;
    json_t *body = route_body(c->r);
    if (!body)
        return;
    const char *token = json_string_value(json_object_get(body, "token"));
    if (!token) {
        http_answer_error(c->r, 400, "token: must be a string");
        json_decref(body);
        return;
    }
    int result = auth_login(c->routes->options.auth, token, clock_wall_ns(), &grant);
    json_decref(body);
    if (result == -EAGAIN) {
        http_answer_error(c->r, 429, "too many wrong tokens; try again in a few seconds");
    } else if (result == -EACCES) {
        log_line(LOG_WARN, "login", 0, "login with a wrong token");
        http_answer_error(c->r, 401,
                          "wrong token; the valid token is in the file \"token\" in the server's "
                          "state folder");
    } else if (result < 0) {
        http_answer_error(c->r, 503, "cannot open a session: %s", strerror(-result));
    } else {
        json_t *doc = session_json(grant.rank);
        json_object_set_new(doc, "key", json_string(grant.key));
        json_object_set_new(doc, "view", json_string(grant.view));
        http_add_header(c->r, "Set-Cookie", grant.cookie);
        http_answer_json(c->r, 200, doc);
    }
}

void route_session_delete(struct route_call *c)
{
    char cookie[AUTH_COOKIE_SIZE];
    auth_logout(c->routes->options.auth, c->r, cookie);
    http_add_header(c->r, "Set-Cookie", cookie);
    http_answer_json(c->r, 200, session_json(HTTP_STRANGER));
}
