/* One text split into words as a shell splits a command line, and names of signals. */
#pragma once

struct err;

/* Blanks and newlines part words; '…' keeps everything, "…" too but for a backslash before " \ $ or
 * a backquote, a backslash alone keeps the character behind it. Nothing is expanded. *ret is
 * NULL-ended and one allocation, to be given to free(). WHAT begins the sentence: 0, -EINVAL (a
 * quote that is not closed, a backslash at the end), -ENOMEM. */
int words_split(const char *what, const char *s, char ***ret, struct err *err);

/* "USR1", "SIGUSR1", "usr1", "10", "RTMIN+1": the number. 0, or -EINVAL with a sentence. */
int words_signal(const char *what, const char *s, int *ret, struct err *err);
enum { WORDS_SIGNAL_MAX = 24 };
/* "SIGUSR1", or "signal 77" for one that has no name. Returns OUT. */
char *words_signal_name(char out[WORDS_SIGNAL_MAX], int signo);
