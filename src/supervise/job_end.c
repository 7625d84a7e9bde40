/* Signals the job, reaps its processes, and ends those that are left. */
#include "supervise/job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/text.h"
#include "guard/sweep.h"

enum {
    SETTLE_MS = 1000, /* time for remaining processes to exit by themselves */
    DRAIN_MS = 2000,  /* maximum wait for the rest of the job's output */
    SWEEP_MS = 20,    /* interval between two sweeps, each of which kills all remaining processes */
    KILL_MS = 200,    /* maximum duration of one sweep, because the loop has other work to do */
};

/* True if a terminal sends this signal to the whole process group. */
static bool is_group_signal(int signo)
{
    return signo == SIGINT || signo == SIGQUIT || signo == SIGHUP || signo == SIGTSTP ||
           signo == SIGCONT;
}

/* True if the signal is meant to end the job. */
static bool is_end_signal(int signo)
{
    return signo == SIGTERM || signo == SIGINT || signo == SIGQUIT || signo == SIGHUP;
}

void job_signal(struct job *j, int signo)
{
    const struct proc_root *root = j->options->engine.root;
    if (j->options->node) /* each rank receives signals through its own `ebb run` */
        return;
    /* prevents a restart, also of a job that has already exited */
    if (is_end_signal(signo))
        j->now.is_last = true;
    if (j->now.exited || j->now.pid <= 0)
        return;
    /* The pid is that of our own child, which has not been reaped yet, so neither the pid nor its
     * process group can have been reused. */
    if (!is_group_signal(signo))
        kill(j->now.pid, signo);
    else if (guard_signal_below(root, (int32_t)getpid(), (int32_t)j->now.pid, signo) < 0)
        kill(-j->now.pid, signo);
    if (signo != SIGTSTP && signo != SIGCONT)
        j->now.operator_signal = signo;
    char text[64];
    snprintf(text, sizeof text, "{\"signal\":%d,\"by\":\"operator\"}", signo);
    engine_note(j->engine, "signal", text);
}

void job_keys(struct job *j, const char *keys, size_t len)
{
    const struct termios *t = &j->options->tty.termios;
    if (!(j->now.exited || job_is_guard_stop(&j->now)) || !(t->c_lflag & ISIG))
        return;
    if (memchr(keys, t->c_cc[VINTR], len) || memchr(keys, t->c_cc[VQUIT], len))
        j->now.is_last = true;
}

/* Signals the job's process group atomically, including children that are being forked. */
static void signal_group(const struct job *j, int signo)
{
    if (j->now.pidfd >= 0)
        guard_signal_group(j->now.pidfd, signo);
}

/* Stops the job's process group with SIGSTOP if the job has many processes, because signalling
 * takes minutes while hundreds of processes keep forking. Returns true if the group was stopped. A
 * job with few processes is not stopped, because its processes could notice the stop. */
static bool stop_crowd(const struct job *j)
{
    enum { CROWD = 64 };
    bool is_crowd = proc_tree_count(engine_tree(j->engine)) > CROWD;
    if (is_crowd)
        signal_group(j, SIGSTOP);
    return is_crowd;
}

/* ---- stop signals, exit and remaining processes ---- */

/* Called when the job was stopped by a signal or has continued. After Ctrl-Z the client stops as
 * well, so that the shell gets the terminal. When the job continues, the client continues as well.
 * SIGSTOP does not affect the client. */
static void job_paused(struct job *j, int status)
{
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP) {
        j->client.is_stopped = true;
        channel_queue(&j->client.channel, CHANNEL_STOPPED, "", 0);
        job_client_flush(j);
    } else if (WIFCONTINUED(status)) {
        job_client_wake(j);
    }
}

/* Stores the peak memory of a reaped child, unless it is below the supervisor's own peak. Before
 * its exec, the child was a copy of the supervisor, so a small ru_maxrss may be the supervisor's
 * memory. */
static void keep_peak(struct job *j, const struct rusage *usage)
{
    struct rusage own;
    if (j->engine && getrusage(RUSAGE_SELF, &own) == 0 && usage->ru_maxrss > own.ru_maxrss)
        peak_process(engine_segment_peak(j->engine), (uint64_t)usage->ru_maxrss * 1024);
}

/* Reaps children. Returns true if any child is still alive. */
static bool reap_children(void *user)
{
    struct job *j = user;
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0) {
        if (pid != j->now.pid) {
            keep_peak(j, &usage);
            job_guard_reaped(j, pid, status);
            job_node_reaped(j, pid, status);
            continue;
        }
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
            job_paused(j, status);
        } else {
            j->now.exited = true;
            j->now.status = j->ranks ? job_ranks_status(j) : status;
            j->now.usage = usage;
            keep_peak(j, &usage);
            j->now.ended_ns = clock_mono_ns();
            job_guard_exited(j);
        }
    }
    return !(pid < 0 && errno == ECHILD);
}

static void finish_if_done(struct job *j, bool children)
{
    if (j->now.ending != ENDED && j->now.exited && !children && !job_streams_open(&j->output)) {
        j->now.ending = ENDED;
        loop_disarm_timer(j->end.sweep_timer);
        job_segment_over(j);
    }
}

/* Reports, only once, that a process has survived SIGKILL. This explains why ebb does not exit. */
static void report_stuck(struct job *j, uint64_t now_ns)
{
    struct proc_stat stat;
    char name[64];
    int32_t pid;
    if (j->end.stuck[0] ||
        !guard_kill_stuck(&j->end.kill, j->options->engine.root, now_ns, &stat, &pid))
        return;
    text_fit(name, sizeof name, 32, stat.comm, stat.comm_len);
    snprintf(j->end.stuck, sizeof j->end.stuck,
             "waiting for process %d (%s), which has survived SIGKILL (state %c)", pid, name,
             stat.state);
    job_notify(j, j->end.stuck);
}

/* Kills all processes below the supervisor. Returns the time until the next sweep is due. */
static uint64_t kill_below(struct job *j, uint64_t now_ns)
{
    guard_cgroup_kill(&j->guard.cgroup);
    j->end.is_blind = guard_kill_below(&j->end.kill, j->options->engine.root,
                                       now_ns + KILL_MS * NS_PER_MS, reap_children, j) < 0;
    report_stuck(j, now_ns);
    return j->end.is_blind || j->end.kill.wait_ns < SWEEP_MS * NS_PER_MS ? SWEEP_MS * NS_PER_MS
                                                                         : j->end.kill.wait_ns;
}

static void on_sweep(void *user, uint64_t now_ns)
{
    struct job *j = user;
    uint64_t wait_ns = SWEEP_MS * NS_PER_MS;
    if (j->now.ending == KILLING)
        wait_ns = kill_below(j, now_ns);
    if (j->end.is_blind && !j->now.exited)
        kill(-j->now.pid, SIGKILL);
    bool children = reap_children(j) && !(j->end.is_blind && j->now.exited);
    if (!children && j->now.exited && j->now.ending < DRAINING) {
        j->now.ending = DRAINING;
        j->now.deadline_ns = now_ns + DRAIN_MS * NS_PER_MS;
        job_streams_drain(j);
    }
    if (j->now.ending == DRAINING && now_ns >= j->now.deadline_ns)
        job_streams_close(&j->output);
    if (j->now.ending == TERMINATING && now_ns >= j->now.deadline_ns)
        job_begin_ending(j, KILLING);
    if (j->now.ending == SETTLING && now_ns >= j->now.deadline_ns)
        job_begin_ending(j, TERMINATING);
    loop_set_timer(j->end.sweep_timer, clock_mono_ns() + wait_ns, 0);
    finish_if_done(j, children);
}

void job_begin_ending(struct job *j, enum job_ending how)
{
    const struct proc_root *root = j->options->engine.root;
    int32_t self = (int32_t)getpid();
    uint64_t now_ns = clock_mono_ns();
    /* an attached job continues, even if the guard has killed some of its processes */
    if (j->now.ending >= how || j->is_attached)
        return;
    j->now.ending = how;
    if (how == SETTLING) {
        j->now.deadline_ns = now_ns + SETTLE_MS * NS_PER_MS;
    } else if (how == TERMINATING) {
        bool is_stopped = stop_crowd(j);
        int count = guard_signal_below(root, self, 0, SIGTERM);
        guard_signal_below(root, self, 0, SIGCONT);
        if (is_stopped)
            signal_group(j, SIGCONT);
        if (j->now.exited && count > 0)
            j->now.left_behind = (unsigned)count;
        if (count < 0 && !j->now.exited)
            kill(-j->now.pid, SIGTERM);
        j->now.deadline_ns = now_ns + j->options->grace_ns;
    } else if (how == KILLING) {
        if (j->ranks)
            job_ranks_kill(j);
        signal_group(j, SIGSTOP);
        guard_kill_fini(&j->end.kill);
        j->end.stuck[0] = '\0';
    }
    loop_set_timer(j->end.sweep_timer, now_ns, 0);
    job_control_state(j);
}

void job_term(struct job *j)
{
    const struct proc_root *root = j->options->engine.root;
    struct proc_tree *tree = engine_tree(j->engine);
    bool is_stopped = stop_crowd(j);
    int count = 0;
    for (size_t i = 0; i < proc_tree_count(tree); i++) {
        const struct process_info *p = &proc_tree_at(tree, i)->info;
        if (p->role == ROLE_MAIN || p->role == ROLE_LAUNCHER || p->role == ROLE_OTHER)
            count += guard_signal(root, &p->id, SIGTERM) == 0;
    }
    if (j->is_attached)
        return;
    if (count == 0 && !j->now.exited)
        kill(j->now.pid, SIGTERM);
    /* processes stopped with SIGSTOP must run in order to handle SIGTERM */
    guard_signal_below(root, (int32_t)getpid(), 0, SIGCONT);
    if (is_stopped)
        signal_group(j, SIGCONT);
}

/* ---- cancelling ---- */

static void on_cancel(void *user, uint64_t now_ns)
{
    struct job *j = user;
    (void)now_ns;
    job_begin_ending(j, KILLING);
}

void job_cancel(struct job *j, const char *reason, size_t reason_len, uint64_t grace_ns)
{
    bool is_first = j->end.cancel_deadline_ns == 0;
    uint64_t now_ns = clock_mono_ns();
    uint64_t deadline_ns = grace_ns > UINT64_MAX / 4 ? UINT64_MAX / 2 : now_ns + grace_ns;
    /* a job that exited before this request keeps its cause */
    if (is_first && !j->now.exited) {
        char why[160];
        int cut = reason_len < sizeof why ? (int)reason_len : (int)sizeof why;
        snprintf(why, sizeof why, "cancelled%s%.*s", cut ? ": " : "", cut, reason);
        job_set_cause(&j->now, CAUSE_CANCELLED, why);
    }
    j->now.is_last = true;
    if (is_first || deadline_ns < j->end.cancel_deadline_ns) {
        j->end.cancel_deadline_ns = deadline_ns;
        loop_set_timer(j->end.cancel_timer, deadline_ns, 0);
    }
    if (is_first && !j->now.exited && j->now.ending == RUNNING) {
        char text[64];
        snprintf(text, sizeof text, "{\"signal\":%d,\"by\":\"cancel\"}", SIGTERM);
        engine_note(j->engine, "signal", text);
        job_term(j);
    }
    job_control_state(j);
}

/* ---- signals to the supervisor ---- */

static void on_child(void *user, const struct signalfd_siginfo *info)
{
    struct job *j = user;
    (void)info;
    bool children = reap_children(j);
    if (j->now.exited)
        job_begin_ending(j, SETTLING);
    if (j->now.ending == KILLING) /* a child has exited, so the next sweep starts at once */
        loop_set_timer(j->end.sweep_timer, clock_mono_ns(), 0);
    finish_if_done(j, children);
}

/* Forwards to the job a signal that the supervisor received. The supervisor exits after the job. */
static void on_own_signal(void *user, const struct signalfd_siginfo *info)
{
    /* When the job's terminal is closed, the kernel sends SIGHUP to the session leader. This is not
     * a request to end the job. */
    if (info->ssi_signo == SIGHUP && info->ssi_code == SI_KERNEL)
        return;
    job_signal(user, (int)info->ssi_signo);
}

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

int job_signals_start(struct job *j)
{
    int r = loop_add_signal(j->loop, SIGCHLD, on_child, j);
    for (size_t i = 0; r == 0 && i < sizeof passed_on / sizeof *passed_on; i++)
        r = loop_add_signal(j->loop, passed_on[i], on_own_signal, j);
    if (r == 0) /* creates the timerfds now, because later there may be no free fd */
        r = loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_sweep, j, &j->end.sweep_timer);
    if (r == 0)
        r = loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_cancel, j, &j->end.cancel_timer);
    return r;
}

void job_signals_ignore(void)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        signal(passed_on[i], SIG_IGN);
}
