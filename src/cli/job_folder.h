/* Finds the folder of a job on several nodes by its id. */
#pragma once

#include <limits.h>

/* If OPERAND is the id of a job ("123") or of a step ("123.0") with a folder below ebb-runs, writes
 * the path of that folder to RET and returns RET. Of several steps of a job, uses the last one.
 * Returns OPERAND in all other cases. */
const char *job_folder_find(const char *operand, char ret[PATH_MAX]);
