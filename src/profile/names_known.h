/* Which frames are nobody's fault: allocators, and the plumbing between the lines that people
 * write. Private to profile/. */
#pragma once

#include <stdbool.h>

/* FUNCTION is a readable name or NULL, LIB the base name of its module or NULL. */
bool known_allocator(const char *function, const char *lib);
/* A Python frame of the standard library, of a framework's inner workings, or of no file at all. */
bool known_plumbing(const char *function, const char *file);
/* Of the standard library, or installed as a package: not the user's own. */
bool known_library(const char *file);
/* Is INNER a comprehension or a generator expression that stands in OUTER, its caller in the same
 * file? Before Python 3.11 its name does not tell in which function it stands. */
bool known_comprehension(const char *inner, const char *outer);
