/* Options as a table, for command lines, config files, requests, help, the manual page and
 * completions. */
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
    OPTION_SECONDS,  /* double, in seconds */
    OPTION_SIZE,     /* struct quantity_size */
    OPTION_BYTES,    /* uint64_t: a size in bytes, without shares */
    OPTION_INT,      /* int64_t */
    OPTION_PATH,     /* const char *, completed as a file name */
    OPTION_CHOICE,   /* const char *: one of the words in ARG, "bash|zsh|fish" */
    OPTION_PARSED,   /* filled in by the row's PARSE function */
};

enum option_scope {
    OPTION_ANYWHERE,     /* command line, config file, request to the server */
    OPTION_COMMAND_LINE, /* command line only */
    OPTION_HIDDEN,       /* command line only, and not in help: used by ebb itself */
};

enum { OPTION_TEXTS_MAX = 64, OPTIONS_MAX = 64 };
struct option_texts {
    const char *v[OPTION_TEXTS_MAX];
    size_t count;
};

/* Values of options without a default stay zeroed if they are not given. */
struct option_desc {
    const char *name; /* without dashes; NULL ends the table */
    char letter;      /* short option, or 0 */
    enum option_type type;
    enum option_scope scope;
    const char *arg;      /* "TIME", "SIZE", "FILE"; NULL for flags */
    const char *help;     /* one sentence, no full stop at the end */
    const char *fallback; /* default as written on a command line, or NULL */
    /* bounds of numbers (durations in ms); both 0: no bounds; max 0: no upper bound */
    int64_t min, max;
    size_t offset;       /* of the value in the struct of values */
    const char *heading; /* title of the group that this option starts; NULL: no new group */
    /* For OPTION_PARSED: fills in AT. 0, or -errno and an error that starts with WHAT. */
    int (*parse)(const char *what, const char *text, void *at, struct err *err);
};

/* A row of a table: OPTION_ROW('i', "interval", DURATION, "TIME", offsetof(…), .help = "…", …). */
#define OPTION_ROW(letter_, name_, type_, arg_, offset_, ...)                                      \
    {                                                                                              \
        .letter = (letter_), .name = (name_), .type = OPTION_##type_, .arg = (arg_),               \
        .offset = (offset_), __VA_ARGS__                                                           \
    }

/* The options that were given, each once, and the texts that their values point into. */
struct option_given {
    const struct option_desc *option;
    const char *text; /* as last written; NULL for flags */
    int line;         /* line in the config file; 0: from the command line or a request */
};
struct options_given {
    struct option_given v[OPTIONS_MAX];
    size_t count;
    struct option_text *texts;
};
void options_given_fini(struct options_given *given); /* accepts a zeroed struct */
const struct option_given *options_find(const struct options_given *given, const char *name);

/* Parses TEXT (NULL for flags) into VALUES and adds it to GIVEN. An error message starts with WHAT.
 * 0 or -errno. */
int options_give(struct options_given *given, const struct option_desc *o, const char *what,
                 const char *text, void *values, struct err *err);
/* Sets the defaults of TABLE. */
int options_fall_back(const struct option_desc *table, void *values, struct err *err);
/* The row of that name, or NULL and an error that suggests a similar name. */
const struct option_desc *options_row(const struct option_desc *table, const char *name,
                                      const char *command, struct err *err);
/* The member of WORDS most similar to WORD, or NULL. */
const char *option_nearest(const char *word, const char *const *words, size_t count);

/* ---- other forms ---- */

/* Appends "--name" or "--name=value" for each option, each followed by NUL. Returns their number.
 */
size_t options_put_argv(struct buf *out, const struct options_given *given);
/* Reads OBJECT, which maps long names to strings, integers or, for flags, true; null and false mean
 * not given. Errors start with "options". 0, -EINVAL or -ENOMEM. */
int options_read_json(const struct option_desc *table, const char *command, const json_t *object,
                      struct options_given *given, void *values, struct err *err);
/* 0, or -EINVAL and an error if a text is not UTF-8. */
int options_put_json(json_t *object, const struct option_given *given, struct err *err);

/* A config file of `name = value` lines. */
enum { OPTIONS_CONFIG_BYTES = 64 << 10 };
struct options_config {
    const char *file;    /* name in error messages */
    const char *command; /* command whose help lists the options */
    const struct option_desc *table;
    struct options_given *given; /* settings that the command line overrides are only checked */
    void *values;
    size_t values_size;
};
/* Parses TEXT, which must be followed by NUL and is modified. 0, or -EINVAL and an error that
 * starts with file and line. */
int options_config_parse(const struct options_config *c, char *text, size_t len, struct err *err);
/* Reads and parses c->file: 0 or -errno. */
int options_config_read(const struct options_config *c, struct err *err);
