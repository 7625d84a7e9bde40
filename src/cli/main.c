/* The program: finds the command, parses its options, runs it; and how every command speaks. */
#include "cli/cli.h"

#include <errno.h>
#include <langinfo.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/text.h"

const struct cli_command *const cli_commands[] = {
    &cmd_run,        &cmd_watch,  &cmd_verdict, &cmd_diagnose, &cmd_heap,   &cmd_census,
    &cmd_report,     &cmd_export, &cmd_import,  &cmd_mark,     &cmd_doctor, &cmd_serve,
    &cmd_submit,     &cmd_jobs,   &cmd_show,    &cmd_logs,     &cmd_wait,   &cmd_cancel,
    &cmd_checkpoint, &cmd_rerun,  &cmd_help,    &cmd_version,  NULL,
};

const struct cli_command *const cli_hidden_commands[] = {&cmd_series, &cmd_sweep, NULL};

static const struct cli_command *find_in(const struct cli_command *const *commands,
                                         const char *name)
{
    for (; *commands; commands++) {
        if (strcmp(name, (*commands)->name) == 0)
            return *commands;
    }
    return NULL;
}

const struct cli_command *cli_find_command(const char *name)
{
    const struct cli_command *command = find_in(cli_commands, name);
    return command ? command : find_in(cli_hidden_commands, name);
}

/* One write, so that lines of two programs do not mix. Where even that fails nobody listens. */
static void speak(const char *sentence, size_t len)
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
    speak(err->text, strlen(err->text));
    return status;
}

__attribute__((format(printf, 1, 0))) static void vspeak(const char *fmt, va_list ap)
{
    struct buf sentence = {0};
    buf_vprintf(&sentence, fmt, ap);
    speak(buf_str(&sentence), sentence.len);
    buf_fini(&sentence);
}

int cli_failf(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vspeak(fmt, ap);
    va_end(ap);
    return status;
}

void cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vspeak(fmt, ap);
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

int cli_print(const struct buf *out)
{
    int r = out->failed ? -ENOMEM : io_write_all(STDOUT_FILENO, out->data, out->len);
    if (r == -EPIPE)
        return CLI_PIPE_STATUS;
    if (r < 0)
        return cli_failf(2, "cannot write to standard output: %s", strerror(-r));
    return 0;
}

/* Names are UTF-8 whatever the locale says, and numbers are written as in C. */
static void set_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

int cli_unknown_command(const char *name)
{
    if (name[0] == '-')
        return cli_failf(2,
                         "there is no option %.100s; options come behind a command, and `ebb "
                         "help` lists the commands",
                         name);
    const char *names[32];
    size_t count = 0;
    for (; cli_commands[count] && count < sizeof(names) / sizeof(names[0]); count++)
        names[count] = cli_commands[count]->name;
    const char *nearest = cli_nearest(name, names, count);
    if (nearest)
        return cli_failf(2, "there is no command \"%.100s\"; did you mean %s?", name, nearest);
    return cli_failf(2, "there is no command \"%.100s\"; `ebb help` lists them", name);
}

static int print_help(const struct cli_command *command)
{
    struct buf out = {0};
    cli_help_command(&out, command, cli_width(STDOUT_FILENO));
    int status = cli_print(&out);
    buf_fini(&out);
    return status;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    struct cli_call call = {0};
    struct err err = {{0}};
    int r = cli_parse(command, argc, argv, &call, &err);
    if (r < 0)
        return cli_fail(command->usage_status, &err);
    int status = r > 0 ? print_help(command) : command->exec(&call);
    cli_call_fini(&call);
    return status;
}

/* `ebb` alone did not ask for help and did nothing: the list goes to stderr, with status 2. */
static int nothing_asked(void)
{
    struct buf out = {0};
    cli_help_list(&out, cli_width(STDERR_FILENO));
    if (!out.failed)
        (void)io_write_all(STDERR_FILENO, out.data, out.len);
    buf_fini(&out);
    return 2;
}

static bool was_closed[3];

/* Whoever starts us with a standard stream closed must not find our own files in its place. */
static void open_streams(void)
{
    for (int fd = 0; fd < 3; fd++) {
        was_closed[fd] = fcntl(fd, F_GETFD) < 0;
        if (was_closed[fd]) /* the lowest number that is free is this one */
            (void)!open("/dev/null", O_RDWR);
    }
}

bool cli_was_closed(int fd)
{
    return was_closed[fd];
}

int main(int argc, char **argv)
{
    open_streams();
    set_locale();
    if (argc < 2)
        return nothing_asked();
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = cmd_help.name;
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = cmd_version.name;
    const struct cli_command *command = cli_find_command(name);
    if (!command)
        return cli_unknown_command(name);
    return run_command(command, argc - 1, argv + 1);
}
