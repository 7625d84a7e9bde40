/* `ebb attach`: loads ebb's hooks into a running job and then works like `ebb run`, except that it
 * stops the job only with --guard. */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/place.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/attach_processes.h"
#include "cli/run_end.h"
#include "proc/find.h"
#include "supervise/attached.h"
#include "trace/rundir.h"

enum {
    WAIT_S = 60,   /* time limit for loading or removing the hooks; a long C call delays both */
    ANSWER_S = 10, /* after Ctrl-C, time limit for scripts that have already started */
};

struct attach_options {
    bool all, guard, no_heap, json;
    uint64_t for_ns, interval_ns, heap_interval_bytes;
    struct quantity_size limit;
    const char *run_dir;
};

#define AT(member) offsetof(struct attach_options, member)
static const struct option_desc attach_table[] = {
    OPTION_ROW('a', "all", FLAG, NULL, AT(all),
               .help = "attach to every Python process of the job, including ranks and workers"),
    OPTION_ROW(0, "for", DURATION, "TIME", AT(for_ns), .min = 1,
               .help = "detach after this time (default: at Ctrl-C, or with ebb detach)"),
    OPTION_ROW('i', "interval", DURATION, "TIME", AT(interval_ns), .min = 50, .max = 3600000,
               .help = "sampling interval (default: 200ms in the first two minutes, then 1s)"),
    OPTION_ROW(
        'd', "run-dir", PATH, "DIR", AT(run_dir),
        .help = "record into this folder, which must not exist yet (default: ebb-runs/NAME-DATE)"),
    OPTION_ROW(0, "limit", SIZE, "SIZE|N%", AT(limit),
               .help = "memory limit of the job (default: the effective limit of its cgroup or the "
                       "machine)"),
    OPTION_ROW(0, "guard", FLAG, NULL, AT(guard),
               .help = "also stop the job before memory runs out (default: only warn and request a "
                       "checkpoint)"),
    OPTION_ROW(0, "no-heap", FLAG, NULL, AT(no_heap),
               .help = "do not profile the heap; report only steps and the verdict"),
    OPTION_ROW(0, "heap-interval", BYTES, "SIZE", AT(heap_interval_bytes), .fallback = "512K",
               .min = 4 << 10, .max = 1 << 30,
               .help = "average number of allocated bytes per heap sample"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print the summary as JSON"),
    {0},
};

struct attach {
    const struct attach_options *options;
    struct proc_root root;
    struct loop *loop;
    struct attached *attached;
    struct attach_processes processes;
    struct supervisor_options supervisor;
    struct script script;
    char package[PATH_MAX], library[PATH_MAX], name[64];
    /* why ebb detached; NULL while ebb is attached, or if the job has exited */
    const char *ended_by;
    bool is_over;
    bool has_left; /* true once the last process of the job has exited */
};

/* ---- events ---- */

static void attach_stop(struct attach *a, const char *by)
{
    if (!a->is_over)
        a->ended_by = by;
    a->is_over = true;
    loop_stop(a->loop);
}

static void on_attach_notice(void *user, const char *sentence)
{
    (void)user;
    cli_say("%s", sentence);
}

static void on_attach_mark(void *user, const struct mark *mark)
{
    struct attach *a = user;
    attach_processes_mark(&a->processes, mark);
}

static void on_attach_tick(void *user, uint64_t now_ns)
{
    struct attach *a = user;
    attach_processes_check(&a->processes, now_ns);
}

static void on_attach_empty(void *user)
{
    struct attach *a = user;
    a->has_left = true;
    attach_stop(a, NULL);
}

static void on_attach_signal(void *user, const struct signalfd_siginfo *info)
{
    attach_stop(user, info->ssi_signo == SIGINT   ? "Ctrl-C"
                      : info->ssi_signo == SIGHUP ? "SIGHUP"
                                                  : "SIGTERM");
}

static void on_attach_time(void *user, uint64_t now_ns)
{
    (void)now_ns;
    attach_stop(user, "--for");
}

static void on_attach_detach(void *user)
{
    attach_stop(user, "ebb detach");
}

static int attach_listen(struct attach *a)
{
    const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    int r = loop_new(&a->loop);
    for (size_t i = 0; i < sizeof ending / sizeof *ending && r == 0; i++)
        r = loop_add_signal(a->loop, ending[i], on_attach_signal, a);
    return r;
}

/* ---- starting ---- */

/* Finds the parts of ebb to load into the job: the Python package and the heap library. */
static int attach_find_parts(struct attach *a, struct err *err)
{
    if (!place_find_shim(a->package))
        return err_set(err, -ENOENT,
                       "ebb's Python package is not installed next to the ebb program");
    /* removes the shim's folder name, which leaves the path of the package */
    *strrchr(a->package, '/') = '\0';
    if (!a->options->no_heap && place_find_heap(a->library))
        a->supervisor.heap.library = a->library;
    a->supervisor.heap.interval_bytes = a->options->heap_interval_bytes;
    return 0;
}

/* Makes USER the owner of the socket folder, because the job of another user cannot enter a folder
 * that root created. Returns an error if the job's first process cannot access all files that the
 * hooks need. */
static int attach_open_folder(struct attach *a, uid_t user, struct err *err)
{
    const char *folder = attached_folder(a->attached), *socket = attached_socket(a->attached);
    char heap[128];
    snprintf(heap, sizeof heap, "%s.heap", socket);
    if (user != geteuid() &&
        (lchown(folder, user, (gid_t)-1) < 0 || lchown(socket, user, (gid_t)-1) < 0 ||
         (attached_library(a->attached) && lchown(heap, user, (gid_t)-1) < 0)))
        return err_set(err, -errno, "%s: %s", folder, strerror(errno));
    const struct attach_target *t = &a->processes.at[0].target;
    const char *const needed[] = {folder, a->package, attached_library(a->attached)};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] && !attach_target_sees(t, needed[i]))
            return !attach_target_lives(t)
                       ? attach_target_gone(t, err)
                       : err_set(err, -ENOENT,
                                 "process %d (%s) cannot access %s, because it is in another mount "
                                 "namespace; run ebb inside that container",
                                 (int)t->pid, t->name, needed[i]);
    return 0;
}

static void attach_set_guard(struct attach *a)
{
    struct guard_settings *g = &a->supervisor.guard;
    g->limit = a->options->limit;
    g->no_cgroup = true;
    g->rules.no_term = g->rules.no_kill = !a->options->guard;
}

static int attach_claim(struct attach *a, struct err *err)
{
    char info[CLAIM_TEXT_MAX];
    json_t *doc = json_pack("{s:s,s:s,s:i}", "socket", attached_socket(a->attached), "run_dir",
                            a->supervisor.rundir.path, "pid", (int)getpid());
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    snprintf(info, sizeof info, "%s", text ? text : "{}");
    free(text);
    json_decref(doc);
    for (size_t i = 0; i < a->processes.count; i++) {
        struct attach_process *p = &a->processes.at[i];
        int r = claim_new(a->loop, &p->target, info, on_attach_detach, a, &p->claim, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int attach_begin(struct attach *a, struct err *err)
{
    const struct attached_callbacks callbacks = {.notice = on_attach_notice,
                                                 .mark = on_attach_mark,
                                                 .tick = on_attach_tick,
                                                 .empty = on_attach_empty,
                                                 .user = a};
    struct supervisor_options *s = &a->supervisor;
    const struct attach_target *first = &a->processes.at[0].target;
    uid_t user = first->uid;
    snprintf(a->name, sizeof a->name, "%s", first->name);
    s->name = a->name;
    s->lock_fd = s->termination_fd = -1;
    s->engine = (struct engine_options){.interval_ns = a->options->interval_ns, .root = &a->root};
    attach_set_guard(a);
    int r = attach_find_parts(a, err);
    if (r == 0)
        r = rundir_create(a->options->run_dir, a->name, clock_wall_ns(), &s->rundir, err);
    if (r < 0) {
        s->rundir.fd = -1;
        return r;
    }
    /* XDG_RUNTIME_DIR and TMPDIR name folders of root, which the job's user cannot enter. If they
     * are unset, ebb uses its default folder. */
    if (user != geteuid()) {
        unsetenv("XDG_RUNTIME_DIR");
        unsetenv("TMPDIR");
    }
    r = attached_new(a->loop, s, first->pid, &callbacks, &a->attached, err);
    if (r == 0)
        r = attach_open_folder(a, user, err);
    if (r == 0)
        r = attach_claim(a, err);
    a->script = (struct script){.folder = r == 0 ? attached_folder(a->attached) : NULL,
                                .socket = r == 0 ? attached_socket(a->attached) : NULL,
                                .package = a->package,
                                .run_dir = s->rundir.path,
                                .library = r == 0 ? attached_library(a->attached) : NULL,
                                .heap_interval_bytes = s->heap.interval_bytes};
    return r;
}

/* Runs the loop until every process has answered, but at most WAIT_S. On Ctrl-C, withdraws the
 * scripts that have not started, and waits ANSWER_S for those that have. */
static void attach_wait(struct attach *a)
{
    uint64_t until_ns = clock_mono_ns() + WAIT_S * NS_PER_S;
    bool has_given_up = false;
    while (attach_processes_check(&a->processes, clock_mono_ns()) && clock_mono_ns() < until_ns) {
        if (a->is_over && !has_given_up) {
            has_given_up = true;
            attach_processes_withdraw(&a->processes);
            until_ns = clock_mono_ns() + ANSWER_S * NS_PER_S;
        }
        loop_once(a->loop, 50);
    }
    attach_processes_withdraw(&a->processes);
    attach_processes_give_up(&a->processes);
}

static void attach_announce(const struct attach *a)
{
    char clock[16] = "", pause[TEXT_TIME_MAX];
    time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        strftime(clock, sizeof clock, "%H:%M", &tm);
    for (size_t i = 0; i < a->processes.count; i++) {
        const struct attach_process *p = &a->processes.at[i];
        if (p->phase == ATTACH_ON)
            cli_say("attached to process %d (%s) at %s%s%s%s", (int)p->target.pid, p->target.name,
                    clock, p->has_heap ? "" : ", without heap profile", p->reason[0] ? ": " : "",
                    p->reason);
        else
            cli_say("cannot attach to process %d (%s): %s", (int)p->target.pid, p->target.name,
                    p->reason);
    }
    if (a->processes.pause_ns)
        cli_say("paused the job for %s; Ctrl-C detaches, and the job continues",
                text_duration(pause, a->processes.pause_ns));
    else
        cli_say("the job was not paused; Ctrl-C detaches, and the job continues");
}

/* ---- the end ---- */

static void attach_detach(struct attach *a)
{
    char pause[TEXT_TIME_MAX];
    a->processes.pause_ns = 0;
    if (!a->has_left && attach_processes_stop(&a->processes, &a->script)) {
        a->is_over = false; /* another Ctrl-C ends the wait for the removal of the hooks */
        attach_wait(a);
        a->is_over = true;
        if (a->processes.pause_ns)
            cli_say("paused the job for %s to detach", text_duration(pause, a->processes.pause_ns));
    }
    for (size_t i = 0; i < a->processes.count && !a->has_left; i++) {
        const struct attach_process *p = &a->processes.at[i];
        if (p->phase == ATTACH_FAILED && p->is_stopping)
            cli_say("cannot detach from process %d (%s): %s; ebb's hooks remain installed but "
                    "inactive; remove them with `ebb detach %d`",
                    (int)p->target.pid, p->target.name, p->reason, (int)p->target.pid);
    }
}

static int attach_finish(struct attach *a)
{
    const struct run_end_output to = {
        .as_json = a->options->json, .junit_fd = -1, .markdown_fd = -1, .termination_fd = -1};
    attach_detach(a);
    json_t *doc = attached_end(a->attached, a->has_left ? NULL : a->ended_by);
    run_end_print(doc, &to);
    json_decref(doc);
    return 0;
}

/* Removes the run folder of a process to which ebb could not attach. */
static void attach_remove_folder(struct attach *a)
{
    struct rundir *dir = &a->supervisor.rundir;
    char latest[PATH_MAX + 16], target[PATH_MAX];
    if (dir->fd < 0)
        return;
    unlinkat(dir->fd, "trace.ebb", 0);
    unlinkat(dir->fd, "run.json", 0);
    rmdir(dir->path);
    const char *slash = strrchr(dir->path, '/');
    snprintf(latest, sizeof latest, "%.*s/latest", (int)(slash - dir->path), dir->path);
    ssize_t len = readlink(latest, target, sizeof target - 1);
    if (len > 0 && !a->options->run_dir) {
        target[len] = '\0';
        if (strcmp(target, slash + 1) == 0)
            unlink(latest);
    }
}

/* Loads the hooks. Returns -errno and an error if no process could load them. */
static int attach_start(struct attach *a, struct err *err)
{
    int r = attach_begin(a, err);
    if (r < 0)
        return r;
    attach_processes_start(&a->processes, &a->script);
    attach_wait(a);
    if (attach_processes_in(&a->processes, ATTACH_ON))
        return 0;
    const struct attach_process *p = &a->processes.at[0];
    if (strncmp(p->reason, "process ", strlen("process ")) == 0)
        return err_set(err, -EIO, "%s", p->reason);
    return err_set(err, -EIO, "process %d (%s): %s", (int)p->target.pid, p->target.name, p->reason);
}

static int attach_run(struct attach *a, struct err *err)
{
    struct rlimit before;
    proc_raise_nofile(&before);
    int r = attach_start(a, err);
    if (r < 0) {
        attached_free(a->attached);
        a->attached = NULL;
        attach_remove_folder(a);
        return r;
    }
    attach_announce(a);
    if (a->options->for_ns)
        loop_add_timer(a->loop, clock_mono_ns() + a->options->for_ns, 0, on_attach_time, a, NULL);
    if (!a->is_over && loop_run(a->loop) < 0)
        cli_say("cannot continue watching");
    return attach_finish(a);
}

static void attach_fini(struct attach *a)
{
    attach_processes_fini(&a->processes);
    attached_free(a->attached);
    loop_free(a->loop);
    rundir_fini(&a->supervisor.rundir);
    proc_root_close(&a->root);
}

static int attach_exec(const struct cli_call *call, struct err *err)
{
    struct attach a = {.options = call->options,
                       .root = {.proc_fd = -1, .cgroup_fd = -1},
                       .supervisor = {.rundir = {.fd = -1}}};
    int32_t pid, real;
    char why[256] = "";
    int r = cli_open_pid(call, &a.root, &pid, err);
    if (r < 0)
        return r;
    real = pid;
    if (!a.options->all && pid != getpid() && find_real_process(&a.root, pid, &real, why, err) < 0)
        real = pid; /* attach_processes_open reports the error for this pid */
    r = attach_processes_open(&a.root, real, a.options->all, &a.processes, err);
    if (r == 0 && attach_listen(&a) < 0)
        r = err_set(err, -ENOMEM, "out of memory");
    if (r == 0 && why[0])
        cli_say("%s", why);
    if (r == 0)
        r = attach_run(&a, err);
    attach_fini(&a);
    return r;
}

const struct cli_command cmd_attach = {
    .name = "attach",
    .operands = "PID",
    .summary = "record, judge and profile a job that is already running",
    .description =
        "Loads ebb's hooks into the running Python process PID, and then works like ebb run: it "
        "reports steps, judges memory, profiles the heap, writes a run folder, and prints "
        "a summary at the end. On Ctrl-C, on ebb detach PID, or when the time of --for has passed, "
        "ebb removes the hooks and exits; the job continues.\n"
        "\n"
        "The process is stopped for a few milliseconds while ebb writes one entry into the "
        "interpreter's own queue; ebb runs no code in the process while it is stopped. The "
        "interpreter (CPython 3.9 or later) loads the hooks between two instructions of its main "
        "thread. Memory that was allocated before the hooks were loaded is not attributed to "
        "lines.\n"
        "\n"
        "This requires the right to trace the process: the same user and "
        "kernel.yama.ptrace_scope=0, or root. A process that was started with EBB_ATTACH=1 loads "
        "the hooks by itself, without that right and without a pause.\n"
        "\n"
        "Before memory runs out, ebb warns and requests a checkpoint, if the job can write one. It "
        "stops the job only with --guard.",
    .examples = "ebb attach 4711\n"
                "ebb attach --for 5m --all 4711\n",
    .options = attach_table,
    .options_size = sizeof(struct attach_options),
    .exec = attach_exec,
};
