/* The program: finds the command, parses its options, runs it. */
#include "cli/cli.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

const struct cli_command *const cli_commands[] = {
    &cmd_run,     &cmd_watch,    &cmd_attach,  &cmd_detach, &cmd_stack,      &cmd_show,
    &cmd_verdict, &cmd_diagnose, &cmd_explain, &cmd_heap,   &cmd_census,     &cmd_report,
    &cmd_compare, &cmd_export,   &cmd_mark,    &cmd_doctor, &cmd_serve,      &cmd_submit,
    &cmd_jobs,    &cmd_logs,     &cmd_wait,    &cmd_cancel, &cmd_checkpoint, &cmd_rerun,
    &cmd_help,    &cmd_version,  NULL,
};

const struct cli_command *const cli_hidden_commands[] = {&cmd_series, &cmd_sweep, &cmd_complete,
                                                         NULL};

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

/* Makes UTF-8 names work in every locale. Only LC_CTYPE is set, so numbers are written as in the C
 * locale. */
static void set_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

int cli_unknown_command(const char *name)
{
    if (name[0] == '-')
        return cli_failf(2,
                         "unknown option %.100s; options follow a command, and `ebb help` lists "
                         "the commands",
                         name);
    const char *names[32];
    size_t count = 0;
    for (; cli_commands[count] && count < sizeof names / sizeof names[0]; count++)
        names[count] = cli_commands[count]->name;
    const char *nearest = option_nearest(name, names, count);
    if (nearest)
        return cli_failf(2, "unknown command \"%.100s\"; did you mean %s?", name, nearest);
    return cli_failf(2, "unknown command \"%.100s\"; `ebb help` lists all commands", name);
}

static int print_help(const struct cli_command *command)
{
    struct buf out = {0};
    cli_help_command(&out, command, cli_width(STDOUT_FILENO));
    return cli_print(&out);
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
    struct cli_call call = {0};
    struct err err = {""};
    int r = cli_parse(command, argc, argv, &call, &err);
    int status = r < 0 ? r : r > 0 ? print_help(command) : command->exec(&call, &err);
    cli_call_fini(&call);
    if (status >= 0)
        return status;
    return cli_failf(command->error_status ? command->error_status : 2, "%s: %s", command->name,
                     err.text);
}

/* Handles `ebb` without arguments as a usage error: the list of commands goes to stderr, and the
 * status is 2. */
static int nothing_asked(void)
{
    struct buf out = {0};
    cli_help_list(&out, cli_width(STDERR_FILENO));
    if (!out.failed)
        (void)io_write_all(STDERR_FILENO, out.data, out.len);
    buf_fini(&out);
    return 2;
}

int main(int argc, char **argv)
{
    cli_open_streams();
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
