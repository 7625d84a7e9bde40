/* Splits text into words as a shell does, and names signals. */
#pragma once

struct err;

/* Splits S into words, which are separated by blanks and newlines. Single quotes keep every
 * character as it is. Double quotes do so too, except for a backslash before " \ $ or a backquote.
 * A backslash keeps the next character. Nothing is expanded. *ret is an array that ends in NULL;
 * the caller frees it in one call, including the words. Error messages begin with WHAT. Returns 0,
 * -EINVAL (a quote is not closed, or S ends in a backslash) or -ENOMEM. */
int words_split(const char *what, const char *s, char ***ret, struct err *err);

/* Parses a signal: "USR1", "SIGUSR1", "usr1", "10" or "RTMIN+1". Returns 0, or -EINVAL with an
 * error. */
int words_signal(const char *what, const char *s, int *ret, struct err *err);
enum { WORDS_SIGNAL_MAX = 24 };
/* Writes "SIGUSR1", or "signal 77" for a signal without a name. Returns OUT. */
char *words_signal_name(char out[WORDS_SIGNAL_MAX], int signo);
