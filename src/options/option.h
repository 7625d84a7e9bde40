/* Options as tables, used for command lines, config files, requests, help texts, the manual page
 * and shell completions. */
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
    OPTION_TEXTS,    /* struct option_texts; the option may be given several times */
    OPTION_DURATION, /* uint64_t nanoseconds */
    OPTION_SECONDS,  /* double, a number of seconds */
    OPTION_SIZE,     /* struct quantity_size */
    OPTION_BYTES,    /* uint64_t, a size in bytes; percentages are refused */
    OPTION_INT,      /* int64_t */
    OPTION_PATH,     /* const char *, which shells complete as a file name */
    OPTION_CHOICE,   /* const char *, one of the words listed in ARG, such as "bash|zsh|fish" */
    OPTION_PARSED,   /* any type, parsed by the row's own PARSE function */
};

enum option_scope {
    /* allowed on the command line, in config files and in requests to the server */
    OPTION_ANYWHERE,
    OPTION_COMMAND_LINE, /* allowed on the command line only */
    /* allowed on the command line only, for ebb's own use; not shown in help */
    OPTION_HIDDEN,
};

enum { OPTION_TEXTS_MAX = 64, OPTIONS_MAX = 64 };
struct option_texts {
    const char *v[OPTION_TEXTS_MAX];
    size_t count;
};

/* Describes one option. A value without a default stays zeroed if the option is not given. */
struct option_desc {
    const char *name; /* name without dashes; NULL ends the table */
    char letter;      /* short option, or 0 */
    enum option_type type;
    enum option_scope scope;
    const char *arg;      /* "TIME", "SIZE", "FILE"; NULL for flags */
    const char *help;     /* help text: one sentence without a full stop */
    const char *fallback; /* default value as a user would write it, or NULL */
    /* Bounds of a number, in ms for a duration. A MAX of 0 means no upper bound, and MIN and MAX of
     * 0 mean no bounds. */
    int64_t min, max;
    size_t offset;       /* offset of the value in the struct of values */
    const char *heading; /* title of the group of options that starts here, or NULL */
    /* For OPTION_PARSED: parses TEXT into the value at AT. Returns 0, or -errno and an error
     * message that starts with WHAT. */
    int (*parse)(const char *what, const char *text, void *at, struct err *err);
};

/* Writes one row of an option table, for example OPTION_ROW('i', "interval", DURATION, "TIME",
 * offsetof(…), .help = "…"). */
#define OPTION_ROW(letter_, name_, type_, arg_, offset_, ...)                                      \
    {                                                                                              \
        .letter = (letter_), .name = (name_), .type = OPTION_##type_, .arg = (arg_),               \
        .offset = (offset_), __VA_ARGS__                                                           \
    }

/* One option that was given. If it was given several times, the last value applies. */
struct option_given {
    const struct option_desc *option;
    const char *text; /* text of the value as last given; NULL for flags */
    /* line number in the config file; 0 if the option came from the command line or a request */
    int line;
};
struct options_given {
    struct option_given v[OPTIONS_MAX];
    size_t count;
    struct option_text *texts;
};
void options_given_fini(struct options_given *given); /* frees the texts; accepts a zeroed struct */
const struct option_given *options_find(const struct options_given *given, const char *name);

/* Parses TEXT (NULL for flags) into VALUES and adds the option to GIVEN. An error message starts
 * with WHAT. Returns 0 or -errno. */
int options_give(struct options_given *given, const struct option_desc *o, const char *what,
                 const char *text, void *values, struct err *err);
/* Sets each option of TABLE that has a default to that default. */
int options_fall_back(const struct option_desc *table, void *values, struct err *err);
/* Finds the row called NAME. If there is none, returns NULL and an error that suggests a similar
 * name. */
const struct option_desc *options_row(const struct option_desc *table, const char *name,
                                      const char *command, struct err *err);
/* Returns the word of WORDS that is most similar to WORD; NULL if none is similar. */
const char *option_nearest(const char *word, const char *const *words, size_t count);

/* ---- other forms ---- */

/* Appends "--name" or "--name=value" for each option, each followed by NUL. Returns the number of
 * arguments. */
size_t options_put_argv(struct buf *out, const struct options_given *given);
/* Reads options from OBJECT, whose keys are long option names. A value is a string or an integer,
 * or true for a flag. A value of null or false means that the option is not given. Error messages
 * start with "options". Returns 0, -EINVAL or -ENOMEM. */
int options_read_json(const struct option_desc *table, const char *command, const json_t *object,
                      struct options_given *given, void *values, struct err *err);
/* Adds an option to OBJECT. Returns 0, or -EINVAL and an error if the option's text is not UTF-8.
 */
int options_put_json(json_t *object, const struct option_given *given, struct err *err);

/* Settings for reading a config file, which consists of `name = value` lines. */
enum { OPTIONS_CONFIG_BYTES = 64 << 10 };
struct options_config {
    const char *file;    /* file name for error messages */
    const char *command; /* the command whose help lists the options, for error messages */
    const struct option_desc *table;
    /* options of the command line, or NULL; they override settings in the file, which are still
     * checked */
    struct options_given *given;
    void *values;
    size_t values_size;
};
/* Parses TEXT, which must be followed by NUL and is modified. Returns 0, or -EINVAL and an error
 * that starts with file name and line number. */
int options_config_parse(const struct options_config *c, char *text, size_t len, struct err *err);
/* Reads and parses c->file. Returns 0 or -errno. */
int options_config_read(const struct options_config *c, struct err *err);
