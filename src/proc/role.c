/* What a process is there for: rules over its command line, its maps and its relations. */
#include "proc/role.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proc/procfs.h"

/* A piece of somebody else's bytes; never ends in NUL. */
struct piece {
    const char *s;
    size_t len;
};

static bool piece_is(struct piece p, const char *text)
{
    return p.len == strlen(text) && memcmp(p.s, text, p.len) == 0;
}

static bool piece_starts(struct piece p, const char *prefix)
{
    size_t n = strlen(prefix);
    return p.len >= n && memcmp(p.s, prefix, n) == 0;
}

static bool piece_has(struct piece p, const char *text)
{
    return memmem(p.s, p.len, text, strlen(text)) != NULL;
}

static struct piece piece_basename(struct piece p)
{
    const char *slash = p.len > 0 ? memrchr(p.s, '/', p.len) : NULL;
    if (slash == NULL)
        return p;
    return (struct piece){slash + 1, (size_t)(p.s + p.len - slash - 1)};
}

/* Takes the next NUL-ended argument off *REST; false at the end. */
static bool args_next(struct piece *rest, struct piece *ret)
{
    if (rest->len == 0)
        return false;
    const char *nul = memchr(rest->s, '\0', rest->len);
    size_t n = nul != NULL ? (size_t)(nul - rest->s) : rest->len;
    *ret = (struct piece){rest->s, n};
    size_t step = n + (nul != NULL ? 1 : 0);
    *rest = (struct piece){rest->s + step, rest->len - step};
    return true;
}

/* What a command line executes, with interpreters looked through. */
enum command_form { COMMAND_PROGRAM, COMMAND_SCRIPT, COMMAND_MODULE, COMMAND_CODE, COMMAND_NONE };

struct command {
    enum command_form form;
    struct piece what; /* the program's base name, the script's path, the module or the code */
    struct piece rest; /* the arguments after it */
    bool python;
};

/* The program's name: no path, no login shell's dash, and of a title such as "sshd: me@pts/0"
 * only what stands before the colon. */
static struct piece program_name(struct piece argv0)
{
    const char *colon = memmem(argv0.s, argv0.len, ": ", 2);
    if (colon != NULL)
        argv0.len = (size_t)(colon - argv0.s);
    struct piece name = piece_basename(argv0);
    if (name.len > 1 && name.s[0] == '-')
        name = (struct piece){name.s + 1, name.len - 1};
    return name;
}

/* "python", "python3", "python3.11t", "pypy3"; not "python-launcher" and not "pythonize". */
static bool is_python_name(struct piece name)
{
    size_t i;
    if (piece_starts(name, "python"))
        i = 6;
    else if (piece_starts(name, "pypy"))
        i = 4;
    else
        return false;
    for (; i < name.len; i++) {
        char c = name.s[i];
        if ((c < '0' || c > '9') && c != '.' && c != 't' && c != 'd')
            return false;
    }
    return true;
}

/* Where an option cluster such as -um ends in an argument of its own: what that argument is. */
static bool python_option(struct piece arg, struct piece *rest, struct command *ret)
{
    for (size_t i = 1; i < arg.len; i++) {
        char c = arg.s[i];
        if (c != 'c' && c != 'm' && c != 'W' && c != 'X')
            continue;
        struct piece value = {arg.s + i + 1, arg.len - i - 1};
        if (value.len == 0 && !args_next(rest, &value))
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

static void command_parse_python(struct piece rest, struct command *ret)
{
    struct piece arg, value;
    ret->form = COMMAND_NONE; /* interactive, or cut off */
    while (args_next(&rest, &arg)) {
        if (piece_is(arg, "-"))
            return;
        if (piece_is(arg, "--check-hash-based-pycs")) {
            if (!args_next(&rest, &value))
                return;
            continue;
        }
        if (piece_starts(arg, "--"))
            continue;
        if (!piece_starts(arg, "-")) {
            ret->form = COMMAND_SCRIPT;
            ret->what = arg;
            ret->rest = rest;
            return;
        }
        if (python_option(arg, &rest, ret))
            return;
    }
}

static void command_parse(const char *args, size_t len, struct command *ret)
{
    struct piece rest = {args, len}, argv0;
    *ret = (struct command){.form = COMMAND_NONE, .what = {"", 0}, .rest = {"", 0}};
    if (!args_next(&rest, &argv0))
        return;
    struct piece name = program_name(argv0);
    if (is_python_name(name)) {
        ret->python = true;
        command_parse_python(rest, ret);
        return;
    }
    *ret = (struct command){.form = COMMAND_PROGRAM, .what = name, .rest = rest};
}

/* Programs that start another and wait. With SUB, only that subcommand does. SCRIPT: written in
 * Python, so that its console script (`python /x/bin/torchrun`) and `python -m uv` count too. */
struct launcher {
    const char *name;
    const char *sub;
    bool script;
    const char *shown;
    bool ranks; /* what it starts are the ranks of one job */
};

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
static bool has_subcommand(struct piece args, const char *sub)
{
    struct piece arg;
    bool may_be_value = false;
    while (args_next(&args, &arg)) {
        if (piece_is(arg, sub))
            return true;
        bool option = arg.len > 1 && arg.s[0] == '-';
        if (!option && !may_be_value)
            return false;
        may_be_value = option && memchr(arg.s, '=', arg.len) == NULL;
    }
    return false;
}

static const struct launcher *launcher_by_name(struct piece name, struct piece rest, bool script)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
        const struct launcher *l = &launchers[i];
        if ((!script || l->script) && piece_is(name, l->name) &&
            (l->sub == NULL || has_subcommand(rest, l->sub)))
            return l;
    }
    return NULL;
}

static const struct launcher *launcher_by_module(struct piece module, struct piece rest)
{
    for (size_t i = 0; i < sizeof(launcher_modules) / sizeof(*launcher_modules); i++)
        if (piece_is(module, launcher_modules[i].name) &&
            (launcher_modules[i].sub == NULL || has_subcommand(rest, launcher_modules[i].sub)))
            return &launcher_modules[i];
    return launcher_by_name(module, rest, true);
}

static bool piece_ends(struct piece p, const char *suffix)
{
    size_t n = strlen(suffix);
    return p.len >= n && memcmp(p.s + p.len - n, suffix, n) == 0;
}

/* A script by its path. `deepspeed.py` is somebody's own file, `bin/deepspeed` is the launcher. */
static const struct launcher *launcher_by_script(struct piece path, struct piece rest)
{
    static const char *const paths[] = {"torch/distributed/run.py", "torch/distributed/launch.py",
                                        "accelerate/commands/launch.py"};
    static const char *const modules[] = {"torch.distributed.run", "torch.distributed.launch",
                                          "accelerate.commands.launch"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (piece_ends(path, paths[i]))
            return launcher_by_module((struct piece){modules[i], strlen(modules[i])}, rest);
    return launcher_by_name(piece_basename(path), rest, true);
}

static const struct launcher *command_launcher(const struct command *c)
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

const char *role_launcher_name(const char *args, size_t len)
{
    struct command c;
    command_parse(args, len, &c);
    const struct launcher *l = command_launcher(&c);
    return l != NULL ? l->shown : NULL;
}

bool role_starts_ranks(const struct process_info *info)
{
    struct command c;
    command_parse(info->cmdline, info->cmdline_len, &c);
    const struct launcher *l = command_launcher(&c);
    return (l != NULL && l->ranks) ||
           piece_is((struct piece){info->comm, info->comm_len}, "pt_elastic");
}

bool role_is_python_command(const char *args, size_t len)
{
    struct command c;
    command_parse(args, len, &c);
    return c.python;
}

/* maps */

/* "libtorch_cpu.so", "libtorch.so.2": a shared object of that name, not any file beginning so. */
static bool is_library(struct piece name, const char *prefix)
{
    return piece_starts(name, prefix) && piece_has(name, ".so");
}

void role_maps_add(struct role_maps *maps, const struct proc_map *map)
{
    maps->known = true;
    if (map->path_len == 0 || map->path[0] != '/')
        return;
    struct piece name = piece_basename((struct piece){map->path, map->path_len});
    if (name.len == 0)
        return;
    if (is_library(name, "libtorch") || is_library(name, "libc10."))
        maps->torch = true;
    else if (is_library(name, "libjax") || is_library(name, "xla_extension") ||
             is_library(name, "_jax.") || is_library(name, "libtpu.") ||
             is_library(name, "xla_cuda_plugin"))
        maps->jax = true;
    else if (is_library(name, "libtensorflow") || is_library(name, "_pywrap_tensorflow"))
        maps->tensorflow = true;
    else if (is_library(name, "libcuda."))
        maps->cuda = true;
    else if (is_library(name, "libpython") || is_python_name(name))
        maps->python = true;
}

const char *role_maps_library(const struct role_maps *maps)
{
    if (maps->torch)
        return "libtorch";
    if (maps->jax)
        return "jax";
    if (maps->tensorflow)
        return "libtensorflow";
    return NULL;
}

/* The guess: each rule sets *ret and says true, or leaves it alone. The order is the argument:
 * workers before launchers before libraries, because torchrun and every worker map libtorch
 * themselves. */

struct facts {
    const struct role_input *in;
    struct command command;
    struct piece comm;
    bool python;
    bool same_as_parent; /* a fork that did not exec: the command line is the parent's */
};

static bool decide(struct role_guess *ret, enum process_role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bool decide(struct role_guess *ret, enum process_role role, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ret->role = role;
    vsnprintf(ret->why, sizeof(ret->why), fmt, ap);
    va_end(ap);
    return true;
}

static bool code_imports(const struct command *c, const char *module)
{
    return c->form == COMMAND_CODE && c->python && piece_starts(c->what, "from ") &&
           piece_starts((struct piece){c->what.s + 5, c->what.len - 5}, module);
}

static enum process_role parent_role(const struct facts *f)
{
    return f->in->parent != NULL ? f->in->parent->role : ROLE_OTHER;
}

static bool rule_multiprocessing_helper(const struct facts *f, struct role_guess *ret)
{
    if (code_imports(&f->command, "multiprocessing.resource_tracker") ||
        code_imports(&f->command, "multiprocessing.semaphore_tracker"))
        return decide(ret, ROLE_RESOURCE_TRACKER, "multiprocessing's resource tracker");
    if (!code_imports(&f->command, "multiprocessing.forkserver"))
        return false;
    if (f->same_as_parent)
        return decide(ret, ROLE_DATA_WORKER, "forked by multiprocessing's fork server");
    return decide(ret, ROLE_RESOURCE_TRACKER, "multiprocessing's fork server");
}

static bool is_spawned(const struct facts *f)
{
    return code_imports(&f->command, "multiprocessing.spawn") ||
           code_imports(&f->command, "torch.multiprocessing.spawn");
}

static bool rule_compile_worker(const struct facts *f, struct role_guess *ret)
{
    const struct command *c = &f->command;
    if (c->form == COMMAND_SCRIPT && piece_has(c->what, "torch/_inductor/compile_worker"))
        return decide(ret, ROLE_COMPILE_WORKER, "runs torch/_inductor/compile_worker");
    if (c->form == COMMAND_MODULE && piece_starts(c->what, "torch._inductor.compile_worker"))
        return decide(ret, ROLE_COMPILE_WORKER, "runs torch._inductor.compile_worker");
    /* a title set by the process itself: "torch compile_worker", "pt_compile_worker" */
    if (c->form == COMMAND_PROGRAM &&
        (piece_starts(c->what, "torch compile_worker") || piece_starts(c->what, "pt_compile") ||
         piece_is(c->what, "compile_worker")))
        return decide(ret, ROLE_COMPILE_WORKER, "calls itself compile_worker");
    if (piece_starts(f->comm, "torch compile_w") || piece_starts(f->comm, "pt_compile") ||
        piece_is(f->comm, "compile_worker"))
        return decide(ret, ROLE_COMPILE_WORKER, "calls itself compile_worker");
    if (parent_role(f) == ROLE_COMPILE_WORKER && (f->same_as_parent || is_spawned(f)))
        return decide(ret, ROLE_COMPILE_WORKER, "started by a compile worker");
    return false;
}

/* A spawned process is a loader's worker or, under torch.multiprocessing.spawn, a rank; their
 * command lines are the same. Only a rank initialises CUDA (which maps libcuda, libtorch alone
 * does not), so ranks on the CPU pass for workers. */
static bool rule_data_worker(const struct facts *f, struct role_guess *ret)
{
    if (piece_starts(f->comm, "pt_data_worker"))
        return decide(ret, ROLE_DATA_WORKER, "torch named it pt_data_worker");
    if (!is_spawned(f))
        return false;
    const char *library = role_maps_library(&f->in->maps);
    if (library != NULL && f->in->maps.cuda)
        return decide(ret, ROLE_MAIN, "spawned by multiprocessing, with %s and libcuda mapped",
                      library);
    return decide(ret, ROLE_DATA_WORKER, "spawned by multiprocessing");
}

static bool rule_launcher(const struct facts *f, struct role_guess *ret)
{
    const struct launcher *l = command_launcher(&f->command);
    if (l != NULL)
        return decide(ret, ROLE_LAUNCHER, "its command is %s", l->shown);
    if (piece_is(f->comm, "pt_elastic"))
        return decide(ret, ROLE_LAUNCHER, "torchrun named it pt_elastic");
    return false;
}

static bool rule_forked(const struct facts *f, struct role_guess *ret)
{
    if (!f->same_as_parent || !f->python)
        return false;
    if (f->in->maps.known && role_maps_library(&f->in->maps) == NULL)
        return decide(ret, ROLE_OTHER, "forked with its parent's command line, no library mapped");
    if (parent_role(f) == ROLE_MAIN)
        return decide(ret, ROLE_DATA_WORKER, "forked from main with its command line");
    if (parent_role(f) == ROLE_DATA_WORKER)
        return decide(ret, ROLE_DATA_WORKER, "forked from a data worker");
    return false;
}

static bool rule_library(const struct facts *f, struct role_guess *ret)
{
    const struct command *c = &f->command;
    struct piece name = c->form == COMMAND_SCRIPT ? piece_basename(c->what) : c->what;
    if (piece_is(name, "tensorboard") || piece_is(name, "tensorboard.main"))
        return decide(ret, ROLE_OTHER, "tensorboard maps libtensorflow, but does not train");
    const char *library = role_maps_library(&f->in->maps);
    if (library != NULL)
        return decide(ret, ROLE_MAIN, "%s mapped", library);
    /* importing torch renames the main thread, and so the process */
    if (!f->in->maps.known && piece_is(f->comm, "pt_main_thread"))
        return decide(ret, ROLE_MAIN, "torch named it pt_main_thread");
    return false;
}

static bool rule_child_trains(const struct facts *f, struct role_guess *ret)
{
    if (!f->in->child_trains)
        return false;
    return decide(ret, ROLE_LAUNCHER, "a process below it trains, it does not itself");
}

static bool rule_started(const struct facts *f, struct role_guess *ret)
{
    if (f->in->whole_machine) /* nothing of it was started by whoever looks */
        return false;
    if (f->in->process->cmdline_len == 0) /* a kernel thread or a zombie */
        return false;
    if (f->in->parent == NULL)
        return decide(ret, ROLE_MAIN, "the process that was started");
    if (parent_role(f) == ROLE_LAUNCHER && f->in->siblings == 0)
        return decide(ret, ROLE_MAIN, "the process that its launcher started");
    return false;
}

static bool same_command(const struct process_info *a, const struct process_info *b)
{
    return a->cmdline_len > 0 && a->cmdline_len == b->cmdline_len &&
           memcmp(a->cmdline, b->cmdline, a->cmdline_len) == 0;
}

void role_guess(const struct role_input *in, struct role_guess *ret)
{
    static bool (*const rules[])(const struct facts *, struct role_guess *) = {
        rule_multiprocessing_helper,
        rule_compile_worker,
        rule_data_worker,
        rule_launcher,
        rule_forked,
        rule_library,
        rule_child_trains,
        rule_started,
    };
    const struct process_info *p = in->process;
    struct facts f = {.in = in, .comm = {p->comm, p->comm_len}};
    command_parse(p->cmdline, p->cmdline_len, &f.command);
    f.python = f.command.python || in->maps.python || is_python_name(f.comm) ||
               piece_starts(f.comm, "pt_");
    f.same_as_parent = in->parent != NULL && same_command(p, in->parent);

    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (rules[i](&f, ret))
            return;
    *ret = (struct role_guess){.role = ROLE_OTHER};
}
