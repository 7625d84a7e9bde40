/* Finds the other parts of ebb relative to the ebb program, so that an installation can be
 * moved. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Finds the folder that `ebb run` adds to PYTHONPATH because it contains ebb's sitecustomize.py.
 * Searches the installation, wheel or source tree of ebb. Returns false if the folder does
 * not exist, or if its owner is not root, the current user or the owner of the ebb program. */
bool place_find_shim(char ret[PATH_MAX]);
/* Finds libebb-heap.so, for LD_PRELOAD. Returns false if the file does not exist, or if its owner
 * is not root, the current user or the owner of the ebb program. */
bool place_find_heap(char ret[PATH_MAX]);
/* Error message for a failed place_find_heap. */
#ifdef __GLIBC__
#define PLACE_NO_HEAP "libebb-heap.so is not installed next to the ebb program"
#else
#define PLACE_NO_HEAP "the heap profiler requires glibc, but this ebb was built for musl"
#endif
/* Finds the libwslay.so.1 that a wheel or tarball contains. Returns false if the file does not
 * exist, or if its owner is not root, the current user or the owner of the ebb program. The system
 * may still provide the library. */
bool place_find_wslay(char ret[PATH_MAX]);
