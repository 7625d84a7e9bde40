/* The server's log on standard error, one line per event. The lines are JSON unless standard error
 * is a terminal: {"t", "level", "event", "job"?, "message"}. The server never waits for the reader
 * of the log. If the reader is too slow, the server drops lines and logs how many. */
#pragma once

#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Nothing is logged before this call. */
void log_start(int fd, enum log_level least, int as_json);
/* Logs a line. EVENT is a string literal ("job_state", "listening"). JOB is 0 if the line is not
 * about a job. */
void log_line(enum log_level level, const char *event, int64_t job, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
