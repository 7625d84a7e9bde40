/* Gathering a run for its report. */
#pragma once

struct err;
struct report;

/* The run folder or recording at PATH. What cannot be read is named in the report; -errno with a
 * sentence only where nothing can. RET is to be freed by report_fini. */
int report_read(const char *path, struct report *ret, struct err *err);
/* Where AFTER is shorter than BEFORE: the verdict on as much of BEFORE, into it. */
int report_read_early(struct report *before, const struct report *after, struct err *err);
