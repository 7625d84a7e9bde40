/* Recognizes frames that are never the cause of a leak: allocators, and plumbing (library code that
 * runs between the user's line and the allocation). Private to profile/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true for an allocator. FUNCTION is a demangled name or NULL, LIB the base name of its
 * module or NULL. */
bool known_allocator(const char *function, const char *lib);
/* Finds an autograd node in the name of the function that runs the node in a backward pass:
 * "AddmmBackward0" in "torch::autograd::generated::AddmmBackward0::apply(…)". Returns false for
 * other functions. */
bool known_backward(const char *function, const char **ret, size_t *ret_len);
/* Returns true for a Python frame of the standard library or of framework internals, and for a
 * Python frame without a file. */
bool known_plumbing(const char *function, const char *file);
/* Returns true for a file of the standard library or of an installed package, but not for the
 * user's own files. */
bool known_library(const char *file);
/* For a file in an installed package, *ret_len is the length of the path up to the package:
 * "…/site-packages/mypkg" or "…/site-packages/mymodule.py". Returns false for other files. */
bool known_package(const char *file, size_t *ret_len);
/* Returns true for the wrapper script that an installer writes to run a package as a command. */
bool known_wrapper(const char *function, const char *file, uint32_t line);
/* Returns true if INNER is a comprehension or generator expression in OUTER, and both are in the
 * same file. Before Python 3.11 the name of a comprehension does not include the function. */
bool known_comprehension(const char *inner, const char *outer);
