/* Loads ebb's hooks into processes and removes them again. */
#include "cli/attach_processes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "mark/mark.h"
#include "proc/tree.h"

enum { LATE_S = 5, PROCESSES_MAX = 1024 };

/* ---- opening ---- */

static int open_process(const struct proc_root *root, int32_t pid, struct attach_processes *p,
                        struct err *err)
{
    struct attach_target t;
    struct interpreter found;
    int r = attach_target_open(root, pid, ATTACH_WRITE, &t, err);
    if (r < 0)
        return r;
    r = t.optin[0] ? 0 : interpreter_find(&t, &found, err);
    if (r < 0 && r != -EAGAIN && r != -EBADMSG) { /* EAGAIN and EBADMSG may be temporary */
        attach_target_close(&t);
        return r;
    }
    struct attach_process *list = reallocarray(p->at, p->count + 1, sizeof *list);
    if (!list) {
        attach_target_close(&t);
        return err_set(err, -ENOMEM, "out of memory");
    }
    p->at = list;
    p->at[p->count++] = (struct attach_process){.target = t, .request_fd = -1};
    return 0;
}

/* Opens the Python processes that descend from PID. Other processes are skipped. */
static void open_below(const struct proc_root *root, int32_t pid, struct attach_processes *p)
{
    struct proc_tree *tree = NULL;
    struct err err = {""};
    if (proc_tree_new(root, NULL, NULL, &tree) < 0)
        return;
    if (proc_tree_add(tree, pid, clock_mono_ns(), &err) == 0)
        for (size_t i = 0; i < proc_tree_count(tree) && p->count < PROCESSES_MAX; i++) {
            int32_t other = proc_tree_at(tree, i)->info.id.pid;
            if (other != pid && other != (int32_t)getpid())
                (void)open_process(root, other, p, &err);
        }
    proc_tree_free(tree);
}

int attach_processes_open(const struct proc_root *root, int32_t pid, bool all,
                          struct attach_processes *ret, struct err *err)
{
    struct attach_processes p = {0};
    int r = open_process(root, pid, &p, err);
    /* with --all, PID may be a launcher that is not a Python process */
    if (r < 0 && !(all && r == -ENOENT))
        return r;
    if (all)
        open_below(root, pid, &p);
    if (p.count == 0)
        return r;
    *ret = p;
    return 0;
}

static void close_request(struct attach_process *a)
{
    if (a->request_fd >= 0)
        close(a->request_fd);
    a->request_fd = -1;
}

void attach_processes_fini(struct attach_processes *p)
{
    for (size_t i = 0; i < p->count; i++) {
        close_request(&p->at[i]);
        claim_free(p->at[i].claim);
        attach_target_close(&p->at[i].target);
    }
    free(p->at);
    *p = (struct attach_processes){0};
}

/* ---- scripts ---- */

static void attach_process_fail(struct attach_process *a, const char *reason)
{
    a->phase = ATTACH_FAILED;
    snprintf(a->reason, sizeof a->reason, "%s", reason);
}

static int hand_over_script(struct attach_process *a, const struct script *s, bool is_stop,
                            struct err *err)
{
    char path[SCRIPT_PATH_MAX];
    int r = is_stop ? script_write_stop(s, path, err) : script_write_start(s, path, err);
    if (r == 0)
        r = inject_script(&a->target, path, &a->inject, err);
    if (r == 0)
        a->inject.target = &a->target;
    return r;
}

static int hand_over_request(struct attach_process *a, const struct script *s, bool is_stop,
                             struct err *err)
{
    const struct attach_target *t = &a->target;
    close_request(a);
    int fd = is_stop ? optin_request_stop(t, err) : optin_request_start(t, s, err);
    if (fd >= 0)
        a->request_fd = fd;
    return fd < 0 ? fd : 0;
}

static void hand_over(struct attach_processes *p, struct attach_process *a, struct script *s,
                      bool is_stop)
{
    struct err err = {""};
    s->pid = a->target.pid;
    int r = a->target.optin[0] ? hand_over_request(a, s, is_stop, &err)
                               : hand_over_script(a, s, is_stop, &err);
    if (r < 0) {
        attach_process_fail(a, err.text);
        if (!attach_target_lives(&a->target))
            a->phase = ATTACH_OFF;
        return;
    }
    if (a->inject.pause_ns > p->pause_ns)
        p->pause_ns = a->inject.pause_ns;
    a->phase = ATTACH_WAITING;
    a->is_stopping = is_stop;
    a->is_late = a->has_run = a->has_answered = false;
    a->since_ns = clock_mono_ns();
}

static size_t hand_over_all(struct attach_processes *p, struct script *s, enum attach_phase from,
                            bool is_stop)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i].phase == from)
            hand_over(p, &p->at[i], s, is_stop);
    return attach_processes_in(p, ATTACH_WAITING);
}

size_t attach_processes_start(struct attach_processes *p, struct script *s)
{
    return hand_over_all(p, s, ATTACH_IDLE, false);
}

size_t attach_processes_stop(struct attach_processes *p, struct script *s)
{
    return hand_over_all(p, s, ATTACH_ON, true);
}

static void take_reason(struct attach_process *a, const struct mark *mark)
{
    size_t len;
    const char *reason = mark_get(mark, "REASON", &len);
    if (reason)
        snprintf(a->reason, sizeof a->reason, "%.*s", (int)len, reason);
}

/* Handles a mark about the script that process A runs. The script sends KIND=attach when it starts.
 * ebb._attach, which the script calls, sends the result. */
static void take_mark(struct attach_process *a, const struct mark *mark)
{
    bool is_script = mark_is(mark, "KIND", "attach");
    bool has_failed =
        mark_is(mark, is_script ? "STATUS" : "KIND", is_script ? "failed" : "refused");
    bool is_answer = mark_is(mark, "KIND", a->is_stopping ? "detached" : "attached");
    if (a->phase != ATTACH_WAITING || !(is_script || has_failed || is_answer))
        return;
    take_reason(a, mark);
    if (is_script && !a->target.optin[0])
        inject_done(&a->inject);
    a->has_run |= is_script;
    a->has_answered |= is_answer;
    if (is_answer)
        a->has_heap = mark_is(mark, "HEAP", "1");
    if (has_failed)
        a->phase = ATTACH_FAILED;
    else if (a->has_run && a->has_answered)
        a->phase = a->is_stopping ? ATTACH_OFF : ATTACH_ON;
}

void attach_processes_mark(struct attach_processes *p, const struct mark *mark)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i].target.pid == mark->pid)
            take_mark(&p->at[i], mark);
}

/* Reads the answer of a process that was started with EBB_ATTACH=1. */
static void take_answer(struct attach_process *a)
{
    char text[OPTIN_ANSWER_MAX];
    struct mark mark;
    ssize_t n = a->request_fd < 0 ? -EAGAIN : optin_answer(a->request_fd, text);
    if (n == -EAGAIN)
        return;
    close_request(a);
    if (n > 0 && mark_parse(text, (size_t)n, &mark) == 0)
        take_mark(a, &mark);
    else if (a->phase == ATTACH_WAITING)
        attach_process_fail(a, "the process closed the connection without an answer");
}

/* Notifies the user that a process has not answered yet. Called once per process. */
static void report_late(struct attach_process *a)
{
    a->is_late = true;
    if (a->target.optin[0])
        cli_say("process %d (%s) does not answer: a call of C code may hold Python's lock (GIL); "
                "still waiting (Ctrl-C gives up)",
                (int)a->target.pid, a->target.name);
    else
        cli_say("process %d (%s) runs no Python code: its main thread is in a long C call (ebb "
                "stack %d shows where); still waiting (Ctrl-C gives up)",
                (int)a->target.pid, a->target.name, (int)a->target.pid);
}

size_t attach_processes_check(struct attach_processes *p, uint64_t now_ns)
{
    struct err err = {""};
    for (size_t i = 0; i < p->count; i++) {
        struct attach_process *a = &p->at[i];
        take_answer(a);
        if (a->phase == ATTACH_WAITING && !attach_target_lives(&a->target)) {
            a->phase = ATTACH_OFF;
            (void)attach_target_gone(&a->target, &err);
            snprintf(a->reason, sizeof a->reason, "%s", err.text);
        }
        if (a->phase == ATTACH_WAITING && !a->has_run && !a->is_late &&
            now_ns - a->since_ns >= LATE_S * NS_PER_S)
            report_late(a);
    }
    return attach_processes_in(p, ATTACH_WAITING);
}

void attach_processes_withdraw(struct attach_processes *p)
{
    for (size_t i = 0; i < p->count; i++) {
        struct attach_process *a = &p->at[i];
        if (a->phase != ATTACH_WAITING || a->has_run)
            continue;
        if (a->target.optin[0]) {
            close_request(a);
            attach_process_fail(a, "the process does not answer");
        } else if (inject_withdraw(&a->inject) != -EALREADY) {
            attach_process_fail(a, "the main thread stayed in a C call and ran no Python code; "
                                   "nothing was changed, try again later");
        }
    }
}

void attach_processes_give_up(struct attach_processes *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i].phase == ATTACH_WAITING)
            attach_process_fail(&p->at[i], "ebb's hooks did not answer");
}

size_t attach_processes_in(const struct attach_processes *p, enum attach_phase phase)
{
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++)
        n += p->at[i].phase == phase;
    return n;
}
