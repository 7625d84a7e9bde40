/* Between ledger.c and ledger_sites.c. */
#pragma once

#include "diagnose/ledger.h"

void ledger_add(struct ledger *l, enum ledger_kind kind, double start, double now, double low,
                double high);
/* The rows of the heap, which is START and NOW in all: those that changed most by name, the others
 * together. */
void ledger_add_sites(const struct facts *f, double start, double now, struct ledger *l);
/* By how much row I of the heap's grew, as it was sampled. */
double ledger_row_sampled(const struct facts *f, size_t i);
/* Row I maps shared memory. */
bool ledger_is_shared_row(const struct ledger *l, size_t i);
/* What all of these hold, or held at the start. */
double ledger_shared_rows(const struct facts *f, const struct ledger *l, bool is_start);
