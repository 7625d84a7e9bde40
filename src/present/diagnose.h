/* A diagnosis in words. */
#pragma once

#include <stdbool.h>

struct diagnosis;
struct diagnosis_site;
struct doc;

/* What `ebb diagnose` prints: the verdict, the ledger, the hypotheses, what to do. ALL: with the
 * evidence against those that are ruled out and the lack of it for those that cannot be tested. */
void diagnose_doc(struct doc *d, const struct diagnosis *v, bool all);
/* The last facts of a summary: the first hypothesis and what to do. */
void diagnose_summary(struct doc *d, const struct diagnosis *v);
