/* Arrays that grow by doubling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAY_FIRST = 16 };

/* AT_PTR is the address of the array's pointer; of memory that is not there nothing changes. */
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

/* Room for one more behind COUNT elements of AT, which has room for CAP; false: out of memory. */
#define ARRAY_ROOM(at, count, cap)                                                                 \
    ((count) < (cap) || array_grow(&(at), &(cap), sizeof(__typeof__(*(at)))))
