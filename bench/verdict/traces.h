/* Verdicts on recordings of real jobs. */
#pragma once

#include <stdbool.h>

/* Prints the verdicts on all recordings in DIR, and the names of missing recordings. */
void traces_bench(const char *dir, bool details);
