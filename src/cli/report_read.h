/* Reads a run for its report. */
#pragma once

#include <stdbool.h>

struct csv_options;
struct err;
struct report;

/* Reads the run folder, recording or table at PATH. If IS_BRIEF, reads only the part of the heap
 * that a summary shows. If some parts cannot be read, the report names them. Returns -errno and an
 * error only if nothing can be read. RET borrows PATH; the caller frees RET, even after an
 * error. */
int report_read(const char *path, const struct csv_options *csv, bool is_brief, struct report *ret,
                struct err *err);
/* Reads two runs, before and after a change, for their comparison. The caller frees both reports,
 * even after an error. */
int report_read_pair(char **paths, const struct csv_options *csv, struct report *ret_before,
                     struct report *ret_after, struct err *err);
