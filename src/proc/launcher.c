/* The table of launchers, and how one is known in a command. */
#include "proc/launcher.h"

#include <string.h>

/* A second word is a subcommand: only that one starts another program. */

/* Of training jobs: they start the ranks of one. */
static const char *const rank_launchers[] = {"torchrun",        "accelerate launch",
                                             "deepspeed",       "horovodrun",
                                             "colossalai run",  "torchx run",
                                             "fabric run",      "mpirun",
                                             "mpiexec",         "mpiexec.hydra",
                                             "orterun",         "prterun",
                                             "hydra_pmi_proxy", "orted",
                                             "prted",           "srun",
                                             "slurmstepd",      NULL};
/* Of environments, and others whose console script (`python /x/bin/uvx`) or module counts too. */
static const char *const script_launchers[] = {
    "uv run",     "uvx",         "pipx run",   "poetry run", "pdm run",   "hatch run",
    "rye run",    "pixi run",    "pipenv run", "conda run",  "mamba run", "micromamba run",
    "dotenv run", "direnv exec", "npm run",    "ebb run",    NULL};
static const char *const program_launchers[] = {
    "salloc", "npx",
    /* shells */
    "sh", "bash", "rbash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh", "busybox",
    /* programs that change something and go on; most exec, some stay */
    "env", "nice", "ionice", "chrt", "nohup", "time", "timeout", "stdbuf", "unbuffer", "setsid",
    "taskset", "numactl", "prlimit", "flock", "sudo", "doas", "su", "runuser", "setpriv", "chroot",
    "unshare", "nsenter", "bwrap", "firejail", "systemd-run", "systemd-inhibit", "cgexec",
    "catchsegv",
    /* tracers and profilers */
    "strace", "ltrace", "gdb", "perf", "nsys", "ncu",
    /* programs that run many others */
    "xargs", "parallel", "make", "gmake", "ninja", "just", "watch", "entr",
    /* terminals and sessions */
    "script", "tmux", "screen", "SCREEN", "ssh", "sshd", "sshd-session", "login", "systemd", "init",
    "tini", "docker-init", "dumb-init", "catatonit", "containerd-shim", "containerd-shim-runc-v2",
    "conmon", "supervisord", NULL};

/* Modules of python -m, and the files they are run as, with the launcher that they are. */
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

/* True when SUB is the subcommand in ARGS. Options may stand before it, and what follows an
 * option without "=" may be its value; the first word that can be neither decides. */
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
        may_be_value = option && memchr(arg.p, '=', arg.len) == NULL;
    }
    return false;
}

/* Whether NAME with the arguments REST is LAUNCHER, of one word or two. */
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
    /* `deepspeed.py` is somebody's own file, `bin/deepspeed` is the launcher */
    return launcher_by_name(is_module ? c->what : command_basename(c->what), c->rest, true);
}
