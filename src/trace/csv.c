/* Interprets the rows of a CSV table: its columns, units and numbers. */
#include "trace/csv.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/number.h"
#include "trace/csv_table.h"

/* The size of the largest address space (five-level page tables), which no process can exceed. */
#define VALUE_MAX (UINT64_C(1) << 57)

enum { NO_COLUMN = -1 };

struct columns {
    int value, t, step, group, epoch, phase, steps_per_epoch, examples, batch;
    size_t count;
    uint64_t unit;
    char value_name[64]; /* name of the value column, for error messages */
};

static struct span field(const struct csv_table *t, int i)
{
    return i == NO_COLUMN ? (struct span){"", 0} : csv_table_field(t, (size_t)i);
}

static int find_column(const struct csv_table *t, const char *name)
{
    int similar = NO_COLUMN;
    for (size_t i = t->count; i-- > 0;) {
        struct span f = field(t, (int)i);
        if (f.len == strlen(name) && strncasecmp(f.p, name, f.len) == 0)
            similar = (int)i;
    }
    for (size_t i = 0; i < t->count; i++)
        if (span_is(field(t, (int)i), name))
            return (int)i;
    return similar;
}

/* Lists as many of the table's column names ("t, pid, rss") as fit into an error message. */
static const char *list_columns(const struct csv_table *t, char out[200])
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->count; i++) {
        struct span f = field(t, (int)i);
        if (at + f.len + 8 > 200) {
            snprintf(out + at, 200 - at, ", …");
            break;
        }
        at += (size_t)snprintf(out + at, 200 - at, "%s%.*s", i > 0 ? ", " : "", (int)f.len, f.p);
    }
    return out;
}

static int no_column(const struct csv_table *t, const char *name, const char *option,
                     struct err *err)
{
    char list[200];
    return err_set(err, -EBADMSG, "%s has no column \"%.64s\" (%s); its columns are: %s", t->name,
                   name, option, list_columns(t, list));
}

/* Returns the number of bytes per unit, or 0 if the unit is unknown. A unit is "B", "byte",
 * "bytes", or K, M, G, T with or without "B" or "iB", in upper or lower case. */
static uint64_t unit_named(const char *s, size_t len)
{
    static const char letters[] = "kmgt";
    const char *letter = len > 0 ? strchr(letters, tolower((unsigned char)s[0])) : NULL;
    const char *rest = s + 1;
    if ((len == 1 || len == 4 || len == 5) && strncasecmp(s, "bytes", len) == 0)
        return 1;
    if (!letter || !*letter || len > 3 || (len == 2 && strncasecmp(rest, "b", 1) != 0) ||
        (len == 3 && strncasecmp(rest, "ib", 2) != 0))
        return 0;
    return UINT64_C(1) << (10 * (letter - letters + 1));
}

static uint64_t unit_of_column(struct span name)
{
    const char *end = memrchr(name.p, '_', name.len);
    uint64_t unit = end ? unit_named(end + 1, (size_t)(name.p + name.len - end - 1)) : 0;
    return unit > 0 ? unit : 1;
}

static int find_value(const struct csv_table *t, const char *column, struct columns *c,
                      struct err *err)
{
    static const char *const defaults[] = {"rss_bytes", "rss_mb", "rss", "pss"};
    char list[200];
    if (column) {
        c->value = find_column(t, column);
        return c->value == NO_COLUMN ? no_column(t, column, "--column", err) : 0;
    }
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        c->value = find_column(t, defaults[i]);
        if (c->value != NO_COLUMN)
            return 0;
    }
    return err_set(
        err, -EBADMSG,
        "%s has no column \"rss_bytes\", \"rss_mb\", \"rss\" or \"pss\"; choose a column with "
        "--column; its columns are: %s",
        t->name, list_columns(t, list));
}

/* Finds a column. A column that the user chose by name must exist; any other may be missing. */
static int find_optional(const struct csv_table *t, const char *name, const char *fallback,
                         const char *option, int *ret, struct err *err)
{
    *ret = find_column(t, name ? name : fallback);
    return name && *ret == NO_COLUMN ? no_column(t, name, option, err) : 0;
}

static int find_unit(const struct csv_table *t, const char *unit, struct columns *c,
                     struct err *err)
{
    c->unit = unit ? unit_named(unit, strlen(unit)) : unit_of_column(field(t, c->value));
    if (c->unit == 0)
        return err_set(err, -EINVAL, "--unit: unknown unit \"%.64s\"; use %s", unit, CSV_UNITS);
    return 0;
}

static int find_columns(const struct csv_table *t, const struct csv_options *o, struct columns *c,
                        struct err *err)
{
    struct span name;
    char list[200];
    int r = find_value(t, o->column, c, err);
    if (r == 0)
        r = find_optional(t, o->time_column, "t", "--time-column", &c->t, err);
    if (r == 0)
        r = find_optional(t, o->step_column, "step", "--step-column", &c->step, err);
    if (r == 0)
        r = find_optional(t, o->group, "pid", "--group", &c->group, err);
    if (r == 0)
        r = find_unit(t, o->unit, c, err);
    if (r < 0)
        return r;
    if (c->t == NO_COLUMN && c->step == NO_COLUMN)
        return err_set(err, -EBADMSG,
                       "%s has neither a column \"t\" nor a column \"step\"; choose a column with "
                       "--time-column or --step-column; its columns are: %s",
                       t->name, list_columns(t, list));
    c->epoch = find_column(t, "epoch");
    c->phase = find_column(t, "phase");
    c->steps_per_epoch = find_column(t, "steps_per_epoch");
    c->examples = find_column(t, "examples");
    c->batch = find_column(t, "effective_batch");
    if (c->batch == NO_COLUMN)
        c->batch = find_column(t, "eff_batch");
    c->count = t->count;
    name = field(t, c->value);
    snprintf(c->value_name, sizeof c->value_name, "%.*s", (int)(name.len < 60 ? name.len : 60),
             name.p);
    return 0;
}

static int bad_cell(const struct csv_table *t, const char *name, struct span cell, const char *what,
                    struct err *err)
{
    return err_set(err, -EBADMSG, "%s line %" PRIu64 ": %s \"%.*s\"%s", t->name, t->line, name,
                   (int)(cell.len < 60 ? cell.len : 60), cell.p, what);
}

/* Parses a value in units of UNIT bytes. Integers are converted exactly; other numbers are rounded
 * to the nearest byte. */
static int parse_value(struct span cell, uint64_t unit, uint64_t *ret)
{
    int64_t whole;
    double v;
    if (number_parse_i64(cell.p, cell.len, &whole) == 0) {
        if (whole < 0)
            return -EINVAL;
        if ((uint64_t)whole > VALUE_MAX / unit)
            return -ERANGE;
        *ret = (uint64_t)whole * unit;
        return 0;
    }
    if (number_parse_double(cell.p, cell.len, &v) == -EINVAL || (cell.len > 0 && cell.p[0] == '-'))
        return -EINVAL;
    if (number_parse_double(cell.p, cell.len, &v) < 0 || v * (double)unit > (double)VALUE_MAX)
        return -ERANGE;
    *ret = (uint64_t)llround(v * (double)unit);
    return 0;
}

/* Parses a step number: "120", or "120.0", which pandas writes if the column has missing values. */
static int parse_step(struct span cell, int64_t *ret)
{
    double v;
    if (number_parse_i64(cell.p, cell.len, ret) == 0)
        return *ret < 0 ? -EINVAL : 0;
    if (number_parse_double(cell.p, cell.len, &v) < 0 || v < 0 || v > 0x1p53 || floor(v) != v)
        return -EINVAL;
    *ret = (int64_t)v;
    return 0;
}

static int read_value(const struct csv_table *t, const struct columns *c, struct csv_row *row,
                      struct err *err)
{
    struct span cell = field(t, c->value);
    int r = parse_value(cell, c->unit, &row->value_bytes);
    if (r == -ERANGE)
        return bad_cell(t, c->value_name, cell,
                        " exceeds the memory of any machine; check the unit (--unit)", err);
    return r < 0 ? bad_cell(t, c->value_name, cell, " is not a size", err) : 0;
}

static int read_times(const struct csv_table *t, const struct columns *c, struct csv_row *row,
                      struct err *err)
{
    struct span cell = field(t, c->t);
    row->has_t = c->t != NO_COLUMN;
    if (row->has_t && number_parse_double(cell.p, cell.len, &row->t_s) < 0)
        return bad_cell(t, "time", cell, " is not a number of seconds", err);
    cell = field(t, c->step);
    row->has_step = cell.len > 0;
    if ((row->has_step || !row->has_t) && parse_step(cell, &row->step) < 0)
        return bad_cell(t, "step", cell, " is not a step number", err);
    cell = field(t, c->epoch);
    row->has_epoch = cell.len > 0;
    if (row->has_epoch &&
        (number_parse_double(cell.p, cell.len, &row->epoch) < 0 || row->epoch < 0))
        return bad_cell(t, "epoch", cell, " is not a number", err);
    return 0;
}

/* Reads a positive integer from an optional column. Returns 0 if it is missing or invalid. */
static uint64_t read_length(const struct csv_table *t, int column)
{
    struct span cell = field(t, column);
    int64_t v;
    return cell.len > 0 && parse_step(cell, &v) == 0 ? (uint64_t)v : 0;
}

/* Converts a record to a row. Returns 1, 0 if the record has no value, or -errno. */
static int read_row(const struct csv_table *t, const struct columns *c, struct csv_row *ret,
                    struct err *err)
{
    struct csv_row row = {.line = t->line};
    struct span group = field(t, c->group), phase = field(t, c->phase);
    int r;
    if (t->count == 1 && field(t, 0).len == 0 && (c->count > 1 || t->has_newline))
        return 0; /* blank line */
    if (t->count < c->count && !t->has_newline)
        return 0; /* the writer of the last line was interrupted */
    if (t->count != c->count)
        return err_set(err, -EBADMSG, "%s line %" PRIu64 " has %zu fields, but the header has %zu",
                       t->name, t->line, t->count, c->count);
    if (field(t, c->value).len == 0)
        return 0;
    r = read_value(t, c, &row, err);
    if (r == 0)
        r = read_times(t, c, &row, err);
    if (r < 0)
        return r;
    row.group = group.p;
    row.group_len = group.len;
    row.phase = phase.p;
    row.phase_len = phase.len;
    row.steps_per_epoch = read_length(t, c->steps_per_epoch);
    row.examples = read_length(t, c->examples);
    row.batch = read_length(t, c->batch);
    *ret = row;
    return 1;
}

static int read_table(struct csv_table *t, const struct csv_options *o, csv_row_fn *fn, void *user,
                      struct err *err)
{
    struct columns c = {0};
    struct csv_row row;
    int r;
    do {
        r = csv_table_next(t, err);
    } while (r > 0 && t->count == 1 && field(t, 0).len == 0);
    if (r == 0)
        return err_set(err, -EBADMSG, "%s is empty; the first line must contain the column names",
                       t->name);
    if (r > 0)
        r = find_columns(t, o, &c, err);
    if (r < 0)
        return r;
    while ((r = csv_table_next(t, err)) > 0) {
        r = read_row(t, &c, &row, err);
        if (r > 0)
            r = fn(user, &row);
        if (r != 0)
            return r;
    }
    return r;
}

int csv_read_stream(FILE *in, const char *name, const struct csv_options *options, csv_row_fn *fn,
                    void *user, struct err *err)
{
    static const struct csv_options none;
    struct csv_table t;
    int r;
    csv_table_init(&t, in, name);
    r = read_table(&t, options ? options : &none, fn, user, err);
    csv_table_fini(&t);
    return r;
}

int csv_read(const char *path, const struct csv_options *options, csv_row_fn *fn, void *user,
             struct err *err)
{
    FILE *f;
    int r = csv_open(path, &f, err);
    if (r < 0)
        return r;
    r = csv_read_stream(f, path, options, fn, user, err);
    fclose(f);
    return r;
}
