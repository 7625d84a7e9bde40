/* Guesses the role of a process by applying rules to its command line, its mappings, its parent and
 * its children. */
#include "proc/role.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/span.h"
#include "proc/command.h"
#include "proc/procfs.h"

const char *role_launcher_name(const char *args, size_t len)
{
    struct command c;
    command_parse(args, len, &c);
    return launcher_of(&c).name;
}

bool role_starts_ranks(const struct process_info *info)
{
    struct command c;
    command_parse(info->cmdline, info->cmdline_len, &c);
    return launcher_of(&c).starts_ranks ||
           span_is((struct span){info->comm, info->comm_len}, "pt_elastic");
}

bool role_is_python_command(const char *args, size_t len)
{
    struct command c;
    command_parse(args, len, &c);
    return c.python;
}

/* ---- evidence from mappings ---- */

/* True if NAME is a shared object whose name begins with PREFIX ("libtorch_cpu.so",
 * "libtorch.so.2"). Other files that begin with PREFIX are ignored. */
static bool is_library(struct span name, const char *prefix)
{
    return span_begins(name, prefix) && span_find(name, ".so");
}

void role_maps_add(void *user, const struct proc_map *map)
{
    struct role_maps *maps = user;
    maps->known = true;
    if (map->path_len == 0 || map->path[0] != '/')
        return;
    struct span name = command_basename((struct span){map->path, map->path_len});
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
    else if (is_library(name, "libpython") || command_is_python_name(name))
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

/* Input to the rules. */
struct facts {
    const struct role_input *in;
    struct command command;
    struct span comm;
    bool python;
    /* the process was forked without exec, so it has the command line of its parent */
    bool same_as_parent;
};

static bool decide_role(struct role_guess *ret, enum process_role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bool decide_role(struct role_guess *ret, enum process_role role, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ret->role = role;
    vsnprintf(ret->why, sizeof ret->why, fmt, ap);
    va_end(ap);
    return true;
}

static bool code_imports(const struct command *c, const char *module)
{
    return c->form == COMMAND_CODE && c->python && span_begins(c->what, "from ") &&
           span_begins(span_from(c->what, strlen("from ")), module);
}

static enum process_role parent_role(const struct facts *f)
{
    return f->in->parent ? f->in->parent->role : ROLE_OTHER;
}

static bool rule_multiprocessing_helper(const struct facts *f, struct role_guess *ret)
{
    if (code_imports(&f->command, "multiprocessing.resource_tracker") ||
        code_imports(&f->command, "multiprocessing.semaphore_tracker"))
        return decide_role(ret, ROLE_RESOURCE_TRACKER, "multiprocessing's resource tracker");
    if (!code_imports(&f->command, "multiprocessing.forkserver"))
        return false;
    if (f->same_as_parent)
        return decide_role(ret, ROLE_DATA_WORKER, "forked by multiprocessing's fork server");
    return decide_role(ret, ROLE_RESOURCE_TRACKER, "multiprocessing's fork server");
}

static bool is_spawned(const struct facts *f)
{
    return code_imports(&f->command, "multiprocessing.spawn") ||
           code_imports(&f->command, "torch.multiprocessing.spawn");
}

static bool rule_compile_worker(const struct facts *f, struct role_guess *ret)
{
    const struct command *c = &f->command;
    if (c->form == COMMAND_SCRIPT && span_find(c->what, "torch/_inductor/compile_worker"))
        return decide_role(ret, ROLE_COMPILE_WORKER, "runs torch/_inductor/compile_worker");
    if (c->form == COMMAND_MODULE && span_begins(c->what, "torch._inductor.compile_worker"))
        return decide_role(ret, ROLE_COMPILE_WORKER, "runs torch._inductor.compile_worker");
    /* process titles that compile workers set: "torch compile_worker", "pt_compile_worker" */
    if (c->form == COMMAND_PROGRAM &&
        (span_begins(c->what, "torch compile_worker") || span_begins(c->what, "pt_compile") ||
         span_is(c->what, "compile_worker")))
        return decide_role(ret, ROLE_COMPILE_WORKER, "the process title is compile_worker");
    if (span_begins(f->comm, "torch compile_w") || span_begins(f->comm, "pt_compile") ||
        span_is(f->comm, "compile_worker"))
        return decide_role(ret, ROLE_COMPILE_WORKER, "the process title is compile_worker");
    if (parent_role(f) == ROLE_COMPILE_WORKER && (f->same_as_parent || is_spawned(f)))
        return decide_role(ret, ROLE_COMPILE_WORKER, "started by a compile worker");
    return false;
}

/* A process spawned by multiprocessing is a data worker or, under torch.multiprocessing.spawn, a
 * rank. Both have the same command line, but only a rank sends steps or initializes CUDA.
 * Initializing CUDA maps libcuda; importing torch alone does not. */
static bool rule_data_worker(const struct facts *f, struct role_guess *ret)
{
    if (span_begins(f->comm, "pt_data_worker"))
        return decide_role(ret, ROLE_DATA_WORKER, "torch named the process pt_data_worker");
    if (!is_spawned(f))
        return false;
    if (f->in->sends_steps)
        return decide_role(ret, ROLE_MAIN,
                           "spawned by multiprocessing, and reports training steps");
    const char *library = role_maps_library(&f->in->maps);
    if (library && f->in->maps.cuda)
        return decide_role(ret, ROLE_MAIN, "spawned by multiprocessing, with %s and libcuda mapped",
                           library);
    return decide_role(ret, ROLE_DATA_WORKER, "spawned by multiprocessing");
}

static bool rule_ray_worker(const struct facts *f, struct role_guess *ret)
{
    const struct process_info *p = f->in->process;
    struct span title;
    if (!command_ray_title(p->cmdline, p->cmdline_len, &title))
        return false;
    if (f->in->sends_steps)
        return decide_role(ret, ROLE_MAIN, "a Ray worker that reports training steps");
    const char *library = role_maps_library(&f->in->maps);
    if (library)
        return decide_role(ret, ROLE_MAIN, "a Ray worker with %s mapped", library);
    if (span_is(title, "ray::DashboardAgent") || span_is(title, "ray::RuntimeEnvAgent"))
        return decide_role(ret, ROLE_OTHER, "a Ray agent process");
    return decide_role(ret, ROLE_RAY_WORKER, "the process title begins with ray::");
}

static bool rule_launcher(const struct facts *f, struct role_guess *ret)
{
    const char *launcher = launcher_of(&f->command).name;
    if (launcher)
        return decide_role(ret, ROLE_LAUNCHER, "the command is %s", launcher);
    if (span_is(f->comm, "pt_elastic"))
        return decide_role(ret, ROLE_LAUNCHER, "torchrun named the process pt_elastic");
    return false;
}

static bool rule_forked(const struct facts *f, struct role_guess *ret)
{
    if (!f->same_as_parent || !f->python)
        return false;
    if (f->in->sends_steps)
        return decide_role(ret, ROLE_MAIN,
                           "a fork that has its parent's command line and reports training steps");
    if (f->in->maps.known && !role_maps_library(&f->in->maps))
        return decide_role(
            ret, ROLE_OTHER,
            "a fork that has its parent's command line and maps no training library");
    if (parent_role(f) == ROLE_MAIN)
        return decide_role(ret, ROLE_DATA_WORKER,
                           "a fork of the main process, with the same command line");
    if (parent_role(f) == ROLE_DATA_WORKER)
        return decide_role(ret, ROLE_DATA_WORKER, "a fork of a data worker");
    return false;
}

static bool rule_library(const struct facts *f, struct role_guess *ret)
{
    const struct command *c = &f->command;
    struct span name = c->form == COMMAND_SCRIPT ? command_basename(c->what) : c->what;
    if (span_is(name, "tensorboard") || span_is(name, "tensorboard.main"))
        return decide_role(ret, ROLE_OTHER, "tensorboard maps libtensorflow, but does not train");
    const char *library = role_maps_library(&f->in->maps);
    if (library)
        return decide_role(ret, ROLE_MAIN, "%s mapped", library);
    /* importing torch renames the main thread, and with it the process */
    if (!f->in->maps.known && span_is(f->comm, "pt_main_thread"))
        return decide_role(ret, ROLE_MAIN, "torch named the process pt_main_thread");
    return false;
}

static bool rule_relations(const struct facts *f, struct role_guess *ret)
{
    if (f->in->child_trains)
        return decide_role(ret, ROLE_LAUNCHER, "a descendant trains; the process itself does not");
    /* the rules below assume that all processes belong to one job, unlike under `watch --system` */
    if (f->in->whole_machine)
        return false;
    /* a process without a command line is a kernel thread or a zombie */
    if (f->in->process->cmdline_len == 0)
        return false;
    if (!f->in->parent)
        return decide_role(ret, ROLE_MAIN, "the job's topmost process");
    if (parent_role(f) == ROLE_LAUNCHER && f->in->siblings == 0)
        return decide_role(ret, ROLE_MAIN, "the process that the launcher started");
    return false;
}

void role_guess(const struct role_input *in, struct role_guess *ret)
{
    /* A rule either sets *ret and returns true, or leaves *ret unchanged. The rules for workers and
     * launchers come before rule_library, because torchrun and every worker also map libtorch. */
    static bool (*const rules[])(const struct facts *, struct role_guess *) = {
        rule_multiprocessing_helper,
        rule_compile_worker,
        rule_data_worker,
        rule_ray_worker,
        rule_launcher,
        rule_forked,
        rule_library,
        rule_relations,
    };
    const struct process_info *p = in->process;
    struct facts f = {.in = in, .comm = {p->comm, p->comm_len}};
    command_parse(p->cmdline, p->cmdline_len, &f.command);
    f.python = f.command.python || in->maps.python || command_is_python_name(f.comm) ||
               span_begins(f.comm, "pt_");
    f.same_as_parent = in->parent && p->cmdline_len > 0 &&
                       p->cmdline_len == in->parent->cmdline_len &&
                       memcmp(p->cmdline, in->parent->cmdline, p->cmdline_len) == 0;

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i](&f, ret))
            return;
    *ret = (struct role_guess){.role = ROLE_OTHER};
}
