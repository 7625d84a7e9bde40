/* Arrays that grow by doubling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY_FIRST = 16 };

/* Doubles the capacity of the array whose pointer is stored at AT_PTR. Returns false, with the
 * array unchanged, if out of memory. */
static inline bool array_grow(void *at_ptr, size_t *cap, size_t size)
{
    void *at;
    size_t more = *cap ? 2 * *cap : ARRAY_FIRST;
    memcpy(&at, at_ptr, sizeof at);
    at = reallocarray(at, more, size);
    if (!at)
        return false;
    memcpy(at_ptr, &at, sizeof at);
    *cap = more;
    return true;
}

/* Ensures that array AT, with COUNT elements and capacity CAP, has room for one more element.
 * Returns false if out of memory. */
#define ARRAY_ROOM(at, count, cap)                                                                 \
    ((count) < (cap) || array_grow(&(at), &(cap), sizeof(__typeof__(*(at)))))

/* Binary search in a sorted array of COUNT elements. Sets I to the lowest index at which the
 * expression IS_BEFORE is false, or to COUNT if there is none. */
#define ARRAY_SEARCH(i, count, is_before)                                                          \
    __extension__({                                                                                \
        size_t low_ = 0, high_ = (count);                                                          \
        while (low_ < high_) {                                                                     \
            const size_t i = low_ + (high_ - low_) / 2;                                            \
            if (is_before)                                                                         \
                low_ = (i) + 1;                                                                    \
            else                                                                                   \
                high_ = i;                                                                         \
        }                                                                                          \
        low_;                                                                                      \
    })
