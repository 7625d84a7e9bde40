/* The standard streams, and functions by which commands write to them. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "present/document.h"

/* Prints a message with one write, so that it is not mixed with the output of other programs. A
 * failure is ignored. */
static void print_sentence(const char *sentence, size_t len)
{
    struct buf line = {0};
    buf_add_str(&line, "ebb: ");
    text_escape(&line, sentence, len);
    buf_add_byte(&line, '\n');
    if (!line.failed)
        (void)io_write_all(STDERR_FILENO, line.data, line.len);
    buf_fini(&line);
}

int cli_fail(int status, const struct err *err)
{
    print_sentence(err->text, strlen(err->text));
    return status;
}

__attribute__((format(printf, 1, 0))) static void print_vsentence(const char *fmt, va_list ap)
{
    struct buf sentence = {0};
    buf_vprintf(&sentence, fmt, ap);
    print_sentence(buf_str(&sentence), sentence.len);
    buf_fini(&sentence);
}

int cli_failf(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_vsentence(fmt, ap);
    va_end(ap);
    return status;
}

void cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_vsentence(fmt, ap);
    va_end(ap);
}

bool cli_colour(int fd)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return !(no_color && *no_color) && term && strcmp(term, "dumb") != 0 && isatty(fd);
}

size_t cli_width(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < 40 ? 40 : size.ws_col > 100 ? 100 : size.ws_col;
}

static int write_and_free(int fd, struct buf *out)
{
    int r = out->failed ? -ENOMEM : io_write_all(fd, out->data, out->len);
    buf_fini(out);
    return r;
}

/* Returns the exit status for R, the result of a write to standard output. */
static int written(int r)
{
    if (r == -EPIPE)
        return CLI_PIPE_STATUS;
    return r < 0 ? cli_failf(2, "cannot write to standard output: %s", strerror(-r)) : 0;
}

int cli_print(struct buf *out)
{
    return written(write_and_free(STDOUT_FILENO, out));
}

int cli_write_doc(int fd, struct doc *d)
{
    struct buf out = {0};
    doc_terminal(&out, d, cli_colour(fd), cli_width(fd));
    doc_fini(d);
    return write_and_free(fd, &out);
}

int cli_print_doc(struct doc *d)
{
    return written(cli_write_doc(STDOUT_FILENO, d));
}

int cli_print_json(json_t *doc)
{
    struct buf out = {0};
    if (!doc || json_print(&out, doc, 2) < 0)
        out.failed = true;
    json_decref(doc);
    return cli_print(&out);
}

int cli_print_json_line(const json_t *doc)
{
    struct buf out = {0};
    if (!doc || json_print(&out, doc, 0) < 0)
        out.failed = true;
    return cli_print(&out);
}

static bool was_closed[3];

void cli_open_streams(void)
{
    for (int fd = 0; fd < 3; fd++) {
        was_closed[fd] = fcntl(fd, F_GETFD) < 0;
        if (was_closed[fd]) /* open returns the lowest free file descriptor, which is FD */
            (void)!open("/dev/null", O_RDWR);
    }
}

bool cli_was_closed(int fd)
{
    return was_closed[fd];
}
