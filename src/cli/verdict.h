/* The verdict on a recording, for commands that need it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* What `ebb verdict --json` prints of the run folder or trace at PATH; damage is passed
 * over. 0, or -errno with a sentence. */
int verdict_of_recording(const char *path, json_t **ret, struct err *err);
/* The same as it was known after step UNTIL_STEP, or UNTIL_S seconds where that is 0. */
int verdict_of_beginning(const char *path, int64_t until_step, double until_s, json_t **ret,
                         struct err *err);
/* A file that begins as a recording does, no folder. */
bool verdict_is_recording_file(const char *path);
