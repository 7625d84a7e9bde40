/* Splits a CSV file into records and fields. */
#include "trace/csv_table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "trace/block.h"

void csv_table_init(struct csv_table *t, FILE *in, const char *name)
{
    *t = (struct csv_table){.in = in, .name = name, .next_line = 1};
}

void csv_table_fini(struct csv_table *t)
{
    buf_fini(&t->text);
    free(t->fields);
    *t = (struct csv_table){0};
}

struct span csv_table_field(const struct csv_table *t, size_t i)
{
    if (i >= t->count || t->fields[i].len == 0)
        return (struct span){"", 0};
    return span_trimmed((struct span){t->text.data + t->fields[i].offset, t->fields[i].len});
}

static int refuse_record(const struct csv_table *t, struct err *err, const char *why)
{
    return err_set(err, -EBADMSG, "%s line %" PRIu64 ": %s", t->name, t->line, why);
}

/* Returns the next byte of the file. The first three bytes are read at once to detect a BOM. If
 * they are not a BOM, they are returned from t->start, because ungetc cannot push back three
 * bytes. */
static int next_byte(struct csv_table *t)
{
    if (!t->has_begun) {
        t->has_begun = true;
        t->start_len = fread(t->start, 1, sizeof t->start, t->in);
        if (t->start_len == 3 && memcmp(t->start, "\xef\xbb\xbf", 3) == 0)
            t->start_at = 3;
    }
    return t->start_at < t->start_len ? t->start[t->start_at++] : getc_unlocked(t->in);
}

static int add_field(struct csv_table *t, size_t offset, struct err *err)
{
    if (t->count == CSV_FIELDS_MAX)
        return refuse_record(t, err, "more than 4096 columns");
    if (t->text.failed || !ARRAY_ROOM(t->fields, t->count, t->cap))
        return err_set(err, -ENOMEM, "out of memory while reading %s", t->name);
    t->fields[t->count++] = (struct csv_field){offset, t->text.len - offset};
    return 0;
}

/* Parser state within a field. FIELD_CLOSED means that the previous byte was a quote, which either
 * closes the field or is the first of a doubled quote. */
enum csv_state { FIELD_START, FIELD_PLAIN, FIELD_QUOTED, FIELD_CLOSED };

/* Adds byte C to the current field. Returns the next parser state, or -errno. */
static int take_byte(struct csv_table *t, int state, int c, struct err *err)
{
    if (c == '\0')
        return refuse_record(t, err, "contains a NUL byte: not a text file");
    if (t->text.len >= CSV_RECORD_MAX)
        return refuse_record(t, err, "longer than 1 MiB (possibly an unclosed quote)");
    if (c == '"' && state == FIELD_START)
        return FIELD_QUOTED;
    if (c == '"' && state == FIELD_QUOTED)
        return FIELD_CLOSED;
    if (c == '\r' && state == FIELD_CLOSED)
        return FIELD_CLOSED;
    if (c != '"' && state == FIELD_CLOSED)
        return refuse_record(t, err,
                             "text follows a closing quote (a quote in a field must be doubled)");
    buf_add_byte(&t->text, (uint8_t)c);
    return state == FIELD_QUOTED || state == FIELD_CLOSED ? FIELD_QUOTED : FIELD_PLAIN;
}

int csv_table_next(struct csv_table *t, struct err *err)
{
    int state = FIELD_START;
    size_t begin = 0;
    buf_clear(&t->text);
    t->count = 0;
    t->line = t->next_line;
    for (;;) {
        int c = next_byte(t);
        t->next_line += c == '\n';
        if (c == EOF && ferror(t->in))
            return err_set(err, -EIO, "cannot read %s: %s", t->name, strerror(EIO));
        if (c == EOF && state == FIELD_QUOTED)
            return refuse_record(t, err, "a quote is not closed");
        if (c == EOF && state == FIELD_START && t->count == 0)
            return 0;
        if (state == FIELD_QUOTED || (c != ',' && c != '\n' && c != EOF)) {
            state = take_byte(t, state, c, err);
            if (state < 0)
                return state;
            continue;
        }
        if (c == '\n' && state == FIELD_PLAIN && t->text.data[t->text.len - 1] == '\r')
            t->text.len--;
        int r = add_field(t, begin, err);
        t->has_newline = c == '\n';
        if (r < 0 || c != ',')
            return r < 0 ? r : 1;
        state = FIELD_START;
        begin = t->text.len;
    }
}

int csv_open(const char *path, FILE **ret, struct err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    uint8_t start[16];
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR, "%s is a folder, not a file", path);
    /* only regular files are checked, because bytes read from a pipe cannot be read again */
    ssize_t n = S_ISREG(st.st_mode) ? pread(fd, start, sizeof start, 0) : 0;
    const char *kind = block_guess_kind(start, n > 0 ? (size_t)n : 0);
    if (kind)
        return err_set(err, -EBADMSG, "%s is %s, not a table", path, kind);
    *ret = fdopen(fd, "r");
    if (!*ret)
        return err_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    fd = -1;
    return 0;
}
