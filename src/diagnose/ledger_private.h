/* Functions shared by ledger.c and ledger_sites.c. */
#pragma once

#include "diagnose/ledger.h"

static inline double positive(double v)
{
    return v > 0 ? v : 0; /* 0 for NAN too */
}

void ledger_add(struct ledger *l, enum ledger_kind kind, double start, double now, double low,
                double high);
/* Adds the rows of the live heap, which has START and NOW bytes in all: the rows that changed
 * most separately, the others as one entry. */
void ledger_add_sites(const struct facts *f, double start, double now, struct ledger *l);
/* Returns the sampled growth of row I of the heap profile. */
double ledger_row_sampled(const struct facts *f, size_t i);
/* Returns true if row I maps shared memory. */
bool ledger_is_shared_row(const struct ledger *l, size_t i);
/* Returns the live bytes of all rows that map shared memory, now or at the start. */
double ledger_shared_rows(const struct facts *f, const struct ledger *l, bool is_start);
