/* Where the other files of ebb are: searched beside the program itself, so that an installation can
 * be moved as a whole. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* The folder with the sitecustomize.py that `ebb run` puts in front of PYTHONPATH: of the
 * installation, of the wheel, or of the source tree that this program is from. False: there is
 * none, or none that may be trusted. */
bool place_find_shim(char ret[PATH_MAX]);
/* libebb-heap.so, for LD_PRELOAD. False likewise. */
bool place_find_heap(char ret[PATH_MAX]);
/* The libwslay.so.1 that a wheel or tarball carries. False likewise: the system's may exist. */
bool place_find_wslay(char ret[PATH_MAX]);
