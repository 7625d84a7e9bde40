/* Modules, codes, nodes, sites and texts out of a NEWS block. Private to store_read.c; the bytes
 * may be hostile. */
#pragma once

#include "profile/profile.h"

struct cur;

static inline void store_at_least(size_t *n, size_t count)
{
    if (*n < count)
        *n = count;
}

/* P has room for everything at its largest, zeroed. What lies in a block that is missing stays 0:
 * no name, at the root. 0 or -EBADMSG; what was good before the fault is kept. */
int store_news_read(struct profile *p, struct cur *c);
/* Once all is read: depths, and what profile.h promises of nodes and texts. */
void store_news_check(struct profile *p);
