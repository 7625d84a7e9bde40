/* Interned texts, each stored once, and a map from numbers to numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is valid and empty. */
struct texts {
    char **items;
    uint32_t *table; /* hash table of number + 1; 0 is empty */
    size_t count, cap, table_size;
};

void texts_fini(struct texts *t);
/* Interns S up to its first NUL. *RET is its number, in order of first use. 0 or -ENOMEM. */
int texts_add(struct texts *t, const char *s, size_t len, uint32_t *ret);
/* Like texts_add. Returns the text as a C string that lives as long as T; NULL: out of memory. */
const char *texts_keep(struct texts *t, const char *s, size_t len);

/* A map. A zeroed struct is valid and empty. Entries cannot be removed one by one. */
struct numbers {
    struct numbers_slot {
        uint64_t key;
        uint32_t value; /* value + 1; 0 is empty */
    } * slots;
    size_t count, size;
};

void numbers_fini(struct numbers *n);
bool numbers_get(const struct numbers *n, uint64_t key, uint32_t *ret);
/* does not free memory, so that as many entries can be added again */
void numbers_clear(struct numbers *n);
/* Adds KEY, which must not exist yet. VALUE must be below UINT32_MAX. 0 or -ENOMEM. */
int numbers_put(struct numbers *n, uint64_t key, uint32_t value);
