/* An error message for the user. */
#pragma once

/* The message contains the offending value and what to do next. It may contain raw names, as it is
 * escaped when it is printed. */
struct err {
    char text[512];
};

/* Sets the message (no newline, no program name) and returns CODE, for `return err_set(err,
 * -EINVAL, "...")`. ERR may be NULL. Long texts are truncated. Preserves errno. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "PREFIX: " to the message. Returns CODE. */
int err_prefix(struct err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
