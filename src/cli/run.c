/* `ebb run`: starts the supervisor, which isolates, records and guards the job. This process is the
 * supervisor's client in the foreground: it connects the job to the terminal, and prints the
 * summary. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/place.h"
#include "base/text.h"
#include "cli/run_client.h"
#include "cli/run_end.h"
#include "cli/run_program.h"
#include "cli/run_rank.h"
#include "options/run_options.h"
#include "server/http/listen.h"
#include "supervise/lost.h"
#include "supervise/node_folder.h"
#include "supervise/spawn.h"
#include "supervise/supervisor.h"
#include "guard/cgroup_place.h"

/* ---- checks before the start ---- */

static int check_command(const char *name, char ret_path[PATH_MAX])
{
    int r = run_program_find(name, ret_path);
    if (r == -ENOENT || r == -ENOTDIR)
        return cli_failf(127, "command not found: \"%s\"%s", name,
                         strchr(name, '/') ? "" : " in $PATH");
    if (r < 0)
        return cli_failf(126, "\"%s\" cannot be executed: %s", name, strerror(-r));
    return 0;
}

/* Creates the run folder. If --run-dir cannot be created, ebb run fails; if the default folder
 * cannot be created, the job runs without a recording. */
static int run_make_folder(const struct run_options *o, const char *name, struct rundir *ret)
{
    struct err err = {""};
    ret->fd = -1;
    if (o->no_record)
        return 0;
    int r = rundir_create(o->run_dir, name, clock_wall_ns(), ret, &err);
    if (r == 0 && o->folder_id)
        r = rundir_sign(ret, o->folder_id, &err);
    if (r == 0)
        return 0;
    ret->fd = -1;
    if (o->run_dir)
        return cli_fail(125, &err);
    cli_say("%s; the job runs without a recording (--run-dir chooses another folder)", err.text);
    return 0;
}

static bool is_ignored(int signo)
{
    struct sigaction sa;
    return sigaction(signo, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
}

/* Opens an output file that is written at the end of the job, so that an error is reported now and
 * not after hours. Returns the exit status. */
static int run_open_output(const char *option, const char *path, int *ret_fd)
{
    *ret_fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (path && *ret_fd < 0)
        return cli_failf(125, "run: %s: cannot write \"%s\": %s", option, path, strerror(errno));
    return 0;
}

/* Opens the termination log. The default is the file that Kubernetes mounts, if it is writable.
 * Returns the exit status. */
static int run_open_termination(const char *path, int *ret_fd)
{
    *ret_fd = -1;
    if (path && strcmp(path, "none") == 0)
        return 0;
    if (path)
        return run_open_output("--termination-log", path, ret_fd);
    if (getenv("KUBERNETES_SERVICE_HOST"))
        *ret_fd = open("/dev/termination-log", O_WRONLY | O_CLOEXEC);
    return 0;
}

/* Opens the socket of --metrics and the folder of --metrics-file. Returns the exit status. */
static int run_open_metrics(const struct run_options *o, struct supervisor_metrics *ret)
{
    char text[PATH_MAX], name[LISTEN_NAME_MAX];
    struct listen_address address;
    struct err err = {""};
    *ret = (struct supervisor_metrics){.listen_fd = -1, .folder_fd = -1};
    if (o->metrics) {
        snprintf(text, sizeof text, "%s%s",
                 strchr(o->metrics, ':') ? "" : "127.0.0.1:", o->metrics);
        if (listen_parse(text, &address, &err) < 0 ||
            listen_tcp(&address, name, &ret->listen_fd, &err) < 0)
            return cli_failf(125, "run: --metrics %s: %s", o->metrics, err.text);
        if (!o->quiet)
            cli_say("metrics on http://%s/metrics", name);
    }
    if (!o->metrics_file)
        return 0;
    const char *slash = strrchr(o->metrics_file, '/');
    ret->file = text_base_name(o->metrics_file);
    snprintf(text, sizeof text, "%.*s", slash ? (int)(slash - o->metrics_file) + 1 : 1,
             slash ? o->metrics_file : ".");
    ret->folder_fd = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->folder_fd < 0 || faccessat(ret->folder_fd, ".", W_OK, 0) < 0)
        return cli_failf(125, "run: --metrics-file: cannot write \"%s\": %s", o->metrics_file,
                         strerror(errno));
    return 0;
}

static void run_close_metrics(const struct supervisor_metrics *m)
{
    if (m->listen_fd >= 0)
        close(m->listen_fd);
    if (m->folder_fd >= 0)
        close(m->folder_fd);
}

enum { STATUS_FAIL_ON = 3 };

/* Returns the exit status: the job's own, or 3 if the job exited with 0 but its verdict fails
 * --fail-on. */
static int run_status(const struct run_options *o, const struct run_client_end *end)
{
    if (!end->status_known)
        return 125;
    if (end->status != 0 || !o->fail_on || !end->doc || !run_end_fails(end->doc, o->fail_on))
        return end->status;
    cli_say("exit status %d because of --fail-on %s", STATUS_FAIL_ON, o->fail_on);
    return STATUS_FAIL_ON;
}

static int run_finish(const struct run_options *o, struct run_client_end *end,
                      const struct run_end_output *to, pid_t sentinel)
{
    if (end->doc)
        run_end_print(end->doc, to);
    else if (!end->status_known)
        cli_say("the supervisor process of the job was killed; %s",
                o->guard.keep_on_exit ? "the job continues, and its output goes to log.txt"
                                      : "ebb is ending the remaining processes of the job");
    int status = run_status(o, end);
    json_decref(end->doc);
    while (waitpid(sentinel, NULL, 0) < 0 && errno == EINTR)
        ;
    return status;
}

/* Returns the folder of the Python hooks, or NULL if they are off. Also sets EBB_SHIM and
 * EBB_VERBOSE for the Python processes of the job: the hooks of an outer `ebb run` may already be
 * on the Python path, and must obey the options of this run, too. */
static const char *shim_folder(const struct run_options *o, char space[PATH_MAX])
{
    const char *setting = getenv("EBB_SHIM");
    if (o->verbose)
        setenv("EBB_VERBOSE", "1", 1);
    if (o->no_shim)
        setenv("EBB_SHIM", "0", 1);
    if (o->no_shim || (setting && strcmp(setting, "0") == 0))
        return NULL;
    return place_find_shim(space) ? space : NULL;
}

/* Chooses the library to preload into the job. If no library can be preloaded, prints the
 * reason. */
static void choose_heap(const struct run_options *o, const char *program,
                        struct supervisor_options *s, char space[PATH_MAX])
{
    const char *setting = getenv("EBB_HEAP");
    if (o->no_heap || (setting && strcmp(setting, "0") == 0))
        return;
    s->heap.interval_bytes = o->heap_interval_bytes;
    s->heap.no_python = o->no_heap_python;
    s->heap.trouble = run_program_obstacle(program);
    if (s->heap.trouble)
        cli_say("the heap of \"%s\" is not profiled: %s", text_base_name(program), s->heap.trouble);
    else if (place_find_heap(space))
        s->heap.library = space;
    else
        s->heap.trouble = PLACE_NO_HEAP;
}

/* Storage for the texts to which a struct supervisor_options points. */
struct run_space {
    char path[PATH_MAX], shim[PATH_MAX], heap[PATH_MAX];
    struct proc_root root;
    struct supervisor_metrics metrics;
};

/* Fills in the options that are needed both for a job on one machine and for a node of a larger
 * job. Returns the exit status. */
static int run_prepare(const struct cli_call *call, struct run_space *space,
                       struct supervisor_options *s)
{
    const struct run_options *o = call->options;
    struct err err = {""};
    *s = (struct supervisor_options){.grace_ns = 5 * NS_PER_S,
                                     .rundir = {.fd = -1},
                                     .termination_fd = -1,
                                     .guard = o->guard,
                                     .metrics = &space->metrics,
                                     .name = o->name ? o->name : text_base_name(call->argv[0]),
                                     .path = space->path,
                                     .argv = call->argv,
                                     .log_max_bytes = o->log_max_bytes,
                                     .ignores_pipe = is_ignored(SIGPIPE),
                                     .ignores_xfsz = is_ignored(SIGXFSZ),
                                     .lock_fd = (int)o->lock_fd};
    int status = run_open_metrics(o, &space->metrics);
    if (status)
        return status;
    if (proc_root_open("/proc", "/sys/fs/cgroup", &space->root, &err) < 0)
        return cli_fail(125, &err);
    s->shim = shim_folder(o, space->shim);
    choose_heap(o, space->path, s, space->heap);
    s->engine = (struct engine_options){.interval_ns = o->interval_ns,
                                        .no_unique = o->no_unique,
                                        .pss = o->pss,
                                        .root = &space->root};
    proc_raise_nofile(&s->nofile);
    return 0;
}

static int run_job(const struct cli_call *call)
{
    const struct run_options *o = call->options;
    struct supervisor_options s = {.rundir = {.fd = -1}};
    struct run_space space;
    struct err err = {""};
    struct supervisor_client client;
    struct run_client_end end;
    struct run_end_output to = {.is_quiet = o->quiet || o->folder_control, .as_json = o->json};
    int status = check_command(call->argv[0], space.path);
    if (status == 0)
        status = run_open_output("--junit", o->junit, &to.junit_fd);
    if (status == 0)
        status = run_open_output("--markdown", o->markdown, &to.markdown_fd);
    if (status == 0)
        status = run_open_termination(o->termination_log, &to.termination_fd);
    if (status == 0)
        status = run_prepare(call, &space, &s);
    if (status == 0)
        status = run_make_folder(o, s.name, &s.rundir);
    if (status)
        return status;
    s.is_silent = o->is_detached || o->folder_control;
    run_client_terminal(o->no_terminal || s.is_silent, &s.tty);
    if (s.is_silent)
        s.streams.is_one_pipe = true; /* standard output and standard error both go to log.txt */
    else
        run_client_streams(&s.tty, &s.streams);
    s.termination_fd = to.termination_fd;
    s.is_detached = o->is_detached;
    s.folder_control = o->folder_control;
    run_client_hold_signals(&s.mask);
    if (!o->guard.no_cgroup)
        /* moves ebb to a child cgroup, so that the job can have a cgroup of its own; may fail */
        (void)guard_place_vacate(&space.root);
    if (supervisor_start(&s, &client, &err) < 0)
        return cli_fail(125, &err);
    rundir_fini(&s.rundir);
    run_close_metrics(&space.metrics);
    if (o->is_detached && run_client_until_started(client.fd, &end))
        return 0;
    if (!o->is_detached)
        run_client(&client, &s.tty, &end);
    return run_finish(o, &end, &to, client.sentinel);
}

/* ---- one of several ranks ---- */

struct run_node {
    const struct cli_call *call;
    const struct rank_place *place;
};

/* Creates the folder of this node. If it cannot be created, the node's ranks run without a
 * recording. */
static int run_make_node_folder(const struct run_node *n, const char *name, struct rundir *ret)
{
    const struct run_options *o = n->call->options;
    const struct node_folder_options f = {.place = n->place,
                                          .job_dir = o->run_dir,
                                          .name = name,
                                          .command = n->call->argv,
                                          .wall_ns = clock_wall_ns()};
    struct err err = {""};
    ret->fd = -1;
    if (o->no_record || node_folder_create(&f, ret, &err) == 0)
        return 0;
    ret->fd = -1;
    cli_say("node %u: %s; its ranks run without a recording (--run-dir chooses another folder)",
            n->place->node, err.text);
    return 0;
}

static int run_start_node(void *user, int listen_fd)
{
    const struct run_node *n = user;
    const struct supervisor_node node = {.place = n->place, .listen_fd = listen_fd};
    struct supervisor_options s = {.rundir = {.fd = -1}};
    struct run_space space;
    struct supervisor_client client;
    struct run_client_end end;
    struct err err = {""};
    int status = check_command(n->call->argv[0], space.path);
    if (status == 0)
        status = run_prepare(n->call, &space, &s);
    if (status)
        return status;
    run_make_node_folder(n, s.name, &s.rundir);
    s.node = &node;
    s.is_detached = true;     /* the supervisor outlives this rank */
    s.guard.no_cgroup = true; /* the ranks stay in the cgroup of the scheduler */
    s.streams.is_one_pipe = true;
    sigemptyset(&s.mask);
    if (supervisor_start(&s, &client, &err) < 0)
        return cli_fail(125, &err);
    rundir_fini(&s.rundir);
    run_close_metrics(&space.metrics);
    return run_client_until_started(client.fd, &end) ? 0 : 125;
}

static int run_one_rank(const struct cli_call *call, const struct rank_place *place)
{
    const struct run_options *o = call->options;
    char path[PATH_MAX];
    struct run_node node = {.call = call, .place = place};
    if (o->guard.restart)
        return cli_failf(125,
                         "run: --restart requires a single ebb run that starts all ranks, but this "
                         "ebb run starts only 1 of the %u ranks",
                         place->ranks);
    int status = check_command(call->argv[0], path);
    if (status)
        return status;
    AUTO_FREE char **argv = spawn_argv(call->argv, place->segment ? o->guard.resume_args : NULL);
    if (!argv)
        return cli_failf(125, "out of memory");
    const struct run_rank rank = {.options = o,
                                  .place = place,
                                  .path = path,
                                  .argv = argv,
                                  .start = run_start_node,
                                  .user = &node};
    return run_rank(&rank);
}

static const char *run_variable(const char *name)
{
    return getenv(name);
}

static int check_lock(const struct run_options *o, struct err *err)
{
    if (o->lock_fd >= 0 && !o->is_detached)
        return err_set(err, -EINVAL, "--lock-fd %d requires --detached", (int)o->lock_fd);
    return lost_take_lock(o->lock_fd, err);
}

static int run_exec(const struct cli_call *call, struct err *err)
{
    struct run_options *o = call->options;
    if (call->argc < 1)
        return err_set(err, -EINVAL,
                       "command missing; write it after --, as in: ebb run -- python train.py");
    int r = check_lock(o, err);
    if (r == 0)
        r = run_options_complete(o, call->given, err);
    if (r < 0)
        return r;
    struct rank_place place;
    bool is_rank = !o->is_detached && rank_place_read(run_variable, &place) &&
                   (place.ranks > 1 || o->guard.requeue);
    if (o->guard.requeue && (!is_rank || !place.is_slurm))
        return err_set(
            err, -EINVAL,
            "--requeue requires a Slurm job step; start ebb run with srun in a batch script");
    int status = is_rank ? run_one_rank(call, &place) : run_job(call);
    run_options_fini(o);
    return status;
}

const struct cli_command cmd_run = {
    .name = "run",
    .operands = "-- CMD [ARG…]",
    .summary = "run a job with a recording, a guard, and a summary at the end",
    .description =
        "Starts CMD, samples all its processes once per second (five times per second in the "
        "first two minutes), records the samples in a run folder together with the job's output "
        "and its marks, and prints a summary at the end.\n"
        "\n"
        "The run folder is ebb-runs/NAME-DATE in the working directory: trace.ebb (the "
        "recording), log.txt (the output), run.json (the facts of the summary). ebb-runs/latest "
        "links to the newest run.\n"
        "\n"
        "The guard stops the job before memory runs out: it warns, requests a checkpoint, waits "
        "for it while memory permits, sends SIGTERM, and finally sends SIGKILL. By default it "
        "enforces the job's effective limit (of a cgroup, the machine or an rlimit). With --limit "
        "it enforces that limit, and the kernel enforces it, too, if ebb may create a cgroup for "
        "the job. With --restart the job is restarted and continues from its checkpoint.\n"
        "\n"
        "A --config FILE contains options of the recording and the guard by their long names, "
        "one per line; # begins a comment:\n"
        "\n"
        "  limit = 24G\n"
        "  checkpoint-signal = USR1\n"
        "  restart\n"
        "  resume-args = --resume last\n"
        "\n"
        "The exit status is the job's own; 128 + N if signal N killed it; 124 if the guard "
        "stopped it and it was not restarted; 125 if ebb itself failed; 126 if CMD cannot be "
        "executed; 127 if CMD was not found; 3 if it exited with 0 but fails --fail-on. Problems "
        "of ebb itself, such as a full disk, never end the job.\n"
        "\n"
        "The environment of the job contains EBB_SOCKET (to which it can send marks), "
        "EBB_RUN_DIR, EBB_SEGMENT (how many times the job was restarted), EBB_RESUME (1 after a "
        "restart) and EBB_LIMIT_BYTES (the limit that the guard enforces). When the job ends, ebb "
        "also ends the processes that the job leaves behind.\n"
        "\n"
        "ebb puts a folder first in PYTHONPATH, so that PyTorch, the Hugging Face Trainer and "
        "Lightning report their steps and epochs by themselves; --no-shim or EBB_SHIM=0 in the "
        "environment disables that.\n"
        "\n"
        "ebb puts a library first in LD_PRELOAD, which samples the job's allocations with their "
        "Python and C stacks, so that `ebb heap` can show live and growing call sites; "
        "--no-heap or EBB_HEAP=0 in the environment disables that.",
    .examples = "ebb run -- python train.py --epochs 3\n"
                "ebb run --limit 80% --restart --resume-args '--resume last' -- python train.py\n"
                "ebb run --interval 200ms --name build -- make -j8\n"
                "ebb run --fail-on leak --junit ebb.xml -- python train.py --max-steps 300\n",
    .options = run_options_table,
    .options_size = sizeof(struct run_options),
    .error_status = 125,
    .stop_at_operand = true,
    .exec = run_exec,
};
