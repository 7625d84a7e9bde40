/* Verdicts on recordings of real jobs. */
#pragma once

#include <stdbool.h>

/* Prints the verdicts on every recording in DIR, and which recordings are missing. */
void traces_bench(const char *dir, bool details);
