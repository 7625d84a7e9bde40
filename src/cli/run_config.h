/* A config file of `name = value` lines: the options of a table, given in a file. */
#pragma once

#include <stddef.h>

#include "cli/cli.h"

enum {
    RUN_CONFIG_BYTES = 64 << 10,
    RUN_CONFIG_NOWHERE = 0, /* a setting's place: not given, else its line in the file, or … */
    RUN_CONFIG_COMMAND_LINE = -1,
};

struct run_config {
    const char *file;     /* for sentences */
    const char *named_as; /* "the options in `ebb help serve`"; NULL: the guard's of run */
    const struct cli_option *table;
    const struct cli_option *except; /* of the table; no setting of the file */
    void *options;                   /* what the table's offsets are into */
    size_t options_size;
    int *place; /* of each option; those from the command line are checked, but not taken */
};

/* Takes in TEXT, which must end in a NUL that is not counted, is changed, and must live as long as
 * the options: they point into it. 0, or -EINVAL and a sentence that begins with file and line. */
int run_config_parse(const struct run_config *c, char *text, size_t len, struct err *err);
/* The same of c->file, whose text goes into TEXT: 0 or -errno. */
struct buf;
int run_config_read(const struct run_config *c, struct buf *text, struct err *err);
