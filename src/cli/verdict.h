/* The verdict on a recording, for commands that need it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* What `ebb verdict --json` prints of the run folder or trace at PATH; damage is passed
 * over. 0, or -errno with a sentence. */
int verdict_of_recording(const char *path, json_t **ret, struct err *err);
/* A file that begins as a recording does, no folder. */
bool verdict_is_recording_file(const char *path);
