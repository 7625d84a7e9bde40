/* Finds the folder of a job on several nodes by its id. */
#pragma once

#include <limits.h>

/* If OPERAND is the id of a job ("123") or of a step ("123.0") with a folder below ebb-runs, writes
 * its path and returns RET; of several steps, the last one counts. Otherwise returns OPERAND. */
const char *job_folder_find(const char *operand, char ret[PATH_MAX]);
