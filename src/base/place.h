/* Finds the other files of ebb relative to the program, so that an installation can be moved. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Finds the folder with the sitecustomize.py that `ebb run` adds to PYTHONPATH: in the
 * installation, the wheel or the source tree of this program. Returns false if the folder does not
 * exist or belongs to another user. */
bool place_find_shim(char ret[PATH_MAX]);
/* Finds libebb-heap.so, for LD_PRELOAD. Returns false if the file does not exist or belongs to
 * another user. */
bool place_find_heap(char ret[PATH_MAX]);
/* The reason for which place_find_heap fails. */
#ifdef __GLIBC__
#define PLACE_NO_HEAP "libebb-heap.so is not installed next to the ebb program"
#else
#define PLACE_NO_HEAP "the heap profiler requires glibc; this is the build for musl"
#endif
/* Finds the libwslay.so.1 of a wheel or tarball. Returns false if that file does not exist or
 * belongs to another user; the system may still have the library. */
bool place_find_wslay(char ret[PATH_MAX]);
