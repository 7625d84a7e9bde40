/* The verdict on a recording, for commands that show it among other things. */
#pragma once

#include <jansson.h>

struct err;

/* What `ebb verdict --json` prints of the recording at PATH, a run folder or a file. Damage is passed
 * over. 0 or -errno with a sentence. */
int verdict_recording(const char *path, json_t **ret, struct err *err);
