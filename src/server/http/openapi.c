/* openapi.json, made of the table of paths and the tables of documents: what is served is what is
 * told. */
#include "server/http/openapi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http.h"
#include "server/http/routes_private.h"
#include "version.h"

static json_t *reference(const char *schema)
{
    char path[64];
    snprintf(path, sizeof(path), "#/components/schemas/%s", schema);
    return json_pack("{s:s}", "$ref", path);
}

static json_t *content(const char *type, const char *schema)
{
    return json_pack("{s:{s:o}}", type, "schema",
                     schema ? reference(schema) : json_pack("{s:s}", "type", "string"));
}

static const struct {
    int status;
    const char *why;
} reasons[] = {
    {400, "what was asked makes no sense"},
    {401, "no or a wrong token"},
    {403, "a token for reading alone, or a foreign Origin or Host"},
    {404, "there is no such thing"},
    {405, "not with this method"},
    {409, "not in this state"},
    {413, "a body over 1 MiB"},
    {415, "Content-Type is not application/json"},
    {416, "no such range"},
    {429, "too many at once"},
    {503, "not now: the disk is full, or the server shuts down"},
};

static void add_error(json_t *responses, int status)
{
    char key[8];
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].status != status)
            continue;
        snprintf(key, sizeof(key), "%d", status);
        json_object_set_new(responses, key,
                            json_pack("{s:s, s:o}", "description", reasons[i].why, "content",
                                      content("application/json", "Error")));
    }
}

static json_t *responses_of(const struct route *route)
{
    char status[8];
    json_t *responses = json_object();
    json_t *good = json_pack("{s:s}", "description", route->summary);
    if (route->type)
        json_object_set_new(good, "content", content(route->type, route->answer));
    snprintf(status, sizeof(status), "%u", route->status);
    json_object_set_new(responses, status, good);
    if (strcmp(route->path, "/api/v1/jobs/{id}/log") == 0)
        json_object_set_new(responses, "206",
                            json_pack("{s:s, s:o}", "description", "the range that was asked for",
                                      "content", content(route->type, NULL)));
    add_error(responses, 401);
    add_error(responses, 403);
    for (const char *p = route->errors; *p; p += strspn(p, " ")) {
        add_error(responses, atoi(p));
        p += strcspn(p, " ");
    }
    return responses;
}

static json_t *parameters_of(const struct route *route)
{
    char name[32];
    json_t *list = json_array();
    if (strstr(route->path, "{id}"))
        json_array_append_new(list, openapi_parameter("id", "path"));
    for (const char *p = route->params; p && *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        snprintf(name, sizeof(name), "%.*s", (int)len, p);
        json_array_append_new(list, openapi_parameter(name, "query"));
        p += len;
    }
    return list;
}

static json_t *operation(const struct route *route)
{
    json_t *doc = json_pack("{s:s, s:o, s:o}", "summary", route->summary, "parameters",
                            parameters_of(route), "responses", responses_of(route));
    if (route->body)
        json_object_set_new(
            doc, "requestBody",
            json_pack("{s:o}", "content", content("application/json", route->body)));
    if (route->access == ROUTE_OPEN)
        json_object_set_new(doc, "security", json_array());
    return doc;
}

static json_t *paths(void)
{
    static const char *const words[] = {
        [HTTP_GET] = "get", [HTTP_POST] = "post", [HTTP_DELETE] = "delete"};
    json_t *doc = json_object();
    for (const struct route *route = route_table; route->path; route++) {
        if (!route->summary)
            continue;
        json_t *item = json_object_get(doc, route->path);
        if (!item) {
            item = json_object();
            json_object_set_new(doc, route->path, item);
        }
        json_object_set_new(item, words[route->method], operation(route));
    }
    return doc;
}

json_t *openapi_document(void)
{
    json_t *security =
        json_pack("{s:{s:s, s:s}, s:{s:s, s:s, s:s}}", "token", "type", "http", "scheme", "bearer",
                  "cookie", "type", "apiKey", "in", "cookie", "name", "ebb");
    return json_pack("{s:s, s:{s:s, s:s, s:s}, s:o, s:{s:o, s:o}, s:[{s:[]}, {s:[]}]}", "openapi",
                     "3.1.0", "info", "title", "ebb serve", "version", EBB_VERSION, "description",
                     "The job server of ebb. Times that end in _s and are points in time are "
                     "seconds since 1970; sizes are bytes; what is null or missing is not known.",
                     "paths", paths(), "components", "schemas", openapi_schemas(),
                     "securitySchemes", security, "security", "token", "cookie");
}
