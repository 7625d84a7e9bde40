/* A cache of answers in text form. An entry is valid for one version of its source data, and for a
 * limited time. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "server/http/routes_private.h"

enum { CACHED_MAX = 1 << 20, KEY_MAX = 512, CACHE_BYTES = 4 << 20 };
/* Maximum age of a cached answer. Some values, such as the memory of a running job, change although
 * `generation` does not. */
static const uint64_t fresh_ns = NS_PER_S;

/* Returns the cache entry for a request. The entry's index is a hash of the request's path and
 * query. */
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

const struct route_cached *route_cache_find(struct route_call *c, uint64_t version)
{
    const struct route_cached *k = cache_place(c);
    bool is_found = k->key && k->version == version && clock_mono_ns() <= k->until_ns &&
                    is_cache_key(k->key, c->r);
    return is_found ? k : NULL;
}

static void cache_drop(struct routes *routes, struct route_cached *k)
{
    routes->cache_bytes -= k->len;
    free(k->key);
    free(k->text);
    *k = (struct route_cached){0};
}

void route_cache_add(struct route_call *c, uint64_t version, uint64_t until_ns, const char *text,
                     size_t len)
{
    struct route_cached *k = cache_place(c);
    struct buf key = {0};
    cache_drop(c->routes, k);
    if (c->routes->cache_bytes + len > CACHE_BYTES)
        route_cache_clear(c->routes);
    buf_printf(&key, "%s?%s", http_path(c->r), http_query_text(c->r));
    buf_add_byte(&key, '\0');
    char *copy = len <= CACHED_MAX && key.len <= KEY_MAX && !key.failed ? malloc(len + 1) : NULL;
    if (!copy) {
        buf_fini(&key);
        return;
    }
    memcpy(copy, text, len);
    *k = (struct route_cached){
        .key = key.data, .text = copy, .len = len, .version = version, .until_ns = until_ns};
    c->routes->cache_bytes += len;
}

bool route_answer_cached(struct route_call *c)
{
    const struct route_cached *k = route_cache_find(c, c->routes->generation);
    if (k)
        http_answer_text(c->r, 200, "application/json", k->text, k->len);
    return k;
}

void route_answer_and_cache(struct route_call *c, int result, json_t *doc, const struct err *err)
{
    struct buf text = {0};
    if (result < 0) {
        route_fail(c->r, result, err);
        return;
    }
    if (doc)
        json_print(&text, doc, 0);
    if (!doc || text.failed) {
        http_answer_error(c->r, 503, "out of memory");
    } else {
        http_answer_text(c->r, 200, "application/json", text.data, text.len);
        route_cache_add(c, c->routes->generation, clock_mono_ns() + fresh_ns, text.data, text.len);
    }
    json_decref(doc);
    buf_fini(&text);
}

void route_cache_clear(struct routes *routes)
{
    for (size_t i = 0; i < ROUTES_CACHE; i++)
        cache_drop(routes, &routes->cache[i]);
}
