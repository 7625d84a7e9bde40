/* A cache of frequent answers as text. An entry is valid while no job has changed, and for at most
 * a second. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "server/http/routes_private.h"

enum { CACHED_MAX = 64 << 10 };
static const uint64_t fresh_ns = NS_PER_S;

/* The cache entry for the address of a request. Its index is a hash of the path and the query. */
static struct route_cached *cache_place(struct route_call *c)
{
    const char *path = http_path(c->r), *query = http_query_text(c->r);
    uint64_t hash = text_hash(TEXT_HASH_EMPTY, path, strlen(path));
    hash = text_hash(hash, query, strlen(query));
    return &c->routes->cache[hash % ROUTES_CACHE];
}

static bool is_cache_key(const char *key, const struct http_request *r)
{
    size_t len = strlen(http_path(r));
    return strncmp(key, http_path(r), len) == 0 && key[len] == '?' &&
           strcmp(key + len + 1, http_query_text(r)) == 0;
}

bool route_answer_cached(struct route_call *c)
{
    const struct route_cached *k = cache_place(c);
    if (!k->key || k->generation != c->routes->generation || !is_cache_key(k->key, c->r) ||
        clock_mono_ns() - k->made_ns > fresh_ns)
        return false;
    http_answer_text(c->r, 200, "application/json", k->text, k->len);
    return true;
}

void route_answer_and_cache(struct route_call *c, int result, json_t *doc, const struct err *err)
{
    struct route_cached *k = cache_place(c);
    struct buf text = {0}, key = {0};
    if (result < 0) {
        route_fail(c->r, result, err);
        return;
    }
    if (doc)
        json_print(&text, doc, 0);
    json_decref(doc);
    if (!doc || text.failed) {
        buf_fini(&text);
        http_answer_error(c->r, 503, "out of memory");
        return;
    }
    http_answer_text(c->r, 200, "application/json", text.data, text.len);
    buf_printf(&key, "%s?%s", http_path(c->r), http_query_text(c->r));
    if (text.len > CACHED_MAX || key.len > 512 || key.failed) {
        buf_fini(&text);
        buf_fini(&key);
        return;
    }
    buf_add_byte(&key, '\0');
    free(k->key);
    free(k->text);
    *k = (struct route_cached){.key = key.data,
                               .text = text.data,
                               .len = text.len,
                               .generation = c->routes->generation,
                               .made_ns = clock_mono_ns()};
}

void route_cache_free(struct routes *routes)
{
    for (size_t i = 0; i < ROUTES_CACHE; i++) {
        free(routes->cache[i].key);
        free(routes->cache[i].text);
    }
}
