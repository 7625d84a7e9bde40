/* Parses command lines: finds the program, script, module or code that a process executes, and
 * recognizes launchers. */
#include "proc/command.h"

#include <string.h>

struct span command_basename(struct span path)
{
    const char *slash = path.len > 0 ? memrchr(path.p, '/', path.len) : NULL;
    return !slash ? path : span_from(path, (size_t)(slash + 1 - path.p));
}

bool command_next(struct span *rest, struct span *ret)
{
    if (rest->len == 0)
        return false;
    const char *nul = memchr(rest->p, '\0', rest->len);
    size_t n = nul ? (size_t)(nul - rest->p) : rest->len;
    *ret = (struct span){rest->p, n};
    *rest = span_from(*rest, n + (nul ? 1 : 0));
    return true;
}

/* Returns the program's name without its path and without the dash of a login shell. For a title
 * such as "sshd: me@pts/0", returns only the part before the colon. */
static struct span command_program_name(struct span argv0)
{
    const char *colon = memmem(argv0.p, argv0.len, ": ", 2);
    if (colon)
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

/* Parses combined Python options such as -um, whose value may be the next argument. */
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
    /* the form stays NONE for an interactive interpreter or a truncated command line */
    ret->form = COMMAND_NONE;
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

bool command_ray_title(const char *args, size_t len, struct span *ret)
{
    static const char prefix[] = "ray::";
    const size_t prefix_len = sizeof prefix - 1;
    size_t n = prefix_len;
    if (len <= prefix_len || memcmp(args, prefix, prefix_len) != 0)
        return false;
    /* a dot inside parentheses, as in Ray Data's MapBatches(a.b), does not begin a method's name */
    while (n < len && args[n] != '\0' && args[n] != '.' && args[n] != '(')
        n++;
    if (n < len && args[n] == '(')
        n = strnlen(args, len);
    *ret = (struct span){args, n};
    return n > prefix_len;
}

/* ---- launchers ---- */

/* Tables of launchers. An entry of two words is a program and its subcommand; the program is a
 * launcher only with this subcommand. */

/* Launchers of training jobs, which start the ranks of one job. */
static const char *const rank_launchers[] = {
    "torchrun",   "accelerate launch", "deepspeed",       "horovodrun", "colossalai run",
    "torchx run", "fabric run",        "mpirun",          "mpiexec",    "mpiexec.hydra",
    "orterun",    "prterun",           "hydra_pmi_proxy", "orted",      "prted",
    "srun",       "slurmstepd",        "ray start",       NULL};
/* Launchers that may also be started as a Python script (`python /x/bin/uvx`) or module. */
static const char *const script_launchers[] = {
    "uv run",     "uvx",         "pipx run",   "poetry run", "pdm run",   "hatch run",
    "rye run",    "pixi run",    "pipenv run", "conda run",  "mamba run", "micromamba run",
    "dotenv run", "direnv exec", "npm run",    "ebb run",    NULL};
static const char *const program_launchers[] = {
    "salloc", "npx",
    /* shells */
    "sh", "bash", "rbash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "busybox",
    /* programs that set up the environment and run another program: most call exec, some fork and
     * wait */
    "env", "nice", "ionice", "chrt", "nohup", "time", "timeout", "stdbuf", "unbuffer", "setsid",
    "taskset", "numactl", "prlimit", "flock", "sudo", "doas", "su", "runuser", "setpriv", "chroot",
    "unshare", "nsenter", "bwrap", "firejail", "systemd-run", "systemd-inhibit", "cgexec",
    "catchsegv",
    /* tracers and profilers */
    "strace", "ltrace", "gdb", "perf", "nsys", "ncu",
    /* programs that run many other programs */
    "xargs", "parallel", "make", "gmake", "ninja", "just", "watch", "entr",
    /* programs that provide terminals and sessions */
    "script", "tmux", "screen", "SCREEN", "ssh", "sshd", "sshd-session", "login", "systemd", "init",
    "tini", "docker-init", "dumb-init", "catatonit", "containerd-shim", "containerd-shim-runc-v2",
    "conmon", "supervisord", NULL};

/* Launchers that are started as `python -m MODULE`: the module, the file that Python executes for
 * it, and the launcher's name. */
static const struct {
    const char *module, *path, *name;
} launcher_modules[] = {
    {"torch.distributed.run", "torch/distributed/run.py", "torch.distributed.run"},
    {"torch.distributed.launch", "torch/distributed/launch.py", "torch.distributed.launch"},
    {"torch.distributed.launcher", NULL, "torch.distributed.launcher"},
    {"accelerate.commands.launch", "accelerate/commands/launch.py", "accelerate launch"},
    {"accelerate.commands.accelerate_cli launch", NULL, "accelerate launch"},
    {"deepspeed.launcher.runner", NULL, "deepspeed"},
    {"deepspeed.launcher.launch", NULL, "deepspeed"},
    {"horovod.runner.launch", NULL, "horovodrun"},
};

/* True if SUB is the subcommand in ARGS. Options may precede the subcommand. The argument after an
 * option without "=" may be the value of that option, so both are skipped. */
static bool has_subcommand(struct span args, const char *sub)
{
    struct span arg;
    bool may_be_value = false;
    while (command_next(&args, &arg)) {
        if (span_is(arg, sub))
            return true;
        bool option = arg.len > 1 && arg.p[0] == '-';
        if (!option && !may_be_value)
            return false;
        may_be_value = option && !memchr(arg.p, '=', arg.len);
    }
    return false;
}

/* True if a command is LAUNCHER, which is "program" or "program subcommand". NAME is the command's
 * program, REST contains its arguments. */
static bool is_launcher(struct span name, struct span rest, const char *launcher)
{
    size_t len = strcspn(launcher, " ");
    return name.len == len && memcmp(name.p, launcher, len) == 0 &&
           (!launcher[len] || has_subcommand(rest, launcher + len + 1));
}

static const char *find_launcher(const char *const *list, struct span name, struct span rest)
{
    while (*list && !is_launcher(name, rest, *list))
        list++;
    return *list;
}

static struct launcher launcher_by_name(struct span name, struct span rest, bool is_script)
{
    struct launcher l = {find_launcher(rank_launchers, name, rest), true};
    if (l.name)
        return l;
    l = (struct launcher){find_launcher(script_launchers, name, rest), false};
    if (!l.name && !is_script)
        l.name = find_launcher(program_launchers, name, rest);
    return l;
}

struct launcher launcher_of(const struct command *c)
{
    if (c->form == COMMAND_PROGRAM)
        return launcher_by_name(c->what, c->rest, false);
    if (c->form != COMMAND_SCRIPT && c->form != COMMAND_MODULE)
        return (struct launcher){NULL, false};
    bool is_module = c->form == COMMAND_MODULE;
    for (size_t i = 0; i < sizeof launcher_modules / sizeof *launcher_modules; i++)
        if (is_module ? is_launcher(c->what, c->rest, launcher_modules[i].module)
                      : launcher_modules[i].path && span_ends(c->what, launcher_modules[i].path))
            return (struct launcher){launcher_modules[i].name, true};
    /* a script named deepspeed.py belongs to the user; the launcher's own script is bin/deepspeed,
     * without a suffix */
    return launcher_by_name(is_module ? c->what : command_basename(c->what), c->rest, true);
}
