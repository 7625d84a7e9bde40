/* Reads a run for its report. */
#pragma once

#include <stdbool.h>

struct csv_options;
struct err;
struct report;

/* Reads the run folder, recording or table at PATH. IS_BRIEF: reads only the part of the heap that
 * a summary shows. The report names parts that cannot be read; -errno and an error only if nothing
 * can be read. RET borrows PATH; the caller frees it in any case. */
int report_read(const char *path, const struct csv_options *csv, bool is_brief, struct report *ret,
                struct err *err);
/* If AFTER is shorter than BEFORE: adds the verdict on an equally long first part of BEFORE to
 * BEFORE. */
int report_read_early(struct report *before, const struct report *after,
                      const struct csv_options *csv, struct err *err);
