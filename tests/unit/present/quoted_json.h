/* JSON in the source of a test, written with ' instead of ", which is easier to read in C. */
#pragma once

#include <jansson.h>

/* Parses TEXT. Fails the test if it is not valid. */
json_t *quoted_json(const char *text);
