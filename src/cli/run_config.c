/* The config file of `ebb run`: each line goes through the option that has its name. */
#include "cli/run_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/text.h"

#define BLANKS " \t\r"
/* Names are cut, so that what is wrong with them is never cut off. */
#define PLACE "%.200s:%d"

/* One line taken apart; the pointers are into it. */
struct setting {
    int line;
    const char *name;
    const char *value; /* NULL: no = */
};

static char *trim(char *s)
{
    s += strspn(s, BLANKS);
    size_t len = strlen(s);
    while (len > 0 && strchr(BLANKS, s[len - 1]))
        s[--len] = '\0';
    return s;
}

/* Ends S at a # that begins it or follows a blank; inside quotes it is an ordinary character. */
static void cut_comment(char *s)
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

/* A value that is one quoted text loses its quotes, as it would on a command line. */
static char *unquote(char *s)
{
    size_t len = strlen(s);
    if (len < 2 || (*s != '\'' && *s != '"') || strchr(s + 1, *s) != s + len - 1)
        return s;
    s[len - 1] = '\0';
    return s + 1;
}

static const struct cli_option *find_option(const struct run_config *c, const char *name)
{
    for (const struct cli_option *o = c->table; o->name; o++) {
        if (o != c->except && strcmp(o->name, name) == 0)
            return o;
    }
    return NULL;
}

static int unknown_setting(const struct run_config *c, const struct setting *s, struct err *err)
{
    const char *names[CLI_OPTIONS_MAX];
    size_t count = 0;
    for (const struct cli_option *o = c->table; o->name && count < CLI_OPTIONS_MAX; o++) {
        if (o != c->except)
            names[count++] = o->name;
    }
    const char *nearest = cli_nearest(s->name, names, count);
    if (nearest)
        return err_set(err, -EINVAL, PLACE ": there is no setting \"%.100s\"; did you mean \"%s\"?",
                       c->file, s->line, s->name, nearest);
    return err_set(err, -EINVAL, PLACE ": there is no setting \"%.100s\"; they are named as %s",
                   c->file, s->line, s->name,
                   c->named_as ? c->named_as : "the guard's options in `ebb help run`");
}

/* "restart" and "restart = yes" are --restart; "restart = no" is nothing. */
static int set_flag(const struct cli_option *o, const struct setting *s, void *options,
                    struct err *err)
{
    if (!s->value || strcmp(s->value, "yes") == 0)
        return cli_set(o, o->name, NULL, options, err);
    if (strcmp(s->value, "no") == 0)
        return 0;
    return err_set(err, -EINVAL, "%s: \"%.100s\" is neither yes nor no", o->name, s->value);
}

static int set_option(const struct cli_option *o, const struct setting *s, void *options,
                      struct err *err)
{
    if (o->type == CLI_FLAG)
        return set_flag(o, s, options, err);
    if (!s->value || !*s->value)
        return err_set(err, -EINVAL, "%s has no value; write it like %s = %s", o->name, o->name,
                       o->arg);
    return cli_set(o, o->name, s->value, options, err);
}

static int take_setting(const struct run_config *c, const struct setting *s, int *lines,
                        void *scratch, struct err *err)
{
    const struct cli_option *o = find_option(c, s->name);
    if (!o)
        return unknown_setting(c, s, err);
    size_t index = (size_t)(o - c->table);
    if (lines[index])
        return err_set(err, -EINVAL, PLACE ": %s is already set in line %d", c->file, s->line,
                       s->name, lines[index]);
    lines[index] = s->line;
    bool is_taken = c->place[index] != RUN_CONFIG_COMMAND_LINE;
    if (set_option(o, s, is_taken ? c->options : scratch, err) < 0)
        return err_prefix(err, -EINVAL, PLACE, c->file, s->line);
    bool is_no = o->type == CLI_FLAG && s->value && strcmp(s->value, "no") == 0;
    if (is_taken && !is_no)
        c->place[index] = s->line;
    return 0;
}

/* False for a line with nothing on it. */
static bool split_line(char *line, struct setting *ret)
{
    cut_comment(line);
    char *name = trim(line);
    if (!*name)
        return false;
    char *equals = strchr(name, '=');
    if (equals) {
        *equals = '\0';
        ret->value = unquote(trim(equals + 1));
    }
    ret->name = trim(name);
    return true;
}

static bool is_text(const char *s, size_t len)
{
    uint32_t c = 0;
    for (size_t i = 0, n; i < len; i += n) {
        n = text_utf8(s + i, len - i, &c);
        if (n == 0 || (c < ' ' && !strchr("\t\r\n", (int)c)) || c == 0)
            return false;
    }
    return true;
}

int run_config_parse(const struct run_config *c, char *text, size_t len, struct err *err)
{
    int lines[CLI_OPTIONS_MAX] = {0};
    if (!is_text(text, len))
        return err_set(err, -EINVAL, "%.200s is not a text file; its lines are like limit = 24G",
                       c->file);
    AUTO_FREE void *scratch = calloc(1, c->options_size);
    if (!scratch)
        return err_set(err, -ENOMEM, "%.200s: out of memory", c->file);
    int number = 0;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        struct setting s = {.line = ++number};
        int r = split_line(line, &s) ? take_setting(c, &s, lines, scratch, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int run_config_read(const struct run_config *c, struct buf *text, struct err *err)
{
    int r = io_read_all(AT_FDCWD, c->file, RUN_CONFIG_BYTES, text);
    if (r == -EFBIG)
        return err_set(err, r, "%.200s is larger than %d KiB; that is no config file", c->file,
                       RUN_CONFIG_BYTES >> 10);
    if (r < 0)
        return err_set(err, r, "cannot read %.200s: %s", c->file, strerror(-r));
    size_t len = text->len;
    buf_add_byte(text, '\0');
    if (text->failed)
        return err_set(err, -ENOMEM, "%.200s: out of memory", c->file);
    return run_config_parse(c, text->data, len, err);
}
