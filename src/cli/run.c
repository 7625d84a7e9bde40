/* ebb run: a job isolated, recorded and summed up; this process is its client in the foreground. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/channel.h"
#include "engine/supervisor.h"
#include "view/summary.h"

struct run_options {
    uint64_t interval_ns;
    const char *run_dir;
    const char *name;
    bool no_record, no_unique, pss, no_terminal, quiet, json;
};

static const struct cli_option run_table[] = {
    {.name = "interval",
     .letter = 'i',
     .type = CLI_DURATION,
     .arg = "TIME",
     .fallback = "1s",
     .min = 50,
     .max = 3600000,
     .offset = offsetof(struct run_options, interval_ns),
     .help = "look at the job this often"},
    {.name = "run-dir",
     .letter = 'd',
     .type = CLI_PATH,
     .arg = "DIR",
     .offset = offsetof(struct run_options, run_dir),
     .help = "put the recording into this folder, which must not exist yet; without it "
             "ebb-runs/NAME-DATE"},
    {.name = "name",
     .letter = 'n',
     .type = CLI_TEXT,
     .arg = "NAME",
     .offset = offsetof(struct run_options, name),
     .help = "name of the run; without it the command's"},
    {.name = "no-record",
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, no_record),
     .help = "make no run folder"},
    {.name = "no-unique",
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, no_unique),
     .help = "do not read unique memory"},
    {.name = "pss",
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, pss),
     .help = "also read PSS once a minute; this stalls the job by about 9 ms a GiB"},
    {.name = "no-terminal",
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, no_terminal),
     .help = "give the job pipes even where our output is a terminal"},
    {.name = "quiet",
     .letter = 'q',
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, quiet),
     .help = "print no summary"},
    {.name = "json",
     .type = CLI_FLAG,
     .offset = offsetof(struct run_options, json),
     .help = "print the summary as one line of JSON, on standard error"},
    {0},
};

/* ---- before the start: everything that can be wrong with the request ---- */

static int check_executable(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* As a shell looks for it: 0 and the path, -ENOENT, or why the best match cannot be executed. */
static int find_command(const char *name, char ret_path[PATH_MAX])
{
    if (strchr(name, '/')) {
        snprintf(ret_path, PATH_MAX, "%s", name);
        return check_executable(name);
    }
    const char *path = getenv("PATH");
    int found = -ENOENT;
    for (const char *at = path ? path : "/bin:/usr/bin"; name[0];) {
        size_t len = strcspn(at, ":");
        snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)len, at, len ? "/" : "", name);
        int r = check_executable(ret_path);
        if (r == 0)
            return 0;
        if (r == -EACCES)
            found = r;
        if (!at[len])
            break;
        at += len + 1;
    }
    return found;
}

static int check_command(const char *name, char ret_path[PATH_MAX])
{
    int r = find_command(name, ret_path);
    if (r == -ENOENT || r == -ENOTDIR)
        return cli_failf(127, "there is no command \"%s\"%s", name,
                         strchr(name, '/') ? "" : " in $PATH");
    if (r < 0)
        return cli_failf(126, "\"%s\" cannot be executed: %s", name, strerror(-r));
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* A folder the user asked for must be had; the one by default is left out with a sentence. */
static int make_folder(const struct run_options *o, const char *name, struct rundir *ret)
{
    struct err err = {""};
    ret->fd = -1;
    if (o->no_record)
        return 0;
    int r = rundir_create(o->run_dir, name, clock_wall_ns(), ret, &err);
    if (r == 0)
        return 0;
    ret->fd = -1;
    if (o->run_dir)
        return cli_fail(125, &err);
    cli_say("%s with --run-dir; the job runs without a recording", err.text);
    return 0;
}

/* The job sees a terminal exactly where the user has one. */
static void find_terminal(const struct run_options *o, struct supervisor_tty *ret)
{
    *ret = (struct supervisor_tty){0};
    if (o->no_terminal || !isatty(STDOUT_FILENO) || tcgetattr(STDOUT_FILENO, &ret->termios) < 0)
        return;
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &ret->size);
    ret->out = true;
    ret->in = isatty(STDIN_FILENO);
    ret->err = isatty(STDERR_FILENO);
}

/* ---- the client ---- */

struct client {
    const struct run_options *options;
    struct channel channel;
    struct supervisor_tty tty;
    bool raw; /* the terminal is in raw mode */
    bool stdout_gone;
    int signals; /* signalfd */
    json_t *end;
};

static void terminal_raw(struct client *c, bool raw)
{
    struct termios t = c->tty.termios;
    if (!c->tty.in || c->raw == raw)
        return;
    if (raw)
        cfmakeraw(&t);
    /* A background process that changes the terminal is stopped by SIGTTOU: it is blocked. */
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0)
        c->raw = raw;
}

static void show(struct client *c, int fd, const char *data, size_t len)
{
    if (fd == STDOUT_FILENO && c->stdout_gone)
        return;
    if (io_write_all(fd, data, len) < 0 && fd == STDOUT_FILENO) {
        c->stdout_gone = true;
        channel_queue(&c->channel, CHANNEL_CLOSED, "", 0);
    }
}

static void say(struct client *c, const char *text, size_t len)
{
    bool raw = c->raw;
    terminal_raw(c, false);
    cli_say("%.*s", (int)len, text);
    terminal_raw(c, raw);
}

/* The job was stopped by Ctrl-Z: so are we, and when the shell brings us back, it goes on. */
static void stop_with_job(struct client *c)
{
    const char cont = SIGCONT;
    terminal_raw(c, false);
    raise(SIGSTOP);
    terminal_raw(c, true);
    channel_queue(&c->channel, CHANNEL_SIGNAL, &cont, 1);
}

static void take_frame(struct client *c, enum channel_type type, const char *data, size_t len)
{
    struct err err;
    switch (type) {
    case CHANNEL_OUT:
        show(c, STDOUT_FILENO, data, len);
        break;
    case CHANNEL_ERR:
        show(c, STDERR_FILENO, data, len);
        break;
    case CHANNEL_SAY:
        say(c, data, len);
        break;
    case CHANNEL_STOPPED:
        stop_with_job(c);
        break;
    case CHANNEL_END:
        c->end = json_parse(data, len, &err);
        break;
    default:
        break;
    }
}

static void take_signal(struct client *c)
{
    struct signalfd_siginfo info;
    if (read(c->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGWINCH) {
        struct winsize size;
        if (c->tty.out && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
            channel_queue(&c->channel, CHANNEL_SIZE, &size, sizeof size);
        return;
    }
    char number = (char)info.ssi_signo;
    channel_queue(&c->channel, CHANNEL_SIGNAL, &number, 1);
}

static bool take_keys(struct client *c)
{
    char keys[4096];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    channel_queue(&c->channel, CHANNEL_INPUT, keys, (size_t)n);
    return true;
}

/* Until the END frame, or until the supervisor is gone without one. */
static void client_loop(struct client *c)
{
    enum channel_type type;
    const char *data;
    size_t len;
    bool keys = c->tty.in;
    int filled = 1;
    while (!c->end && filled >= 0) {
        struct pollfd fds[] = {{c->channel.fd, POLLIN, 0},
                               {c->signals, POLLIN, 0},
                               {keys ? STDIN_FILENO : -1, POLLIN, 0}};
        if (c->channel.out.len)
            fds[0].events |= POLLOUT;
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents)
            take_signal(c);
        if (fds[2].revents)
            keys = take_keys(c);
        filled = channel_fill(&c->channel);
        while (channel_next(&c->channel, &type, &data, &len) == 1)
            take_frame(c, type, data, len);
        channel_flush(&c->channel);
    }
}

static int catch_signals(void)
{
    const int caught[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                          SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&set, caught[i]);
    sigset_t block = set;
    sigaddset(&block, SIGTTOU);
    sigprocmask(SIG_BLOCK, &block, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int exit_status(const json_t *end)
{
    const json_t *status = json_object_get(json_object_get(end, "end"), "status");
    return json_is_integer(status) ? (int)json_integer_value(status) : 125;
}

static void print_summary(const struct run_options *o, const json_t *doc)
{
    const char *error = json_string_value(json_object_get(json_object_get(doc, "end"), "error"));
    if (error) {
        const json_t *command = json_array_get(json_object_get(doc, "command"), 0);
        cli_failf(0, "\"%s\" cannot be executed: %s", json_string_value(command), error);
        return;
    }
    if (o->quiet)
        return;
    if (o->json) {
        json_write(STDERR_FILENO, doc, 0);
        return;
    }
    struct winsize size = {0};
    struct buf text = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    summary_text(&text, doc, cli_colour(STDERR_FILENO), size.ws_col);
    io_write_all(STDERR_FILENO, text.data, text.len);
    buf_fini(&text);
}

static int be_client(const struct run_options *o, const struct supervisor_tty *tty, int fd,
                     pid_t sentinel)
{
    struct client c = {.options = o, .tty = *tty};
    int status = 125;
    channel_init(&c.channel, fd);
    signal(SIGPIPE, SIG_IGN);
    c.signals = catch_signals();
    terminal_raw(&c, true);
    client_loop(&c);
    terminal_raw(&c, false);
    if (c.end) {
        print_summary(o, c.end);
        status = exit_status(c.end);
    } else {
        cli_say("the supervisor of the job was lost; what was left of the job is being ended");
    }
    json_decref(c.end);
    channel_fini(&c.channel);
    while (waitpid(sentinel, NULL, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static int run_exec(const struct cli_call *call)
{
    const struct run_options *o = call->options;
    struct supervisor_options s = {.grace_ns = 5 * NS_PER_S, .rundir = {.fd = -1}};
    struct proc_root root;
    char path[PATH_MAX];
    struct err err = {""};
    int fd;
    pid_t sentinel;
    if (call->argc < 1)
        return cli_failf(125, "run: which command? Write it behind --, like: ebb run -- python "
                              "train.py");
    int status = check_command(call->argv[0], path);
    if (status)
        return status;
    s.name = o->name ? o->name : base_name(call->argv[0]);
    if (proc_root_open("/proc", "/sys/fs/cgroup", &root, &err) < 0)
        return cli_fail(125, &err);
    status = make_folder(o, s.name, &s.rundir);
    if (status)
        return status;
    s.path = path;
    s.argv = call->argv;
    s.engine = (struct engine_options){
        .interval_ns = o->interval_ns, .no_unique = o->no_unique, .pss = o->pss, .root = &root};
    find_terminal(o, &s.tty);
    proc_raise_nofile(&s.nofile);
    if (supervisor_start(&s, &fd, &sentinel, &err) < 0)
        return cli_fail(125, &err);
    rundir_fini(&s.rundir);
    return be_client(o, &s.tty, fd, sentinel);
}

const struct cli_command cmd_run = {
    .name = "run",
    .operands = "-- CMD [ARG…]",
    .summary = "run a job: recorded, and summed up at the end",
    .description =
        "Starts CMD as if it were started by hand, looks at all its processes once a second, "
        "records what it sees in a run folder together with the job's output and its marks, and "
        "prints a summary at the end.\n\n"
        "The run folder is ebb-runs/NAME-DATE below the working directory: trace.ebb (the "
        "recording), log.txt (the output), run.json (the facts of the summary). ebb-runs/latest "
        "points at the newest.\n\n"
        "The exit status is the job's own; 128 + N if signal N ended it; 125 if ebb itself could "
        "not; 126 if CMD cannot be executed and 127 if there is none. Trouble of ebb's own, such "
        "as a full disk, never ends the job.\n\n"
        "The job finds EBB_SOCKET (where it can send marks), EBB_RUN_DIR and EBB_SEGMENT in its "
        "environment. Processes that it leaves behind are ended with it.",
    .examples = "ebb run -- python train.py --epochs 3\n"
                "ebb run --interval 200ms --name build -- make -j8\n",
    .options = run_table,
    .options_size = sizeof(struct run_options),
    .usage_status = 125,
    .stop_at_operand = true,
    .exec = run_exec,
};
