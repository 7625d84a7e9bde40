/* Splits text into words as a shell does, without expansion, and converts signal names. */
#include "base/words.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"

#define BLANKS " \t\r\n\v\f"

/* Copies the quoted text that begins at S to *at and advances *at. Returns the text after the
 * closing quote, or NULL if the quote is not closed. */
static const char *copy_quoted(const char *s, char **at)
{
    char quote = *s++;
    for (; *s && *s != quote; s++) {
        if (quote == '"' && *s == '\\' && s[1] && strchr("\"\\$`", s[1]))
            s++;
        *(*at)++ = *s;
    }
    return *s ? s + 1 : NULL;
}

/* Copies one word and a NUL to *at. Returns the text after the word, or NULL if a quote in the word
 * is not closed. */
static const char *copy_word(const char *s, char **at)
{
    while (*s && !strchr(BLANKS, *s)) {
        if (*s == '\'' || *s == '"') {
            s = copy_quoted(s, at);
            if (!s)
                return NULL;
            continue;
        }
        if (*s == '\\' && !*++s)
            return NULL;
        *(*at)++ = *s++;
    }
    *(*at)++ = '\0';
    return s;
}

int words_split(const char *what, const char *s, char ***ret, struct err *err)
{
    /* At most every second byte begins a word, so len / 2 + 2 pointers are enough, including the
     * final NULL. The allocation holds the pointers first, then the words. */
    size_t len = strlen(s), most = len / 2 + 2;
    char **words = malloc(most * sizeof *words + len + 1);
    if (!words)
        return err_set(err, -ENOMEM, "%s: out of memory", what);
    char *at = (char *)(words + most);
    size_t count = 0;
    for (const char *p = s + strspn(s, BLANKS); *p; p += strspn(p, BLANKS)) {
        words[count++] = at;
        p = copy_word(p, &at);
        if (!p) {
            free(words);
            return err_set(err, -EINVAL,
                           "%s: \"%.100s\" has an unclosed quote or ends in a backslash", what, s);
        }
    }
    words[count] = NULL;
    *ret = words;
    return 0;
}

/* The value of a number of one or two digits; -1 if S is not such a number. */
static int small_number(const char *s)
{
    int n = 0;
    if (!*s || strlen(s) > 2)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        n = n * 10 + (*s - '0');
    }
    return n;
}

/* The signal number of "RTMIN", "RTMIN+2" or "RTMAX-1"; -1 if NAME has another form. */
static int real_time_signal(const char *name)
{
    bool is_min = strncasecmp(name, "RTMIN", 5) == 0;
    if (!is_min && strncasecmp(name, "RTMAX", 5) != 0)
        return -1;
    int base = is_min ? SIGRTMIN : SIGRTMAX;
    name += 5;
    if (!*name)
        return base;
    int n = *name == (is_min ? '+' : '-') ? small_number(name + 1) : -1;
    return n < 0 ? -1 : base + (is_min ? n : -n);
}

static int named_signal(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } others[] = {{"IO", SIGIO}, {"CLD", SIGCHLD}, {"IOT", SIGABRT}};
    for (int n = 1; n < SIGRTMIN; n++) {
        const char *known = sigabbrev_np(n);
        if (known && strcasecmp(known, name) == 0)
            return n;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcasecmp(others[i].name, name) == 0)
            return others[i].number;
    }
    return real_time_signal(name);
}

int words_signal(const char *what, const char *s, int *ret, struct err *err)
{
    const char *name = strncasecmp(s, "SIG", 3) == 0 ? s + 3 : s;
    int n = small_number(s);
    if (n < 0)
        n = named_signal(name);
    /* signals between the last named one and SIGRTMIN are reserved by the C library */
    if (n <= 0 || n > SIGRTMAX || (n < SIGRTMIN && !sigabbrev_np(n)))
        return err_set(err, -EINVAL,
                       "%s: unknown signal \"%.100s\"; write it like USR1, SIGUSR2 or 10", what, s);
    *ret = n;
    return 0;
}

char *words_signal_name(char out[WORDS_SIGNAL_MAX], int signo)
{
    const char *name = sigabbrev_np(signo);
    if (name)
        snprintf(out, WORDS_SIGNAL_MAX, "SIG%s", name);
    else
        snprintf(out, WORDS_SIGNAL_MAX, "signal %d", signo);
    return out;
}
