/* The recordings of ../shared/traces, judged as ebb would judge them. */
#pragma once

#include <stdbool.h>

/* Prints the verdicts on every recording found in DIR; says which are missing. */
void traces_bench(const char *dir, bool details);
