/* JSON in C code, written with ' instead of ", so that no quote in a string has to be escaped. */
#pragma once

#include <jansson.h>

/* Parses TEXT. Fails the test if it is not valid. */
json_t *quoted_json(const char *text);
