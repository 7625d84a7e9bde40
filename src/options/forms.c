/* Converts options, as given by the user, to command-line arguments and to JSON. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "options/option.h"

size_t options_put_argv(struct buf *out, const struct options_given *given)
{
    for (size_t i = 0; i < given->count; i++) {
        const struct option_given *g = &given->v[i];
        /* name and value are joined by "=", because a value may start with a dash */
        buf_printf(out, "--%s%s", g->option->name, g->text ? "=" : "");
        buf_add_str(out, g->text ? g->text : "");
        buf_add_byte(out, '\0');
    }
    return given->count;
}

static int options_read_value(const struct option_desc *o, const json_t *value,
                              struct options_given *given, void *values, struct err *err)
{
    char what[128], number[32];
    const char *text = json_string_value(value);
    snprintf(what, sizeof what, "options.%s", o->name);
    if (o->type == OPTION_FLAG)
        return json_is_true(value) ? options_give(given, o, what, NULL, values, err)
                                   : json_refuse(err, what, value, "is neither true nor false");
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    } else if (!text || strlen(text) != json_string_length(value)) {
        return json_refuse(err, what, value, "is neither a string nor an integer");
    }
    return options_give(given, o, what, text, values, err);
}

int options_read_json(const struct option_desc *table, const char *command, const json_t *object,
                      struct options_given *given, void *values, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const struct option_desc *o = options_row(table, name, command, err);
        if (!o)
            return err_prefix(err, -EINVAL, "options");
        if (json_is_null(value) || json_is_false(value))
            continue;
        int r = options_read_value(o, value, given, values, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int options_put_json(json_t *object, const struct option_given *given, struct err *err)
{
    json_t *value = given->text ? json_string(given->text) : json_true();
    if (!value)
        return err_set(err, -EINVAL, "--%s: \"%.100s\" is not UTF-8", given->option->name,
                       given->text);
    return json_object_set_new(object, given->option->name, value);
}
