/* Which files are the program's own, of all that a profile has frames of. For names.c alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct profile;

/* Zeroed is valid: found out at the first question. */
struct program {
    bool is_known;
    char *package; /* "…/site-packages/mypkg": the program is installed; NULL: it is not */
};

void program_fini(struct program *p);
/* Is a Python frame of the user's own files? Where the profile has none, of the package that was
 * started. */
bool program_has(struct program *p, const struct profile *profile, const char *function,
                 const char *file, uint32_t line);
