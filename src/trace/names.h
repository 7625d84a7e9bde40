/* Texts by number: each different one once, in order of appearance. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct names {
    struct buf text;
    size_t *ends;    /* where name I ends in TEXT */
    uint32_t *table; /* hashed; number + 1, 0 is empty */
    size_t count, cap, table_size;
};

void names_fini(struct names *n); /* accepts a zeroed one, which is valid and empty */
/* The number of S: 0 (and *ret), or -ENOMEM. */
int names_intern(struct names *n, const char *s, size_t len, uint32_t *ret);
/* Valid until the next names_intern; no NUL behind it. */
const char *names_get(const struct names *n, uint32_t number, size_t *ret_len);
