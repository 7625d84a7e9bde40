/* What fuzz targets share: their entry, and inputs as the texts and documents that parsers take. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A C string of the bytes up to the first NUL, in memory of its very length: for free(). */
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

/* A document as json_parse takes it; NULL: the bytes are none. */
static inline json_t *fuzz_json(const uint8_t *data, size_t size)
{
    return json_parse((const char *)data, size, NULL);
}
