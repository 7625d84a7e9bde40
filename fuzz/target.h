/* Shared by all fuzz targets: the entry point, and conversions of inputs to C strings and JSON
 * documents. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns the input up to the first NUL as a C string. The allocation has exactly that length; the
 * caller frees it. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    size_t len = strnlen((const char *)data, size);
    char *s = malloc(len + 1);
    if (!s)
        abort();
    memcpy(s, data, len);
    s[len] = '\0';
    return s;
}

/* Parses the input with json_parse; returns NULL if it is not a JSON document. */
static inline json_t *fuzz_json(const uint8_t *data, size_t size)
{
    return json_parse((const char *)data, size, NULL);
}
