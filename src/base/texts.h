/* Interned strings, each stored once, and a map from integers to integers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Interned strings. A zeroed struct is valid and empty. */
struct texts {
    char **items;
    uint32_t *table; /* hash table: the number of a string plus 1, or 0 for a free entry */
    size_t count, cap, table_size;
};

void texts_fini(struct texts *t);
/* Interns S up to its first NUL. Sets *RET to the string's number; strings are numbered in order of
 * first use. Returns 0 or -ENOMEM. */
int texts_add(struct texts *t, const char *s, size_t len, uint32_t *ret);
/* Like texts_add, but returns the interned string, which is valid as long as T, or NULL if out of
 * memory. */
const char *texts_keep(struct texts *t, const char *s, size_t len);

/* A map from integers to integers. A zeroed struct is a valid empty map. Entries cannot be removed
 * individually. */
struct numbers {
    struct numbers_slot {
        uint64_t key;
        uint32_t value; /* value + 1; 0 marks a free entry */
    } * slots;
    size_t count, size;
};

void numbers_fini(struct numbers *n);
bool numbers_get(const struct numbers *n, uint64_t key, uint32_t *ret);
/* removes all entries but keeps the allocated table */
void numbers_clear(struct numbers *n);
/* Adds KEY, which must not be in the map yet. VALUE must be below UINT32_MAX. Returns 0 or
 * -ENOMEM. */
int numbers_put(struct numbers *n, uint64_t key, uint32_t value);
