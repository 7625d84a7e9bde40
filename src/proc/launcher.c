/* The table of launchers, and how one is known in a command. */
#include "proc/launcher.h"

#include <string.h>

#define PLAIN(n)                                                                                   \
    {                                                                                              \
        n, NULL, false, n, false                                                                   \
    }
#define SCRIPT(n)                                                                                  \
    {                                                                                              \
        n, NULL, true, n, false                                                                    \
    }
#define WITH(n, s)                                                                                 \
    {                                                                                              \
        n, s, true, n " " s, false                                                                 \
    }
#define RANKS(n)                                                                                   \
    {                                                                                              \
        n, NULL, true, n, true                                                                     \
    }
#define RANKS_WITH(n, s)                                                                           \
    {                                                                                              \
        n, s, true, n " " s, true                                                                  \
    }
static const struct launcher launchers[] = {
    /* of training jobs */
    RANKS("torchrun"),
    RANKS_WITH("accelerate", "launch"),
    RANKS("deepspeed"),
    RANKS("horovodrun"),
    RANKS_WITH("colossalai", "run"),
    RANKS_WITH("torchx", "run"),
    RANKS_WITH("fabric", "run"),
    RANKS("mpirun"),
    RANKS("mpiexec"),
    RANKS("mpiexec.hydra"),
    RANKS("orterun"),
    RANKS("prterun"),
    RANKS("hydra_pmi_proxy"),
    RANKS("orted"),
    RANKS("prted"),
    RANKS("srun"),
    RANKS("slurmstepd"),
    PLAIN("salloc"),
    /* of environments */
    WITH("uv", "run"),
    SCRIPT("uvx"),
    WITH("pipx", "run"),
    WITH("poetry", "run"),
    WITH("pdm", "run"),
    WITH("hatch", "run"),
    WITH("rye", "run"),
    WITH("pixi", "run"),
    WITH("pipenv", "run"),
    WITH("conda", "run"),
    WITH("mamba", "run"),
    WITH("micromamba", "run"),
    WITH("dotenv", "run"),
    WITH("direnv", "exec"),
    WITH("npm", "run"),
    PLAIN("npx"),
    /* shells */
    PLAIN("sh"),
    PLAIN("bash"),
    PLAIN("rbash"),
    PLAIN("dash"),
    PLAIN("ash"),
    PLAIN("zsh"),
    PLAIN("fish"),
    PLAIN("ksh"),
    PLAIN("mksh"),
    PLAIN("csh"),
    PLAIN("tcsh"),
    PLAIN("busybox"),
    /* that change something and go on; most exec, some stay */
    PLAIN("env"),
    PLAIN("nice"),
    PLAIN("ionice"),
    PLAIN("chrt"),
    PLAIN("nohup"),
    PLAIN("time"),
    PLAIN("timeout"),
    PLAIN("stdbuf"),
    PLAIN("unbuffer"),
    PLAIN("setsid"),
    PLAIN("taskset"),
    PLAIN("numactl"),
    PLAIN("prlimit"),
    PLAIN("flock"),
    PLAIN("sudo"),
    PLAIN("doas"),
    PLAIN("su"),
    PLAIN("runuser"),
    PLAIN("setpriv"),
    PLAIN("chroot"),
    PLAIN("unshare"),
    PLAIN("nsenter"),
    PLAIN("bwrap"),
    PLAIN("firejail"),
    PLAIN("systemd-run"),
    PLAIN("systemd-inhibit"),
    PLAIN("cgexec"),
    PLAIN("catchsegv"),
    /* that watch it */
    PLAIN("strace"),
    PLAIN("ltrace"),
    PLAIN("gdb"),
    PLAIN("perf"),
    PLAIN("nsys"),
    PLAIN("ncu"),
    WITH("ebb", "run"),
    /* that run many */
    PLAIN("xargs"),
    PLAIN("parallel"),
    PLAIN("make"),
    PLAIN("gmake"),
    PLAIN("ninja"),
    PLAIN("just"),
    PLAIN("watch"),
    PLAIN("entr"),
    /* terminals and sessions */
    PLAIN("script"),
    PLAIN("tmux"),
    PLAIN("screen"),
    PLAIN("SCREEN"),
    PLAIN("ssh"),
    PLAIN("sshd"),
    PLAIN("sshd-session"),
    PLAIN("login"),
    PLAIN("systemd"),
    PLAIN("init"),
    PLAIN("tini"),
    PLAIN("docker-init"),
    PLAIN("dumb-init"),
    PLAIN("catatonit"),
    PLAIN("containerd-shim"),
    PLAIN("containerd-shim-runc-v2"),
    PLAIN("conmon"),
    PLAIN("supervisord"),
};
#undef PLAIN
#undef SCRIPT
#undef WITH
#undef RANKS
#undef RANKS_WITH

/* Modules that python -m starts as launchers. */
static const struct launcher launcher_modules[] = {
    {"torch.distributed.run", NULL, true, "torch.distributed.run", true},
    {"torch.distributed.launch", NULL, true, "torch.distributed.launch", true},
    {"torch.distributed.launcher", NULL, true, "torch.distributed.launcher", true},
    {"accelerate.commands.launch", NULL, true, "accelerate launch", true},
    {"accelerate.commands.accelerate_cli", "launch", true, "accelerate launch", true},
    {"deepspeed.launcher.runner", NULL, true, "deepspeed", true},
    {"deepspeed.launcher.launch", NULL, true, "deepspeed", true},
    {"horovod.runner.launch", NULL, true, "horovodrun", true},
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

static const struct launcher *launcher_by_name(struct span name, struct span rest, bool script)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
        const struct launcher *l = &launchers[i];
        if ((!script || l->script) && span_is(name, l->name) &&
            (l->sub == NULL || has_subcommand(rest, l->sub)))
            return l;
    }
    return NULL;
}

static const struct launcher *launcher_by_module(struct span module, struct span rest)
{
    for (size_t i = 0; i < sizeof(launcher_modules) / sizeof(*launcher_modules); i++)
        if (span_is(module, launcher_modules[i].name) &&
            (launcher_modules[i].sub == NULL || has_subcommand(rest, launcher_modules[i].sub)))
            return &launcher_modules[i];
    return launcher_by_name(module, rest, true);
}

/* A script by its path. `deepspeed.py` is somebody's own file, `bin/deepspeed` is the launcher. */
static const struct launcher *launcher_by_script(struct span path, struct span rest)
{
    static const char *const paths[] = {"torch/distributed/run.py", "torch/distributed/launch.py",
                                        "accelerate/commands/launch.py"};
    static const char *const modules[] = {"torch.distributed.run", "torch.distributed.launch",
                                          "accelerate.commands.launch"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (span_ends(path, paths[i]))
            return launcher_by_module(span_of(modules[i]), rest);
    return launcher_by_name(command_basename(path), rest, true);
}

const struct launcher *launcher_of(const struct command *c)
{
    switch (c->form) {
    case COMMAND_PROGRAM:
        return launcher_by_name(c->what, c->rest, false);
    case COMMAND_SCRIPT:
        return launcher_by_script(c->what, c->rest);
    case COMMAND_MODULE:
        return launcher_by_module(c->what, c->rest);
    case COMMAND_CODE:
    case COMMAND_NONE:
        break;
    }
    return NULL;
}
