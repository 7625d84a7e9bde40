/* Gathering a run for its report. */
#pragma once

struct csv_options;
struct err;
struct report;

/* The run folder, recording or table at PATH. What cannot be read is named in the report; -errno
 * with a sentence only where nothing can. RET borrows PATH and is to be freed in any case. */
int report_read(const char *path, const struct csv_options *csv, struct report *ret,
                struct err *err);
/* Where AFTER is shorter than BEFORE: the verdict on as much of BEFORE, into it. */
int report_read_early(struct report *before, const struct report *after,
                      const struct csv_options *csv, struct err *err);
