/* Why something failed, in one sentence for a person. */
#pragma once

/* Holds the offending value and what to do next; the text is escaped for a terminal when it is
 * printed, so raw names may go into it. */
struct err {
    char text[512];
};

/* Writes the sentence (no newline, no program name) and returns CODE, so that a caller can say
 * `return err_set(err, -EINVAL, "...")`. ERR may be NULL. Long texts are cut, never overrun.
 * Preserves errno. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before what ERR already says. Returns CODE. */
int err_prefix(struct err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
