/* Finds ebb's other files, relative to the program, so that an installation can be moved. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* The folder with the sitecustomize.py that `ebb run` adds to PYTHONPATH: of the installation, the
 * wheel, or the source tree of this program. False if there is none, or none that can be trusted.
 */
bool place_find_shim(char ret[PATH_MAX]);
/* libebb-heap.so, for LD_PRELOAD. False as above. */
bool place_find_heap(char ret[PATH_MAX]);
/* The libwslay.so.1 of a wheel or tarball. False as above; the system may still have one. */
bool place_find_wslay(char ret[PATH_MAX]);
