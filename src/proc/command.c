/* Command lines: the program, script, module or code that one executes. */
#include "proc/command.h"

#include <string.h>

struct span command_basename(struct span path)
{
    const char *slash = path.len > 0 ? memrchr(path.p, '/', path.len) : NULL;
    return slash == NULL ? path : span_from(path, (size_t)(slash + 1 - path.p));
}

bool command_next(struct span *rest, struct span *ret)
{
    if (rest->len == 0)
        return false;
    const char *nul = memchr(rest->p, '\0', rest->len);
    size_t n = nul != NULL ? (size_t)(nul - rest->p) : rest->len;
    *ret = (struct span){rest->p, n};
    *rest = span_from(*rest, n + (nul != NULL ? 1 : 0));
    return true;
}

/* The program's name: no path, no login shell's dash, and of a title such as "sshd: me@pts/0"
 * only what stands before the colon. */
static struct span command_program_name(struct span argv0)
{
    const char *colon = memmem(argv0.p, argv0.len, ": ", 2);
    if (colon != NULL)
        argv0.len = (size_t)(colon - argv0.p);
    struct span name = command_basename(argv0);
    if (name.len > 1 && name.p[0] == '-')
        name = span_from(name, 1);
    return name;
}

bool command_is_python_name(struct span name)
{
    size_t i;
    if (span_begins(name, "python"))
        i = 6;
    else if (span_begins(name, "pypy"))
        i = 4;
    else
        return false;
    for (; i < name.len; i++) {
        char c = name.p[i];
        if ((c < '0' || c > '9') && c != '.' && c != 't' && c != 'd')
            return false;
    }
    return true;
}

/* Where an option cluster such as -um ends in an argument of its own: what that argument is. */
static bool python_option(struct span arg, struct span *rest, struct command *ret)
{
    for (size_t i = 1; i < arg.len; i++) {
        char c = arg.p[i];
        if (c != 'c' && c != 'm' && c != 'W' && c != 'X')
            continue;
        struct span value = span_from(arg, i + 1);
        if (value.len == 0 && !command_next(rest, &value))
            return false;
        if (c == 'W' || c == 'X')
            return false;
        ret->form = c == 'm' ? COMMAND_MODULE : COMMAND_CODE;
        ret->what = value;
        ret->rest = *rest;
        return true;
    }
    return false;
}

static void command_parse_python(struct span rest, struct command *ret)
{
    struct span arg, value;
    ret->form = COMMAND_NONE; /* interactive, or cut off */
    while (command_next(&rest, &arg)) {
        if (span_is(arg, "-"))
            return;
        if (span_is(arg, "--check-hash-based-pycs")) {
            if (!command_next(&rest, &value))
                return;
            continue;
        }
        if (span_begins(arg, "--"))
            continue;
        if (!span_begins(arg, "-")) {
            ret->form = COMMAND_SCRIPT;
            ret->what = arg;
            ret->rest = rest;
            return;
        }
        if (python_option(arg, &rest, ret))
            return;
    }
}

void command_parse(const char *args, size_t len, struct command *ret)
{
    struct span rest = {args, len}, argv0;
    *ret = (struct command){.form = COMMAND_NONE, .what = {"", 0}, .rest = {"", 0}};
    if (!command_next(&rest, &argv0))
        return;
    struct span name = command_program_name(argv0);
    if (command_is_python_name(name)) {
        ret->python = true;
        command_parse_python(rest, ret);
        return;
    }
    *ret = (struct command){.form = COMMAND_PROGRAM, .what = name, .rest = rest};
}
