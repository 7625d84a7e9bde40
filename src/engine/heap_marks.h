/* The marks of a recording as a profile's growth is judged by. */
#pragma once

#include <stddef.h>

#include "profile/growth.h"

struct err;

/* Those of the recording in RUN_DIR that came while P's process was read: its own where it sent
 * any, else all. To be freed. No recording, a damaged one, or none in it: 0, and as many as there
 * are. */
int heap_marks_read(const char *run_dir, const struct profile *p, struct growth_mark **ret,
                    size_t *ret_count, struct err *err);
