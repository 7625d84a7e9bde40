/* Options as a table: parsing of command lines, config files and requests, help, the manual page
 * and completions all come from its rows. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct err;

enum option_type {
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char * */
    OPTION_TEXTS,    /* struct option_texts: may be given several times */
    OPTION_DURATION, /* uint64_t nanoseconds */
    OPTION_SECONDS,  /* double */
    OPTION_SIZE,     /* struct quantity_size */
    OPTION_BYTES,    /* uint64_t: a size in bytes, not a share */
    OPTION_INT,      /* int64_t */
    OPTION_PATH,     /* const char *, completed as a file name */
    OPTION_CHOICE,   /* const char *: one of the words in ARG, "bash|zsh|fish" */
    OPTION_PARSED,   /* whatever the option's own PARSE makes of it */
};

enum option_scope {
    OPTION_ANYWHERE,     /* command line, config file, request to the server */
    OPTION_COMMAND_LINE, /* command line alone */
    OPTION_HIDDEN,       /* the same, for other parts of ebb: never shown */
};

enum { OPTION_TEXTS_MAX = 64, OPTIONS_MAX = 64 };
struct option_texts {
    const char *v[OPTION_TEXTS_MAX];
    size_t count;
};

/* What was not given and has no fallback stays zeroed. */
struct option_desc {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* or 0 */
    enum option_type type;
    enum option_scope scope;
    const char *arg;      /* "TIME", "SIZE", "FILE"; NULL for flags */
    const char *help;     /* one sentence, no full stop at the end */
    const char *fallback; /* default as written on a command line, or NULL */
    int64_t min, max;     /* of numbers; durations in ms; both 0: no bounds; max 0: none above */
    size_t offset;        /* into the struct of the values */
    const char *heading;  /* of the group that begins with this option; NULL: none begins */
    /* Of OPTION_PARSED: fills in AT, or -errno with a sentence that begins with WHAT. */
    int (*parse)(const char *what, const char *text, void *at, struct err *err);
};

/* Rows: OPTION_ROW('i', "interval", DURATION, "TIME", offsetof(…), .help = "…", …). */
#define OPTION_ROW(letter_, name_, type_, arg_, offset_, ...)                                      \
    {                                                                                              \
        .letter = (letter_), .name = (name_), .type = OPTION_##type_, .arg = (arg_),               \
        .offset = (offset_), __VA_ARGS__                                                           \
    }

/* The options that were given, each once, and the texts that the values point into. */
struct option_given {
    const struct option_desc *option;
    const char *text; /* as written, the last time; NULL for flags */
    int line;         /* of the config file; 0: command line or request */
};
struct options_given {
    struct option_given v[OPTIONS_MAX];
    size_t count;
    struct option_text *texts;
};
void options_given_fini(struct options_given *given); /* accepts a zeroed one */
const struct option_given *options_find(const struct options_given *given, const char *name);

/* Puts TEXT, checked, into VALUES, and notes it in GIVEN. WHAT begins the sentence about a wrong
 * one. 0 or -errno. TEXT is NULL for flags. */
int options_give(struct options_given *given, const struct option_desc *o, const char *what,
                 const char *text, void *values, struct err *err);
/* The defaults of TABLE. */
int options_fall_back(const struct option_desc *table, void *values, struct err *err);
/* The row of that name, or NULL with a sentence that names the one probably meant. */
const struct option_desc *options_row(const struct option_desc *table, const char *name,
                                      const char *command, struct err *err);
/* The word of WORDS that WORD was probably meant to be, or NULL. */
const char *option_nearest(const char *word, const char *const *words, size_t count);

/* ---- other forms ---- */

/* Appends "--name" and "--name=value", each with a NUL behind it. Returns how many. */
size_t options_put_argv(struct buf *out, const struct options_given *given);
/* OBJECT by long names: texts, whole numbers, true for flags; null and false are not given. The
 * sentence begins with "options". -EINVAL, -ENOMEM. */
int options_read_json(const struct option_desc *table, const char *command, const json_t *object,
                      struct options_given *given, void *values, struct err *err);
/* -EINVAL with a sentence where a text is not UTF-8. */
int options_put_json(json_t *object, const struct option_given *given, struct err *err);

/* A config file of `name = value` lines. */
enum { OPTIONS_CONFIG_BYTES = 64 << 10 };
struct options_config {
    const char *file;    /* for sentences */
    const char *command; /* whose help lists the options */
    const struct option_desc *table;
    struct options_given *given; /* what is from the command line is checked, but not taken */
    void *values;
    size_t values_size;
};
/* TEXT must end in a NUL that is not counted, and is changed. 0, or -EINVAL and a sentence that
 * begins with file and line. */
int options_config_parse(const struct options_config *c, char *text, size_t len, struct err *err);
/* The same of c->file: 0 or -errno. */
int options_config_read(const struct options_config *c, struct err *err);
