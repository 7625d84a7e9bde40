/* Takes a CSV file apart into records and fields. */
#include "trace/csv_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "trace/block.h"

/* What ended a field. */
enum field_end { END_COMMA = 1, END_NEWLINE, END_FILE };

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

const char *csv_table_field(const struct csv_table *t, size_t i, size_t *ret_len)
{
    *ret_len = i < t->count ? t->fields[i].len : 0;
    return *ret_len > 0 ? t->text.data + t->fields[i].offset : "";
}

static int bad(const struct csv_table *t, struct err *err, const char *why)
{
    return err_set(err, -EBADMSG, "%s line %llu: %s", t->name, (unsigned long long)t->line, why);
}

/* Three bytes cannot be put back into a stream, so what was no BOM waits in the table. */
static int next_raw(struct csv_table *t)
{
    if (!t->has_begun) {
        t->has_begun = true;
        t->start_len = fread(t->start, 1, sizeof t->start, t->in);
        if (t->start_len == 3 && memcmp(t->start, "\xef\xbb\xbf", 3) == 0)
            t->start_at = 3;
    }
    return t->start_at < t->start_len ? t->start[t->start_at++] : getc_unlocked(t->in);
}

/* The next byte of the record, or EOF; -EBADMSG and -EIO stay below EOF (-1). */
static int next_byte(struct csv_table *t, struct err *err)
{
    int c = next_raw(t);
    if (c == '\0')
        return bad(t, err, "there is a NUL byte: this is not a text file");
    if (c == '\n')
        t->next_line++;
    if (c == EOF && ferror(t->in)) {
        int code = errno > 1 ? -errno : -EIO;
        return err_set(err, code, "cannot read %s: %s", t->name, strerror(-code));
    }
    return c;
}

static int keep(struct csv_table *t, int c, struct err *err)
{
    if (t->text.len >= CSV_RECORD_MAX)
        return bad(t, err, "longer than 1 MiB (is a quote left open?)");
    buf_add_byte(&t->text, (uint8_t)c);
    return t->text.failed ? err_set(err, -ENOMEM, "no memory to read %s", t->name) : 0;
}

/* The rest of a field after its opening quote: how it ended, or -errno. */
static int read_quoted(struct csv_table *t, struct err *err)
{
    for (;;) {
        int c = next_byte(t, err), r;
        if (c == '"') {
            c = next_byte(t, err);
            if (c == ',')
                return END_COMMA;
            if (c == '\r')
                c = next_byte(t, err);
            if (c == '\n')
                return END_NEWLINE;
            if (c == EOF)
                return END_FILE;
            if (c >= 0 && c != '"')
                return bad(t, err, "text follows a closing quote (a quote inside is doubled)");
        } else if (c == EOF) {
            return bad(t, err, "a quote is opened and never closed");
        }
        if (c < EOF)
            return c;
        r = keep(t, c, err);
        if (r < 0)
            return r;
    }
}

static int read_plain(struct csv_table *t, int c, struct err *err)
{
    size_t begin = t->text.len;
    for (; c != ',' && c != '\n' && c != EOF; c = next_byte(t, err)) {
        int r = c < EOF ? c : keep(t, c, err);
        if (r < 0)
            return r;
    }
    if (c == '\n' && t->text.len > begin && t->text.data[t->text.len - 1] == '\r')
        t->text.len--;
    return c == ',' ? END_COMMA : c == '\n' ? END_NEWLINE : END_FILE;
}

static int add_field(struct csv_table *t, size_t offset, struct err *err)
{
    if (t->count == CSV_FIELDS_MAX)
        return bad(t, err, "more than 4096 columns");
    if (t->count == t->cap) {
        size_t cap = t->cap > 0 ? t->cap * 2 : 16;
        struct csv_field *fields = realloc(t->fields, cap * sizeof *fields);
        if (!fields)
            return err_set(err, -ENOMEM, "no memory to read %s", t->name);
        t->fields = fields;
        t->cap = cap;
    }
    t->fields[t->count++] = (struct csv_field){offset, t->text.len - offset};
    return 0;
}

int csv_table_next(struct csv_table *t, struct err *err)
{
    int end = 0;
    buf_clear(&t->text);
    t->count = 0;
    t->line = t->next_line;
    while (end != END_NEWLINE && end != END_FILE) {
        size_t begin = t->text.len;
        int c = next_byte(t, err), r;
        if (c < EOF)
            return c;
        if (c == EOF && t->count == 0)
            return 0;
        end = c == '"' ? read_quoted(t, err) : read_plain(t, c, err);
        r = end < 0 ? end : add_field(t, begin, err);
        if (r < 0)
            return r;
    }
    t->has_newline = end == END_NEWLINE;
    return 1;
}

static const char *compression_of(const unsigned char *s, size_t len)
{
    if (len >= 2 && s[0] == 0x1f && s[1] == 0x8b)
        return "gzip";
    if (len >= 4 && memcmp(s, "\x28\xb5\x2f\xfd", 4) == 0)
        return "zstd";
    if (len >= 6 && memcmp(s,
                           "\xfd"
                           "7zXZ",
                           6) == 0)
        return "xz";
    if (len >= 3 && memcmp(s, "BZh", 3) == 0)
        return "bzip2";
    return NULL;
}

int csv_open(const char *path, FILE **ret, struct err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    unsigned char start[8];
    const char *compression;
    struct stat st;
    ssize_t n = 0;
    FILE *f;
    int code;
    if (fd < 0 || fstat(fd, &st) < 0) {
        code = -errno;
        return err_set(err, code, "cannot open %s: %s", path, strerror(-code));
    }
    if (S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR, "%s is a folder, not a file", path);
    if (S_ISREG(st.st_mode)) /* a pipe cannot be looked at beforehand, and need not be */
        n = pread(fd, start, sizeof start, 0);
    if (n == (ssize_t)sizeof start && memcmp(start, BLOCK_FILE_MAGIC, sizeof start) == 0)
        return err_set(err, -EBADMSG, "%s is a recording of ebb, not a table", path);
    compression = compression_of(start, n > 0 ? (size_t)n : 0);
    if (compression)
        return err_set(err, -EBADMSG, "%s is compressed (%s): unpack it first", path, compression);
    f = fdopen(fd, "r");
    if (!f) {
        code = -errno;
        return err_set(err, code, "cannot read %s: %s", path, strerror(-code));
    }
    fd = -1;
    *ret = f;
    return 0;
}
