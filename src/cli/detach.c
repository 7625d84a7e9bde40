/* `ebb detach`: ends an `ebb attach`, or removes the hooks of one that was killed. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/span.h"
#include "cli/attach_processes.h"
#include "mark/receiver.h"
#include "proc/read.h"

enum { ASK_S = 90, REMOVE_S = 30 };

static void on_detach_mark(void *user, const struct mark *mark)
{
    struct attach_processes *p = user;
    attach_processes_mark(p, mark);
}

/* Makes the process run a script that removes the hooks. Waits only until the script has started:
 * the script sends its result to the socket of the killed `ebb attach`, and nobody reads that
 * socket any more. */
static int remove_hooks(struct loop *loop, struct attach_processes *p, struct err *err)
{
    struct mark_receiver *marks = NULL;
    struct attach_process *a = &p->at[0];
    int r = mark_receiver_new(loop, on_detach_mark, p, &marks, err);
    if (r < 0)
        return r;
    struct script s = {.folder = mark_receiver_folder(marks), .socket = mark_receiver_path(marks)};
    const uint64_t until_ns = clock_mono_ns() + REMOVE_S * NS_PER_S;
    a->phase = ATTACH_ON;
    attach_processes_stop(p, &s);
    while (attach_processes_check(p, clock_mono_ns()) && !a->has_run && clock_mono_ns() < until_ns)
        loop_once(loop, 50);
    if (!a->has_run)
        attach_processes_withdraw(p);
    if (a->phase == ATTACH_FAILED)
        r = err_set(err, -EIO, "process %d (%s): %s", (int)a->target.pid, a->target.name,
                    a->reason);
    mark_receiver_free(marks);
    return r;
}

/* True if the process has loaded the profiler's library, which stays loaded after a detach. */
static bool has_library(const struct attach_target *t)
{
    struct buf maps = {0};
    bool has = attach_target_file(t, "maps", ATTACH_MAPS_MAX, &maps) < 0 ||
               span_find((struct span){buf_str(&maps), maps.len}, "/libebb-heap.so");
    buf_fini(&maps);
    return has;
}

/* Refuses a process to which ebb was never attached. Python itself would refuse only when its main
 * thread next runs Python code. */
static int refuse_untouched(const struct attach_target *t, struct err *err)
{
    struct interpreter found;
    struct err ignored = {""};
    if (t->optin[0] || interpreter_find(t, &found, &ignored) < 0 ||
        !interpreter_is_untouched(t, &found) || has_library(t))
        return 0;
    return err_set(err, -ENOENT, "ebb is not attached to process %d (%s)", (int)t->pid, t->name);
}

static int detach_alone(const struct proc_root *root, int32_t pid, struct err *err)
{
    struct attach_processes p = {0};
    struct loop *loop = NULL;
    int r = attach_processes_open(root, pid, false, &p, err);
    if (r == 0)
        r = refuse_untouched(&p.at[0].target, err);
    if (r == 0)
        r = loop_new(&loop);
    if (r == 0)
        r = remove_hooks(loop, &p, err);
    attach_processes_fini(&p);
    loop_free(loop);
    return r;
}

static int detach_from(const struct proc_root *root, int32_t pid, struct err *err)
{
    struct proc_stat stat;
    char answer[CLAIM_TEXT_MAX];
    if (proc_read_stat(root, pid, &stat) < 0)
        return err_set(err, -ESRCH, "there is no process %d", (int)pid);
    int r = claim_ask(pid, stat.start_ticks, CLAIM_DETACH, ASK_S * NS_PER_S, answer);
    if (r == -ENOENT)
        return detach_alone(root, pid, err);
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the ebb that is attached to process %d does not answer", (int)pid);
    if (r < 0)
        return err_set(err, r, "another user's ebb is attached to process %d; use sudo ebb detach",
                       (int)pid);
    return 0;
}

static int detach_exec(const struct cli_call *call, struct err *err)
{
    struct proc_root root;
    int32_t pid;
    int r = cli_open_pid(call, &root, &pid, err);
    if (r < 0)
        return r;
    r = detach_from(&root, pid, err);
    proc_root_close(&root);
    return r;
}

const struct cli_command cmd_detach = {
    .name = "detach",
    .operands = "PID",
    .summary = "end ebb attach: remove its hooks from the running job",
    .description = "Ends the `ebb attach` that is attached to process PID. That `ebb attach` then "
                   "prints its summary. If `ebb attach` was killed, removes the hooks that it left "
                   "in the process. The job continues.",
    .examples = "ebb detach 4711\n",
    .exec = detach_exec,
};
