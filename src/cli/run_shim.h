/* Where the Python package lies that comes with this program. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* The folder with the sitecustomize.py that `ebb run` puts in front of PYTHONPATH: of the
 * installation, of the wheel, or of the source tree that this program is from. False: there is
 * none, or none that may be trusted. */
bool run_shim_find(char ret[PATH_MAX]);
