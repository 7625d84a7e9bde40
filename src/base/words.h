/* Splits text into words as a shell does, and converts signal names. */
#pragma once

struct err;

/* Splits S into words separated by blanks and newlines. Single quotes keep every character
 * unchanged. Double quotes do so too, except that a backslash escapes " \ $ and a backquote.
 * Outside of quotes, a backslash escapes the next character. Nothing is expanded. *ret is a
 * NULL-terminated array; one free() releases it together with the words. Error messages begin with
 * WHAT. Returns 0, -EINVAL (a quote is not closed, or S ends in a backslash) or -ENOMEM. */
int words_split(const char *what, const char *s, char ***ret, struct err *err);

/* Parses a signal: "USR1", "SIGUSR1", "usr1", "10" or "RTMIN+1". Returns 0, or -EINVAL and sets
 * ERR. */
int words_signal(const char *what, const char *s, int *ret, struct err *err);
enum { WORDS_SIGNAL_MAX = 24 };
/* Writes the signal's name, such as "SIGUSR1", or "signal 77" if it has none. Returns OUT. */
char *words_signal_name(char out[WORDS_SIGNAL_MAX], int signo);
