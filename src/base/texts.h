/* Interned strings, each stored once, and a map from numbers to numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Interned strings. A zeroed struct is valid and empty. */
struct texts {
    char **items;
    uint32_t *table; /* hash table whose entries are the text's number + 1; 0 means empty */
    size_t count, cap, table_size;
};

void texts_fini(struct texts *t);
/* Interns S up to its first NUL. *RET is the number of the text, in order of first use. Returns 0
 * or -ENOMEM. */
int texts_add(struct texts *t, const char *s, size_t len, uint32_t *ret);
/* Like texts_add, but returns the text as a C string that lives as long as T, or NULL if out of
 * memory. */
const char *texts_keep(struct texts *t, const char *s, size_t len);

/* A map from numbers to numbers. A zeroed struct is valid and empty. Entries cannot be removed one
 * by one. */
struct numbers {
    struct numbers_slot {
        uint64_t key;
        uint32_t value; /* value + 1; 0 means that the entry is empty */
    } * slots;
    size_t count, size;
};

void numbers_fini(struct numbers *n);
bool numbers_get(const struct numbers *n, uint64_t key, uint32_t *ret);
/* removes all entries but keeps the memory for as many new ones */
void numbers_clear(struct numbers *n);
/* Adds KEY, which must not exist yet. VALUE must be below UINT32_MAX. Returns 0 or -ENOMEM. */
int numbers_put(struct numbers *n, uint64_t key, uint32_t value);
