/* Runs the command of one rank, and connects it to the supervisor of its node. */
#include "cli/run_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "options/run_options.h"
#include "run/outcome.h"
#include "supervise/job_heap.h"
#include "supervise/lost.h"
#include "supervise/rank.h"
#include "supervise/spawn.h"

enum {
    TRIES = 50,
    TRY_MS = 20,
    /* time limit for the answer to hello; the supervisor may be slow to create its folders */
    HELLO_MS = 20000,
    /* time limit for the supervisor to end the recording after the last rank has exited */
    BYE_MS = 10000,
    WITNESS_MS = 100, /* time limit for the witness process to report a signal */
    /* maximum age of a witness report; an older one belongs to an earlier signal */
    WITNESS_OLD_S = 1,
};

struct rank_run {
    const struct run_rank *q;
    int link;    /* -1: no supervisor */
    int signals; /* signalfd */
    pid_t child;
    sigset_t before;
    struct rlimit nofile;
    struct {
        pid_t pid;
        int fd;
        /* time of the witness's last report of each signal; 0: no report, or it was already used */
        uint64_t seen_ns[NSIG];
    } witness;
    pid_t lost; /* pid of the process that records the death of the supervisor, or 0 */
    bool has_ended;
    int status; /* wait status of the child */
    json_t *bye;
};

/* ---- connecting to the supervisor ---- */

static void put_variable(const char *name, const json_t *value)
{
    if (json_is_string(value))
        setenv(name, json_string_value(value), 1);
    else
        unsetenv(name);
}

static const char *text_or_empty(const json_t *doc, const char *key)
{
    const char *text = json_string_value(json_object_get(doc, key));
    return text ? text : "";
}

static void take_environment(const json_t *doc)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(doc, "env"), name, value)
    {
        if (strncmp(name, "EBB_", 4) == 0)
            put_variable(name, value);
    }
    const struct job_heap_environment e = {
        .shim = text_or_empty(doc, "shim"),
        .library = text_or_empty(doc, "library"),
        .interval_bytes = (uint64_t)json_integer_value(json_object_get(doc, "interval")),
        .python = json_is_true(json_object_get(doc, "python"))};
    job_heap_set_environment(&e);
}

/* Sends hello to the supervisor. Returns 0 once the environment is set, or -errno. */
static int say_hello(const struct rank_place *p, int fd)
{
    json_t *doc =
        json_pack("{s:{s:i,s:i}}", "hello", "rank", (int)p->rank, "local_rank", (int)p->local_rank);
    int r = rank_link_send(fd, doc);
    if (r == 0)
        r = rank_link_receive(fd, HELLO_MS, &doc);
    if (r <= 0)
        return r == 0 ? -ETIMEDOUT : r;
    take_environment(doc);
    json_decref(doc);
    return 0;
}

/* Connects to the supervisor of this node. The first rank starts it. Returns an fd, -errno, or 0 if
 * an error was already printed. */
static int meet_supervisor(const struct run_rank *q)
{
    const struct timespec pause = {.tv_nsec = TRY_MS * (long)NS_PER_MS};
    for (int i = 0; i < TRIES; i++) {
        int fd = rank_link_join(q->place);
        int r = fd < 0 ? fd : say_hello(q->place, fd);
        if (r == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        if (r == -ETIMEDOUT || r == -EACCES)
            return r;
        int listen_fd = rank_link_lead(q->place);
        if (listen_fd >= 0) {
            r = q->start(q->user, listen_fd);
            close(listen_fd);
            if (r)
                return 0;
        } else if (listen_fd != -EADDRINUSE) {
            return listen_fd;
        } else {
            nanosleep(&pause, NULL);
        }
    }
    return -ECONNREFUSED;
}

/* ---- the death of the supervisor ----
 *
 * The other nodes wait until this node has recorded its end. If the supervisor was killed, the
 * sentinel records the end. If the sentinel was killed as well, the `ebb run` of a rank does so. A
 * child process writes the record, because access to a shared folder may hang, and the rank must
 * still exit. */

enum {
    JSON_MAX = 16 << 20,
    POLL_MS = 50,
    SENTINEL_MS = 1500, /* maximum wait for the sentinel, which writes at once */
    NEXT_RANK_MS = 200, /* additional wait per rank with a lower number */
    RANKS_WAITED = 5,
    WAIT_MS = 4000, /* maximum time that this rank waits for the child */
};

static bool is_end_recorded(int folder)
{
    struct outcome o = {0};
    bool has_ended =
        outcome_read_folder(folder, JSON_MAX, NULL, &o) == 0 && !outcome_is_running(&o);
    outcome_fini(&o);
    return has_ended;
}

static void record_lost(const char *run_dir, uint32_t local_rank)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    unsigned before = local_rank < RANKS_WAITED ? local_rank : RANKS_WAITED;
    uint64_t until_ns = clock_mono_ns() + (SENTINEL_MS + before * NEXT_RANK_MS) * NS_PER_MS;
    AUTO_CLOSE int folder = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    while (folder >= 0 && !is_end_recorded(folder)) {
        if (clock_mono_ns() >= until_ns) {
            const struct outcome_end end = lost_end(CAUSE_SENTINEL, 0);
            lost_write(folder, &end);
            return;
        }
        nanosleep(&pause, NULL);
    }
}

/* Starts the child that records the end of this node. The child first waits, because the sentinel
 * or a rank with a lower number may record the end meanwhile. Returns the child's pid, or 0 if
 * there is no run folder. */
static pid_t start_lost(uint32_t local_rank)
{
    const char *run_dir = getenv("EBB_RUN_DIR");
    if (!run_dir || !run_dir[0])
        return 0;
    pid_t pid = fork();
    if (pid > 0)
        return pid;
    if (pid < 0)
        return 0;
    prctl(PR_SET_NAME, "ebb-lost");
    for (int fd = 0; fd < 256; fd++) /* closes the rank's streams, because srun waits for that */
        close(fd);
    record_lost(run_dir, local_rank);
    _exit(0);
}

/* Waits for the child PID before this rank exits, because Slurm kills all remaining processes when
 * the last rank has exited. Does nothing if PID is 0. */
static void wait_lost(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    uint64_t until_ns = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0 && clock_mono_ns() < until_ns)
        nanosleep(&pause, NULL);
}

/* ---- signals ---- */

/* Selects the signals that this process handles. Signals of job control, such as SIGTSTP, are left
 * out, because the terminal sends them to parent and child alike. Signals of a crash in this
 * process are left out, too. */
static void forwarded_signals(sigset_t *ret)
{
    static const int left_alone[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV,
                                     SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP};
    sigfillset(ret);
    for (size_t i = 0; i < sizeof left_alone / sizeof *left_alone; i++)
        sigdelset(ret, left_alone[i]);
}

/* Starts the witness, a process that reports which signals it receives. Depending on their
 * configuration, Slurm and torchrun signal one process, its group or all its descendants. A signal
 * that the witness received has also reached the command, and must not be sent to the command
 * again. */
static void start_witness(struct rank_run *run)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "ebb-signals");
        for (int fd = 0; fd < 256; fd++)
            if (fd != pair[1])
                close(fd);
        for (int signo; sigwait(&all, &signo) == 0;) {
            unsigned char byte = (unsigned char)signo;
            (void)!write(pair[1], &byte, 1);
        }
        _exit(0);
    }
    close(pair[1]);
    run->witness.pid = pid;
    run->witness.fd = pair[0];
}

static void end_witness(struct rank_run *run)
{
    if (run->witness.pid > 0) {
        kill(run->witness.pid, SIGKILL);
        waitpid(run->witness.pid, NULL, 0);
    }
    run->witness.pid = 0;
    close_fd(&run->witness.fd);
}

static bool witness_saw(struct rank_run *run, int signo)
{
    uint64_t until_ns = clock_mono_ns() + WITNESS_MS * NS_PER_MS, now_ns;
    while ((now_ns = clock_mono_ns()) < until_ns && run->witness.fd >= 0) {
        unsigned char bytes[64];
        ssize_t n = read(run->witness.fd, bytes, sizeof bytes);
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] < NSIG)
                run->witness.seen_ns[bytes[i]] = now_ns;
        uint64_t seen_ns = run->witness.seen_ns[signo];
        run->witness.seen_ns[signo] = 0;
        if (seen_ns && now_ns - seen_ns < WITNESS_OLD_S * NS_PER_S)
            return true;
        struct pollfd p = {.fd = run->witness.fd, .events = POLLIN};
        poll(&p, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
    }
    return false;
}

static void handle_signal(struct rank_run *run, const struct signalfd_siginfo *info)
{
    int signo = (int)info->ssi_signo;
    int status;
    if (signo == SIGCHLD) {
        if (waitpid(run->child, &status, WNOHANG) == run->child) {
            run->has_ended = true;
            run->status = status;
        }
        return;
    }
    if (signo == SIGUSR1 && run->q->options->guard.requeue && run->link >= 0) {
        rank_link_send(run->link, json_pack("{s:i}", "signal", signo));
        return;
    }
    /* the child is not reaped yet, so its pid cannot have been reused */
    if (!run->has_ended && !witness_saw(run, signo))
        kill(run->child, signo);
}

/* ---- the command ---- */

static _Noreturn void be_command(const struct rank_run *run, char *const *shell_argv)
{
    const struct run_rank *q = run->q;
    setrlimit(RLIMIT_NOFILE, &run->nofile);
    /* the command must not outlive a killed `ebb run` */
    if (!q->options->guard.keep_on_exit)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (q->options->guard.requeue)
        /* Slurm may send SIGUSR1 to every process, and the signal would kill a command that does
         * not handle it */
        signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_SETMASK, &run->before, NULL);
    spawn_exec(q->path, q->argv, shell_argv);
    int error = errno;
    cli_failf(0, "\"%s\" cannot be executed: %s", q->argv[0], strerror(error));
    _exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

static int start_command(struct rank_run *run)
{
    AUTO_FREE char **shell_argv = spawn_shell_argv(run->q->path, run->q->argv);
    if (!shell_argv)
        return -ENOMEM;
    run->child = fork();
    if (run->child < 0)
        return -errno;
    if (run->child == 0)
        be_command(run, shell_argv);
    if (run->link >= 0)
        rank_link_send(run->link, json_pack("{s:i}", "started", (int)run->child));
    return 0;
}

static void lose_link(struct rank_run *run)
{
    close_fd(&run->link);
    if (!run->bye)
        run->lost = start_lost(run->q->place->local_rank);
    if (!run->has_ended && run->q->place->local_rank == 0)
        cli_say("the supervisor of node %u was killed; its ranks continue without a recording and "
                "without a guard",
                run->q->place->node);
}

static void take_message(struct rank_run *run)
{
    json_t *doc = NULL;
    int r = rank_link_receive(run->link, 0, &doc);
    if (r < 0)
        lose_link(run);
    if (r <= 0)
        return;
    const char *sentence = json_string_value(json_object_get(doc, "say"));
    if (sentence && !run->q->options->quiet)
        cli_say("node %u: %s", run->q->place->node, sentence);
    if (json_object_get(doc, "bye")) {
        json_decref(run->bye);
        run->bye = json_incref(doc);
    }
    json_decref(doc);
}

/* Waits for a signal or a message. Returns false if neither arrives within TIMEOUT_MS. */
static bool rank_turn(struct rank_run *run, int timeout_ms)
{
    struct pollfd p[2] = {{.fd = run->signals, .events = POLLIN},
                          {.fd = run->link, .events = POLLIN}};
    struct signalfd_siginfo info;
    if (poll(p, 2, timeout_ms) == 0)
        return false;
    if (p[0].revents && read(run->signals, &info, sizeof info) == (ssize_t)sizeof info)
        handle_signal(run, &info);
    if (p[1].revents && run->link >= 0)
        take_message(run);
    return true;
}

/* ---- the end ---- */

static void report_end(struct rank_run *run)
{
    uint64_t until_ns = clock_mono_ns() + BYE_MS * NS_PER_MS, now_ns;
    if (run->link >= 0 && rank_link_send(run->link, json_pack("{s:i}", "ended", run->status)) < 0)
        lose_link(run);
    while (run->link >= 0 && !run->bye && (now_ns = clock_mono_ns()) < until_ns)
        rank_turn(run, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
    if (run->link >= 0 && !run->bye) /* only the last rank of a node waits for its supervisor */
        cli_say("the recording of node %u is incomplete: its supervisor did not finish it within "
                "%d s; access to the run folder may hang",
                run->q->place->node, BYE_MS / 1000);
    wait_lost(run->lost);
}

/* Ends this process in the same way as the command ended. */
static int end_alike(const struct rank_run *run)
{
    const json_t *status = json_object_get(run->bye, "status");
    if (json_is_integer(status))
        return (int)json_integer_value(status);
    if (!WIFSIGNALED(run->status))
        return WEXITSTATUS(run->status);
    int signo = WTERMSIG(run->status);
    const struct rlimit no_core = {0, 0};
    sigset_t only;
    setrlimit(RLIMIT_CORE, &no_core); /* this process must not write a second core dump */
    signal(signo, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, signo);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    kill(getpid(), signo);
    return 128 + signo;
}

static int run_command(struct rank_run *run)
{
    start_witness(run);
    int r = start_command(run);
    if (r < 0)
        return cli_failf(125, "cannot start a process: %s", strerror(-r));
    while (!run->has_ended)
        rank_turn(run, -1);
    end_witness(run);
    report_end(run);
    run_rank_end(run->q->options, run->q->place, run->bye, run->status != 0);
    return end_alike(run);
}

int run_rank(const struct run_rank *q)
{
    struct rank_run run = {.q = q, .link = -1, .signals = -1, .witness.fd = -1};
    sigset_t mask;
    getrlimit(RLIMIT_NOFILE, &run.nofile);
    forwarded_signals(&mask);
    sigprocmask(SIG_BLOCK, &mask, &run.before);
    run.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (run.signals < 0)
        return cli_failf(125, "cannot handle signals: %s", strerror(errno));
    run.link = meet_supervisor(q);
    if (run.link < 0)
        cli_say(
            "rank %u runs without a recording: the supervisor of its node cannot be reached: %s",
            q->place->rank, strerror(-run.link));
    if (run.link <= 0)
        run.link = -1;
    int status = run_command(&run);
    json_decref(run.bye);
    close_fd(&run.link);
    close_fd(&run.signals);
    return status;
}
