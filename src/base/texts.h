/* Texts that are kept, each different one once, and a map from numbers to numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is valid and empty. */
struct texts {
    char **items;
    uint32_t *table; /* hashed; number + 1, 0 is empty */
    size_t count, cap, table_size;
};

void texts_fini(struct texts *t);
/* The number of S, in order of appearance, up to its first NUL: 0 or -ENOMEM. */
int texts_add(struct texts *t, const char *s, size_t len, uint32_t *ret);
/* The same, as a C string that lives as long as T; NULL: no memory. */
const char *texts_keep(struct texts *t, const char *s, size_t len);

/* Zeroed is valid and empty; nothing is removed alone. */
struct numbers {
    struct numbers_slot {
        uint64_t key;
        uint32_t value; /* + 1; 0 is empty */
    } * slots;
    size_t count, size;
};

void numbers_fini(struct numbers *n);
bool numbers_get(const struct numbers *n, uint64_t key, uint32_t *ret);
void numbers_clear(struct numbers *n); /* keeps its memory: as many can be put again */
/* KEY must not be there yet; VALUE below UINT32_MAX. 0 or -ENOMEM. */
int numbers_put(struct numbers *n, uint64_t key, uint32_t value);
