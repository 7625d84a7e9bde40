/* Tests that openapi.json and the route table have the same paths, methods, parameters and
 * rights. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "server/http/routes_private.h"
#include "version.h"

static json_t *read_document(void)
{
    json_t *doc =
        json_parse(route_openapi_text, (size_t)(route_openapi_end - route_openapi_text), NULL);
    assert_non_null(doc);
    return doc;
}

static bool is_of_api(const struct route *route)
{
    return strncmp(route->path, "/api/", 5) == 0 || strcmp(route->path, "/metrics") == 0;
}

/* Returns the names of an operation's query parameters in order, separated by spaces. */
static void join_params(const json_t *operation, char ret[128])
{
    size_t i, len = 0;
    const json_t *param;
    ret[0] = '\0';
    json_array_foreach(json_object_get(operation, "parameters"), i, param)
    {
        if (strcmp(json_string_value(json_object_get(param, "in")), "query") == 0)
            len += (size_t)snprintf(ret + len, 128 - len, "%s%s", len ? " " : "",
                                    json_string_value(json_object_get(param, "name")));
    }
}

static void every_api_route_is_in_openapi_json(void **state)
{
    static const char *const words[] = {
        [HTTP_GET] = "get", [HTTP_POST] = "post", [HTTP_DELETE] = "delete"};
    json_t *doc = read_document();
    char params[128];
    (void)state;
    for (const struct route *route = route_table; route->path; route++) {
        const json_t *path = json_object_get(json_object_get(doc, "paths"), route->path);
        const json_t *operation = json_object_get(path, words[route->method]);
        if (!is_of_api(route)) {
            assert_null(path);
            continue;
        }
        assert_non_null(operation);
        join_params(operation, params);
        assert_string_equal(params, route->params ? route->params : "");
        assert_int_equal(json_object_get(operation, "security") != NULL,
                         route->rank == HTTP_STRANGER);
    }
    json_decref(doc);
}

static void every_openapi_operation_has_a_route(void **state)
{
    json_t *doc = read_document(), *path;
    const char *key;
    size_t operations = 0, routes = 0;
    (void)state;
    json_object_foreach(json_object_get(doc, "paths"), key, path)
    {
        operations += json_object_size(path);
    }
    for (const struct route *route = route_table; route->path; route++)
        routes += is_of_api(route);
    assert_int_equal(operations, routes);
    json_decref(doc);
}

static void openapi_json_has_the_version_of_this_build(void **state)
{
    json_t *doc = read_document();
    (void)state;
    assert_string_equal(json_string_value(json_object_get(json_object_get(doc, "info"), "version")),
                        EBB_VERSION);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_api_route_is_in_openapi_json),
        cmocka_unit_test(every_openapi_operation_has_a_route),
        cmocka_unit_test(openapi_json_has_the_version_of_this_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
