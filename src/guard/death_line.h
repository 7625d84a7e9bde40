/* What one line of a job's output says by itself: names of exceptions, ranks, signs of a cause. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"
#include "guard/death.h"

static inline bool death_line_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The decimal number that S begins with, of up to 6 digits; its length may be 0. */
size_t death_line_number(struct span s, int *ret);
/* "[rank3]: ", "[default0]:": how launchers mark a rank's lines. Returns its length or 0. */
size_t death_line_rank(struct span s, int *ret_rank);

/* A name as Python writes that of a class, alone or before ": ". Returns its length or 0. */
size_t death_line_exception(struct span s);
/* Error, Exception and the like are in it: what stands after noise is believed only then. */
bool death_line_has_usual_name(struct span name);

enum death_sign death_line_sign(struct span s); /* DEATH_PYTHON: none of a known cause */
bool death_line_is_exited_worker(struct span line);
bool death_line_tells_of_kill(struct span s);
/* What loggers and launchers go on to say when a job has failed. */
bool death_line_is_farewell(struct span line);
