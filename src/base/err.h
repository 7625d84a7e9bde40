#pragma once

/* An error message for the user: the offending value and what to do next. The text may contain
 * unescaped names; it is escaped when it is printed. */
struct err {
    char text[512];
};

/* Sets the message (without newline or program name) and returns CODE, so that a caller can write
 * `return err_set(err, -EINVAL, "...")`. ERR may be NULL. Long messages are truncated. Preserves
 * errno. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "PREFIX: " to the message. Returns CODE. */
int err_prefix(struct err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
