/* The server's log: one line each on standard error, JSON where that is no terminal:
 * {"t", "level", "event", "job"?, "message"}. A reader that stalls loses lines, and gets to know
 * how many; the server never waits for it. Of one event about one job only so many lines are
 * written, and then how many were suppressed: jobs must not be able to fill the disk with it. */
#pragma once

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Nothing is written before this. */
void log_start(int fd, enum log_level least, int as_json);
/* EVENT is a literal ("job_state", "listening"); JOB 0: none. */
void log_line(enum log_level level, const char *event, int64_t job, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* JOB has ended: writes how many of its lines were suppressed; the next one is not. */
void log_job_over(int64_t job);
