/* The marks of a recording as a verdict is made of: of one process and its job. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profile/growth.h"

struct err;

/* Those of the recording at PATH (a run folder, or a trace) that came at or after SINCE_NS: the
 * process's own where it sent steps, else all. To be freed. No recording, or none in it: 0 and
 * *ret_count 0. */
int marks_read(const char *path, int32_t pid, uint64_t since_ns, struct growth_mark **ret,
               size_t *ret_count, struct err *err);
