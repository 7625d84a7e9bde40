/* Parses JSON that is written with ' instead of ". */
#include "present/quoted_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

json_t *quoted_json(const char *text)
{
    json_error_t error;
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *doc = json_loads(copy, 0, &error);
    if (!doc)
        fail_msg("%s at %d in %s", error.text, error.position, copy);
    free(copy);
    return doc;
}
