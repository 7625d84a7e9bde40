/* Which frames are nobody's fault: allocators, and the plumbing between the lines that people
 * write. Private to profile/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FUNCTION is a readable name or NULL, LIB the base name of its module or NULL. */
bool known_allocator(const char *function, const char *lib);
/* A Python frame of the standard library, of a framework's inner workings, or of no file at all. */
bool known_plumbing(const char *function, const char *file);
/* Of the standard library, or installed as a package: not the user's own. */
bool known_library(const char *file);
/* Of a file of an installed package, LEN bytes of the path up to the package:
 * "…/site-packages/mypkg" or "…/site-packages/mymodule.py"; false: it is none. */
bool known_package(const char *file, size_t *ret_len);
/* The few lines that an installer writes so that a package can be called by a command. */
bool known_wrapper(const char *function, const char *file, uint32_t line);
/* Is INNER a comprehension or a generator expression that stands in OUTER, its caller in the same
 * file? Before Python 3.11 its name does not tell in which function it stands. */
bool known_comprehension(const char *inner, const char *outer);
