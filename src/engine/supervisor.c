/* A job's life on the event loop: start, output, signals, the end of everything below. */
#include "engine/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "engine/channel.h"
#include "engine/spawn.h"
#include "guard/sentinel.h"
#include "guard/sweep.h"
#include "mark/receiver.h"
#include "trace/sink.h"
#include "version.h"

enum {
    CLIENT_BACKLOG = 256 << 10, /* unread output before the job has to wait */
    LOG_BACKLOG = 4 << 20,      /* unwritten log before it is dropped */
    SETTLE_MS = 1000,           /* what the job left may end by itself */
    COMMAND_MAX = 64 << 10,     /* of the job's command, in run.json */
    WAKE_MS = 50,               /* between two tries to wake the client */
    DRAIN_MS = 2000,            /* its last output may still be on the way */
};

enum ending { RUNNING, SETTLING, TERMINATING, KILLING, DRAINING, ENDED };

struct stream {
    struct supervisor *s;
    int fd;
    enum channel_type type;
    struct loop_source *source;
};

struct supervisor {
    const struct supervisor_options *options;
    struct loop *loop;
    struct engine *engine;
    struct mark_receiver *marks;
    struct channel client;
    struct loop_source *client_source, *sweep_timer, *wake_timer, *log_source;
    int client_pidfd;    /* to wake it when the job goes on after a stop */
    bool client_stopped; /* it was told to stop, and has not said that it goes on */
    bool client_gone;
    struct stream streams[3];
    bool paused; /* output waits for the client */
    struct buf input;
    struct sink *log;
    uint64_t log_bytes;
    bool said_log;
    pid_t pid; /* the job's first process; its process group has the same number */
    bool exited;
    int status; /* as wait gives it */
    struct rusage usage;
    int exec_error;
    struct err failure;  /* why we ourselves could not start it */
    struct err no_marks; /* why there is no socket for marks */
    enum ending ending;
    bool blind; /* /proc is another namespace's: only our own child can be reached */
    uint64_t deadline_ns;
    unsigned left_behind;
    const char *ended_by; /* NULL: by itself */
    uint64_t started_ns, started_wall_ns, ended_ns;
    struct sentinel_note *note;
};

/* ---- speaking to the client ---- */

static void client_want(struct supervisor *s)
{
    if (s->client_source)
        loop_change_fd(s->client_source, EPOLLIN | (s->client.out.len ? EPOLLOUT : 0u));
}

/* What we wait for on a stream: output unless the client is behind, room where input waits. */
static void stream_want(struct stream *st)
{
    struct supervisor *s = st->s;
    bool writes = st == &s->streams[0] && s->input.len;
    if (st->source)
        loop_change_fd(st->source, (s->paused ? 0u : EPOLLIN) | (writes ? EPOLLOUT : 0u));
}

static void streams_pause(struct supervisor *s, bool pause)
{
    if (s->paused == pause)
        return;
    s->paused = pause;
    for (size_t i = 0; i < 3; i++)
        stream_want(&s->streams[i]);
}

static void begin_ending(struct supervisor *s, enum ending how);

static void client_lost(struct supervisor *s)
{
    loop_remove(s->client_source);
    s->client_source = NULL;
    channel_fini(&s->client);
    s->client_gone = true;
    streams_pause(s, false);
    if (s->ending == RUNNING) {
        s->ended_by = "the death of ebb run";
        begin_ending(s, TERMINATING);
    }
}

static void client_flush(struct supervisor *s)
{
    if (s->client_gone)
        return;
    if (channel_flush(&s->client) < 0) {
        client_lost(s);
        return;
    }
    streams_pause(s, s->client.out.len > CLIENT_BACKLOG);
    client_want(s);
}

static void client_say(void *user, const char *sentence)
{
    struct supervisor *s = user;
    channel_queue(&s->client, CHANNEL_SAY, sentence, strlen(sentence));
    client_flush(s);
}

/* ---- the job's output ---- */

static void log_add(struct supervisor *s, const char *data, size_t len)
{
    if (!s->log)
        return;
    if (sink_append(s->log, data, len) == 0) {
        s->log_bytes += len;
        return;
    }
    if (!s->said_log)
        client_say(s, "log.txt cannot be written as fast as the job writes: some of it is missing");
    s->said_log = true;
}

static void on_log_trouble(void *user, int fd, uint32_t events)
{
    struct supervisor *s = user;
    struct sink_status status;
    char sentence[160];
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    sink_status(s->log, &status);
    snprintf(sentence, sizeof sentence,
             "cannot write log.txt: %s; the job goes on, and its output still comes here",
             strerror(-status.first_error));
    if (!s->said_log)
        client_say(s, sentence);
    s->said_log = true;
}

static void stream_close(struct stream *st)
{
    loop_remove(st->source);
    st->source = NULL;
    if (st->fd >= 0)
        close(st->fd);
    st->fd = -1;
}

/* The job has let go of its terminal, but may open it again as /dev/tty: closing our side would
 * hang it up for good. */
static void terminal_let_go(struct stream *st)
{
    loop_remove(st->source);
    st->source = NULL;
}

static void input_write(struct supervisor *s);

static void on_output(void *user, int fd, uint32_t events)
{
    struct stream *st = user;
    struct supervisor *s = st->s;
    char data[32768];
    if (events & EPOLLOUT)
        input_write(s);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = read(fd, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* 0, or EIO of a terminal that nobody has open any more */
        if (st == &s->streams[0] && !s->exited)
            terminal_let_go(st);
        else
            stream_close(st);
        return;
    }
    const struct supervisor_tty *tty = &s->options->tty;
    if (st != &s->streams[0] || tty->out || tty->err) /* else it is but the echo of what is typed */
        log_add(s, data, (size_t)n);
    channel_queue(&s->client, st->type, data, (size_t)n);
    client_flush(s);
}

/* Somebody of the job has its terminal open again. */
static void terminal_look(struct supervisor *s)
{
    struct stream *st = &s->streams[0];
    struct pollfd p = {.fd = st->fd, .events = POLLIN};
    if (st->fd < 0 || st->source || (poll(&p, 1, 0) >= 0 && p.revents & POLLHUP))
        return;
    if (loop_add_fd(s->loop, st->fd, EPOLLIN, on_output, st, &st->source) == 0)
        stream_want(st);
}

static int streams_start(struct supervisor *s, const struct spawn_streams *streams)
{
    const int fds[] = {streams->terminal, streams->out, streams->err};
    const enum channel_type types[] = {CHANNEL_TERMINAL, CHANNEL_OUT, CHANNEL_ERR};
    for (size_t i = 0; i < 3; i++) {
        struct stream *st = &s->streams[i];
        *st = (struct stream){.s = s, .fd = fds[i], .type = types[i]};
        if (st->fd < 0)
            continue;
        int r = loop_add_fd(s->loop, st->fd, EPOLLIN, on_output, st, &st->source);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool streams_open(const struct supervisor *s)
{
    return s->streams[0].source || s->streams[1].source || s->streams[2].source;
}

/* ---- what the client sends ---- */

/* The client counts what is under way and sends no more than a little at a time, so its frames can
 * always be read: signals come by the same way. */
static void input_write(struct supervisor *s)
{
    int fd = s->streams[0].fd;
    size_t taken = 0;
    while (fd >= 0 && taken < s->input.len) {
        ssize_t n = write(fd, s->input.data + taken, s->input.len - taken);
        if (n <= 0)
            break; /* full: we are told when there is room */
        taken += (size_t)n;
    }
    if (fd < 0)
        taken = s->input.len;
    if (taken == 0)
        return;
    memmove(s->input.data, s->input.data + taken, s->input.len - taken);
    s->input.len -= taken;
    uint8_t count[] = {(uint8_t)taken, (uint8_t)(taken >> 8), (uint8_t)(taken >> 16),
                       (uint8_t)(taken >> 24)};
    channel_queue(&s->client, CHANNEL_TAKEN, count, sizeof count);
    client_flush(s);
}

/* As a terminal would: these go to the job's whole process group. */
static bool is_group_signal(int signo)
{
    return signo == SIGINT || signo == SIGQUIT || signo == SIGHUP || signo == SIGTSTP ||
           signo == SIGCONT;
}

static void job_signal(struct supervisor *s, int signo)
{
    const struct proc_root *root = s->options->engine.root;
    if (s->exited || s->pid <= 0)
        return;
    /* Our own child, not yet waited for: its pid, and its group's, are nobody else's. */
    if (!is_group_signal(signo))
        kill(s->pid, signo);
    else if (guard_signal_below(root, (int32_t)getpid(), (int32_t)s->pid, signo) < 0)
        kill(-s->pid, signo);
    char text[64];
    snprintf(text, sizeof text, "{\"signal\":%d,\"by\":\"operator\"}", signo);
    engine_note(s->engine, "signal", text);
}

static void on_frame(struct supervisor *s, enum channel_type type, const char *data, size_t len)
{
    if (type == CHANNEL_INPUT) {
        buf_add(&s->input, data, len);
        input_write(s);
        stream_want(&s->streams[0]);
    } else if (type == CHANNEL_SIZE && len == sizeof(struct winsize) && s->streams[0].fd >= 0) {
        struct winsize size;
        memcpy(&size, data, sizeof size);
        ioctl(s->streams[0].fd, TIOCSWINSZ, &size);
    } else if (type == CHANNEL_SIGNAL && len == 1) {
        if (data[0] == SIGCONT)
            s->client_stopped = false;
        job_signal(s, data[0]);
    } else if (type == CHANNEL_CLOSED && len == 1) {
        /* the job's next write fails, as it would by hand */
        stream_close(&s->streams[data[0] == CHANNEL_ERR ? 2 : 1]);
    }
}

static void on_client(void *user, int fd, uint32_t events)
{
    struct supervisor *s = user;
    enum channel_type type;
    const char *data;
    size_t len;
    int r = 1;
    (void)fd;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        r = channel_fill(&s->client);
        while (!s->client_gone && channel_next(&s->client, &type, &data, &len) == 1)
            on_frame(s, type, data, len);
    }
    if (r < 0)
        client_lost(s);
    else
        client_flush(s);
}

/* ---- the end ---- */

static bool client_sleeps(const struct supervisor *s)
{
    return s->client_stopped && !s->client_gone && s->client_pidfd >= 0;
}

static void wake_client(struct supervisor *s)
{
    if (client_sleeps(s))
        loop_set_timer(s->wake_timer, clock_mono_ns(), WAKE_MS * NS_PER_MS);
}

/* Stopped as by Ctrl-Z, the client stops too, so that the shell is back; should anybody but the
 * client let the job go on, the client must not stay stopped. A plain SIGSTOP is somebody's own
 * business. */
static void job_paused(struct supervisor *s, int status)
{
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP) {
        s->client_stopped = true;
        channel_queue(&s->client, CHANNEL_STOPPED, "", 0);
        client_flush(s);
    } else if (WIFCONTINUED(status)) {
        wake_client(s);
    }
}

/* Again and again until it says that it goes on: it may be about to stop only now. */
static void on_wake(void *user, uint64_t now_ns, uint64_t missed)
{
    struct supervisor *s = user;
    (void)now_ns;
    (void)missed;
    if (client_sleeps(s))
        syscall(SYS_pidfd_send_signal, s->client_pidfd, SIGCONT, NULL, 0);
    else
        loop_disarm_timer(s->wake_timer);
}

/* Takes in whoever has died; whether any child is left. */
static bool reap(void *user)
{
    struct supervisor *s = user;
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0) {
        if (pid != s->pid)
            continue;
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
            job_paused(s, status);
        } else {
            s->exited = true;
            s->status = status;
            s->usage = usage;
            s->ended_ns = clock_mono_ns();
        }
    }
    return !(pid < 0 && errno == ECHILD);
}

static void finish_if_done(struct supervisor *s, bool children)
{
    if (s->exited && !children && !streams_open(s)) {
        s->ending = ENDED;
        loop_stop(s->loop);
    }
}

static void on_sweep(void *user, uint64_t now_ns, uint64_t missed)
{
    struct supervisor *s = user;
    (void)missed;
    if (s->ending == KILLING)
        s->blind = guard_kill_below(s->options->engine.root, now_ns + NS_PER_S / 5, reap, s) < 0;
    if (s->blind && !s->exited)
        kill(-s->pid, SIGKILL);
    bool children = reap(s) && !(s->blind && s->exited);
    if (!children && s->exited && s->ending < DRAINING) {
        s->ending = DRAINING;
        s->deadline_ns = now_ns + DRAIN_MS * NS_PER_MS;
    }
    if (s->ending == DRAINING && now_ns >= s->deadline_ns)
        for (size_t i = 0; i < 3; i++)
            stream_close(&s->streams[i]);
    if (s->ending == TERMINATING && now_ns >= s->deadline_ns)
        begin_ending(s, KILLING);
    if (s->ending == SETTLING && now_ns >= s->deadline_ns)
        begin_ending(s, TERMINATING);
    finish_if_done(s, children);
}

static void begin_ending(struct supervisor *s, enum ending how)
{
    const struct proc_root *root = s->options->engine.root;
    int32_t self = (int32_t)getpid();
    uint64_t now_ns = clock_mono_ns();
    if (s->ending >= how)
        return;
    s->ending = how;
    if (how == SETTLING) {
        s->deadline_ns = now_ns + SETTLE_MS * NS_PER_MS;
    } else if (how == TERMINATING) {
        int count = guard_signal_below(root, self, 0, SIGTERM);
        guard_signal_below(root, self, 0, SIGCONT);
        if (s->exited && count > 0)
            s->left_behind = (unsigned)count;
        if (count < 0 && !s->exited)
            kill(-s->pid, SIGTERM);
        s->deadline_ns = now_ns + s->options->grace_ns;
    }
    loop_set_timer(s->sweep_timer, now_ns, 20 * NS_PER_MS);
}

static void on_child(void *user, const struct signalfd_siginfo *info)
{
    struct supervisor *s = user;
    (void)info;
    bool children = reap(s);
    if (s->exited)
        begin_ending(s, SETTLING);
    finish_if_done(s, children);
}

/* Somebody signals the supervisor itself: pass it on, and let the job's end be ours. */
static void on_own_signal(void *user, const struct signalfd_siginfo *info)
{
    /* The kernel hangs us up, as the session's leader, when the job's terminal is closed. */
    if (info->ssi_signo == SIGHUP && info->ssi_code == SI_KERNEL)
        return;
    job_signal(user, (int)info->ssi_signo);
}

static void on_mark(void *user, const struct mark *mark)
{
    struct supervisor *s = user;
    engine_mark(s->engine, mark);
}

static void on_tick(void *user, struct engine *e, uint64_t now_ns)
{
    (void)e;
    (void)now_ns;
    terminal_look(user);
}

/* ---- run.json ---- */

static json_t *end_json(const struct supervisor *s)
{
    json_t *o;
    if (s->failure.text[0])
        o = json_pack("{s:s,s:i,s:o}", "kind", "not_started", "status", 125, "error",
                      json_text0(s->failure.text));
    else if (s->exec_error)
        o = json_pack("{s:s,s:i,s:o}", "kind", "not_started", "status",
                      s->exec_error == -ENOENT || s->exec_error == -ENOTDIR ? 127 : 126, "error",
                      json_text0(strerror(-s->exec_error)));
    else if (WIFSIGNALED(s->status))
        o = json_pack("{s:s,s:i,s:s?,s:i,s:b}", "kind", "signalled", "status",
                      128 + WTERMSIG(s->status), "signal", sigabbrev_np(WTERMSIG(s->status)),
                      "signal_number", WTERMSIG(s->status), "core", WCOREDUMP(s->status) ? 1 : 0);
    else
        o = json_pack("{s:s,s:i}", "kind", "exited", "status", WEXITSTATUS(s->status));
    json_object_set_new(o, "left_behind", json_integer((json_int_t)s->left_behind));
    if (s->ended_by)
        json_object_set_new(o, "by", json_string(s->ended_by));
    return o;
}

/* A command line may be megabytes: run.json keeps the beginning. */
static json_t *arguments_json(char *const *argv)
{
    size_t left = COMMAND_MAX;
    json_t *list = json_array();
    for (; *argv && left; argv++) {
        size_t len = strlen(*argv);
        len = len < left ? len : left;
        json_array_append_new(list, json_text(*argv, len));
        left -= len;
    }
    return list;
}

/* What is known before anything was measured. */
static json_t *facts_json(const struct supervisor *s)
{
    char cwd[4096];
    struct utsname uts = {0};
    const struct rundir *dir = &s->options->rundir;
    uname(&uts);
    return json_pack(
        "{s:s,s:o,s:o,s:s,s:o,s:o,s:o,s:o}", "ebb", EBB_VERSION, "host", json_text0(uts.nodename),
        "kernel", json_text0(uts.release), "state",
        s->ending == ENDED || s->exec_error || s->failure.text[0] ? "ended" : "running", "name",
        json_text0(s->options->name), "run_dir", dir->fd >= 0 ? json_text0(dir->path) : json_null(),
        "command", arguments_json(s->options->argv), "cwd",
        json_text0(getcwd(cwd, sizeof cwd) ? cwd : NULL));
}

static json_t *running_json(const struct supervisor *s)
{
    json_t *doc = facts_json(s);
    json_object_set_new(doc, "started", json_local_time(s->started_wall_ns));
    json_object_set_new(doc, "supervisor_pid", json_integer(getpid()));
    json_object_set_new(doc, "pid", json_integer(s->pid));
    json_object_set_new(doc, "socket",
                        s->marks ? json_text0(mark_receiver_path(s->marks)) : json_null());
    return doc;
}

static json_t *ended_json(struct supervisor *s)
{
    json_t *doc = running_json(s);
    json_t *measured = s->engine ? engine_summary(s->engine, clock_mono_ns()) : NULL;
    if (measured)
        json_object_update(doc, measured);
    json_decref(measured);
    json_object_set_new(doc, "ended", json_local_time(clock_wall_ns()));
    if (s->ended_ns)
        json_object_set_new(doc, "duration_s", json_seconds(s->ended_ns - s->started_ns));
    json_object_set_new(doc, "end", end_json(s));
    if (s->exited)
        json_object_set_new(doc, "peak_process_bytes",
                            json_u64((uint64_t)s->usage.ru_maxrss * 1024));
    if (s->log)
        json_object_set_new(
            doc, "log", json_pack("{s:s,s:o}", "file", "log.txt", "bytes", json_u64(s->log_bytes)));
    if (s->marks && json_object_get(doc, "marks")) {
        struct mark_receiver_stats stats;
        mark_receiver_stats(s->marks, &stats);
        json_object_set_new(json_object_get(doc, "marks"), "bad", json_u64(stats.bad));
    }
    return doc;
}

static void send_end(struct supervisor *s, const json_t *doc)
{
    struct buf text = {0};
    const json_t *status = json_object_get(json_object_get(doc, "end"), "status");
    char code = (char)json_integer_value(status);
    json_print(&text, doc, 0);
    channel_queue(&s->client, CHANNEL_STATUS, &code, 1);
    channel_queue(&s->client, CHANNEL_END, text.data, text.len);
    buf_fini(&text);
    /* A reader may take its time (a pager): the end is written down, so we can wait with it. And a
     * client that was told to stop may do so only now: it is woken until it has read the end. */
    client_flush(s);
    wake_client(s);
    while ((!s->client_gone && s->client.out.len) || client_sleeps(s))
        loop_once(s->loop, -1);
}

/* ---- beginning ---- */

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static int add_signals(struct supervisor *s)
{
    int r = loop_add_signal(s->loop, SIGCHLD, on_child, s, NULL);
    for (size_t i = 0; r == 0 && i < sizeof passed_on / sizeof *passed_on; i++)
        r = loop_add_signal(s->loop, passed_on[i], on_own_signal, s, NULL);
    return r;
}

static void record(struct supervisor *s)
{
    const struct rundir *dir = &s->options->rundir;
    struct err err = {""};
    if (dir->fd < 0)
        return;
    json_t *header = facts_json(s);
    int r = engine_record(s->engine, dir->fd, header, &err);
    json_decref(header);
    int fd = openat(dir->fd, "log.txt", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || sink_new(fd, LOG_BACKLOG, &s->log) < 0)
        s->log = NULL;
    if (s->log)
        loop_add_fd(s->loop, sink_error_fd(s->log), EPOLLIN, on_log_trouble, s, &s->log_source);
    if (r < 0) {
        char sentence[600];
        snprintf(sentence, sizeof sentence, "%s; the job goes on without a recording", err.text);
        client_say(s, sentence);
    }
}

static int set_up(struct supervisor *s, struct err *err)
{
    const struct engine_callbacks callbacks = {.tick = on_tick, .say = client_say, .user = s};
    int r = loop_new(&s->loop);
    if (r == 0)
        r = add_signals(s);
    if (r == 0)
        r = loop_add_fd(s->loop, s->client.fd, EPOLLIN, on_client, s, &s->client_source);
    if (r == 0) /* made now: at the end there may be no fd left for it */
        r = loop_add_timer(s->loop, UINT64_MAX / 2, 0, on_sweep, s, &s->sweep_timer);
    if (r == 0)
        r = loop_add_timer(s->loop, UINT64_MAX / 2, 0, on_wake, s, &s->wake_timer);
    if (r < 0)
        return err_set(err, r, "cannot set up the event loop: %s", strerror(-r));
    if (mark_receiver_new(s->loop, on_mark, s, &s->marks, &s->no_marks) == 0)
        snprintf(s->note->socket_folder, sizeof s->note->socket_folder, "%s",
                 mark_receiver_folder(s->marks));
    r = engine_new(s->loop, &s->options->engine, &callbacks, &s->engine, err);
    return r < 0 ? r : engine_watch_below(s->engine, (int32_t)getpid(), err);
}

static char *env_entry(const char *name, const char *value)
{
    char *text = NULL;
    return asprintf(&text, "%s=%s", name, value) < 0 ? NULL : text;
}

static int start_job(struct supervisor *s, struct err *err)
{
    char *env[4] = {0};
    size_t count = 0;
    sigset_t mask;
    struct spawned job;
    if (s->marks)
        env[count++] = env_entry("EBB_SOCKET", mark_receiver_path(s->marks));
    if (s->options->rundir.fd >= 0)
        env[count++] = env_entry("EBB_RUN_DIR", s->options->rundir.path);
    env[count++] = env_entry("EBB_SEGMENT", "0");
    loop_original_mask(s->loop, &mask);
    int r = spawn_job(s->options, env, &mask, &job, &s->exec_error);
    if (r < 0)
        return err_set(err, r, "cannot start the job: %s", strerror(-r));
    if (s->exec_error)
        return 0;
    s->pid = job.pid;
    s->started_ns = clock_mono_ns();
    s->started_wall_ns = clock_wall_ns();
    return streams_start(s, &job.streams);
}

/* With the loop the signal mask goes back: what is still pending must not end us now. */
static void ignore_signals(void)
{
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        signal(passed_on[i], SIG_IGN);
}

static void tear_down(struct supervisor *s)
{
    ignore_signals();
    for (size_t i = 0; i < 3; i++)
        stream_close(&s->streams[i]);
    loop_remove(s->log_source);
    if (s->log)
        sink_close(s->log, 5 * NS_PER_S);
    engine_free(s->engine);
    mark_receiver_free(s->marks);
    s->note->socket_folder[0] = '\0';
    loop_remove(s->client_source);
    channel_fini(&s->client);
    buf_fini(&s->input);
    loop_free(s->loop);
}

/* Stops the recording, says in run.json how it ended, tells the client. */
static void finish(struct supervisor *s)
{
    json_t *footer = end_json(s);
    if (s->engine) {
        engine_look_now(s->engine); /* the last deaths belong into the recording */
        engine_stop(s->engine, footer);
    }
    json_decref(footer);
    json_t *doc = ended_json(s);
    int r = rundir_write_json(&s->options->rundir, doc);
    s->note->finished = r == 0;
    if (r < 0 && s->options->rundir.fd >= 0 && !s->failure.text[0]) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "cannot write run.json: %s", strerror(-r));
        client_say(s, sentence);
    }
    send_end(s, doc);
    json_decref(doc);
}

static void watch_job(struct supervisor *s)
{
    engine_limits_of(s->engine, (int32_t)s->pid);
    engine_look_now(s->engine);
    engine_start(s->engine);
    if (s->options->rundir.fd >= 0) {
        json_t *doc = running_json(s);
        rundir_write_json(&s->options->rundir, doc);
        json_decref(doc);
    }
    loop_run(s->loop);
}

static int supervise(const struct supervisor_options *options, int client_fd, int client_pidfd,
                     struct sentinel_note *note)
{
    struct supervisor s = {.options = options, .note = note, .client_pidfd = client_pidfd};
    for (size_t i = 0; i < 3; i++)
        s.streams[i] = (struct stream){.s = &s, .fd = -1};
    channel_init(&s.client, client_fd);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit is trouble of ours, not the end of the job */
    int r = set_up(&s, &s.failure);
    if (r == 0) {
        record(&s);
        r = start_job(&s, &s.failure);
    }
    if (r == 0 && s.no_marks.text[0])
        client_say(&s, s.no_marks.text); /* no marks, but a job that runs */
    if (r == 0 && !s.exec_error)
        watch_job(&s);
    if (r < 0 && !s.failure.text[0])
        err_set(&s.failure, r, "cannot start the job: %s", strerror(-r));
    if (s.loop)
        finish(&s);
    tear_down(&s);
    return r < 0 && s.pid > 0; /* then the sentinel ends what was started */
}

/* The supervisor cannot say any more how the job ended: the sentinel does, so that nobody takes it
 * for running. */
static void write_lost(const struct rundir *dir, int ended)
{
    struct buf text = {0};
    struct err err;
    if (dir->fd < 0)
        return;
    io_read_all(dir->fd, "run.json", 1 << 20, &text);
    json_t *doc = text.len ? json_parse(text.data, text.len, &err) : NULL;
    if (!doc)
        doc = json_object();
    json_object_set_new(doc, "state", json_string("ended"));
    json_object_set_new(doc, "ended", json_local_time(clock_wall_ns()));
    json_object_set_new(doc, "end",
                        json_pack("{s:s,s:s,s:i}", "kind", "lost", "by",
                                  "the death of the job's supervisor", "left_behind", ended));
    rundir_write_json(dir, doc);
    json_decref(doc);
    buf_fini(&text);
}

/* The sentinel keeps no fd of the client's or the user's open: nobody may wait for it. */
static _Noreturn void be_sentinel(const struct supervisor_options *options, int client_fd,
                                  int client_pidfd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "ebb-sentinel");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct sentinel_note *note =
        mmap(NULL, sizeof *note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = note == MAP_FAILED ? -1 : fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &options->mask, NULL);
        prctl(PR_SET_NAME, "ebb-supervisor");
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        setsid();
        exit(supervise(options, client_fd, client_pidfd, note));
    }
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    close(client_fd);
    int lost = pid < 0 ? 1 : sentinel_wait(options->engine.root, pid, options->grace_ns, note);
    if (lost && !(note != MAP_FAILED && note->finished))
        write_lost(&options->rundir, lost - 1);
    _exit(lost != 0);
}

int supervisor_start(const struct supervisor_options *options, int *ret_fd, pid_t *ret_sentinel,
                     struct err *err)
{
    int pair[2];
    int r = channel_pair(pair);
    if (r < 0)
        return err_set(err, r, "cannot make a socket pair: %s", strerror(-r));
    int client_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        be_sentinel(options, pair[1], client_pidfd);
    }
    if (client_pidfd >= 0)
        close(client_pidfd);
    close(pair[1]);
    if (pid < 0) {
        r = -errno;
        close(pair[0]);
        return err_set(err, r, "cannot start a process: %s", strerror(-r));
    }
    *ret_fd = pair[0];
    *ret_sentinel = pid;
    return 0;
}
