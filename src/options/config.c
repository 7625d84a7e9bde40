/* Reads a config file. Each line sets one option; the option's own parser reads the value. */
#include "options/option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/text.h"

#define BLANKS " \t\r"
/* Long file names are truncated, so that the error message itself fits. */
#define PLACE "%.200s:%d"

/* One parsed line. The pointers point into the line's text. */
struct setting {
    int line;
    const char *name;
    const char *value; /* text after the "="; NULL if the line has no "=" */
};

static char *config_trim(char *s)
{
    s += strspn(s, BLANKS);
    size_t len = strlen(s);
    while (len > 0 && strchr(BLANKS, s[len - 1]))
        s[--len] = '\0';
    return s;
}

/* Cuts S at a "#" that is at its start or after a blank, but not within quotes. */
static void config_cut_comment(char *s)
{
    char quote = '\0';
    for (char *p = s; *p; p++) {
        if (quote)
            quote = *p == quote ? '\0' : quote;
        else if (*p == '\'' || *p == '"')
            quote = *p;
        else if (*p == '#' && (p == s || strchr(BLANKS, p[-1]))) {
            *p = '\0';
            return;
        }
    }
}

/* Removes quotes around the whole value. */
static char *config_unquote(char *s)
{
    size_t len = strlen(s);
    if (len < 2 || (*s != '\'' && *s != '"') || strchr(s + 1, *s) != s + len - 1)
        return s;
    s[len - 1] = '\0';
    return s + 1;
}

/* "restart" and "restart = yes" mean --restart. "restart = no" has no effect. */
static int config_set_flag(const struct option_desc *o, const struct setting *s,
                           struct options_given *given, void *values, struct err *err)
{
    if (!s->value || strcmp(s->value, "yes") == 0)
        return options_give(given, o, o->name, NULL, values, err);
    if (strcmp(s->value, "no") == 0)
        return 0;
    return err_set(err, -EINVAL, "%s: \"%.100s\" is neither yes nor no", o->name, s->value);
}

static int config_set_option(const struct option_desc *o, const struct setting *s,
                             struct options_given *given, void *values, struct err *err)
{
    if (o->type == OPTION_FLAG)
        return config_set_flag(o, s, given, values, err);
    if (!s->value || !*s->value)
        return err_set(err, -EINVAL, "%s has no value; write it like %s = %s", o->name, o->name,
                       o->arg);
    return options_give(given, o, o->name, s->value, values, err);
}

/* Applies one setting. If the command line overrides the setting, it is still checked: the value is
 * parsed into SCRATCH and discarded. */
static int config_take_setting(const struct options_config *c, const struct setting *s, int *lines,
                               void *scratch, struct err *err)
{
    struct options_given ignored = {0};
    const struct option_desc *o = options_row(c->table, s->name, c->command, err);
    if (!o)
        return err_prefix(err, -EINVAL, PLACE, c->file, s->line);
    size_t index = (size_t)(o - c->table);
    if (lines[index])
        return err_set(err, -EINVAL, PLACE ": %s is already set in line %d", c->file, s->line,
                       s->name, lines[index]);
    lines[index] = s->line;
    if (options_find(c->given, o->name)) {
        int r = config_set_option(o, s, &ignored, scratch, err);
        options_given_fini(&ignored);
        return r < 0 ? err_prefix(err, r, PLACE, c->file, s->line) : 0;
    }
    size_t before = c->given->count;
    if (config_set_option(o, s, c->given, c->values, err) < 0)
        return err_prefix(err, -EINVAL, PLACE, c->file, s->line);
    if (c->given->count > before)
        c->given->v[before].line = s->line;
    return 0;
}

/* Splits a line into name and value. Returns false if the line is empty. */
static bool config_split_line(char *line, struct setting *ret)
{
    config_cut_comment(line);
    char *name = config_trim(line);
    if (!*name)
        return false;
    char *equals = strchr(name, '=');
    if (equals) {
        *equals = '\0';
        ret->value = config_unquote(config_trim(equals + 1));
    }
    ret->name = config_trim(name);
    return true;
}

static bool config_is_text(const char *s, size_t len)
{
    uint32_t c = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = text_utf8(s + i, len - i, &c);
        if (n == 0 || (c < ' ' && !strchr("\t\r\n", (int)c)) || c == 0)
            return false;
    }
    return true;
}

int options_config_parse(const struct options_config *c, char *text, size_t len, struct err *err)
{
    int lines[OPTIONS_MAX] = {0};
    if (!config_is_text(text, len))
        return err_set(err, -EINVAL, "%.200s is not a text file; write lines like limit = 24G",
                       c->file);
    AUTO_FREE void *scratch = calloc(1, c->values_size);
    if (!scratch)
        return err_set(err, -ENOMEM, "%.200s: out of memory", c->file);
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        struct setting s = {.line = ++number};
        int r = config_split_line(line, &s) ? config_take_setting(c, &s, lines, scratch, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int options_config_read(const struct options_config *c, struct err *err)
{
    struct buf text = {0};
    int r = io_read_all(AT_FDCWD, c->file, OPTIONS_CONFIG_BYTES, &text);
    if (r == -EFBIG)
        r = err_set(err, r, "%.200s is too large for a config file (maximum %d KiB)", c->file,
                    OPTIONS_CONFIG_BYTES >> 10);
    else if (r < 0)
        r = err_set(err, r, "cannot read %.200s: %s", c->file, strerror(-r));
    else if (buf_reserve(&text, 1) < 0)
        r = err_set(err, -ENOMEM, "%.200s: out of memory", c->file);
    if (r == 0) {
        text.data[text.len] = '\0';
        r = options_config_parse(c, text.data, text.len, err);
    }
    buf_fini(&text);
    return r;
}
