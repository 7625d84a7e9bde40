/* Runs a job on the event loop from its start until run.json is written. Also starts the
 * sentinel. */
#include "supervise/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "supervise/job.h"
#include "supervise/lost.h"
#include "supervise/rank.h"
#include "mark/receiver.h"
#include "profile/collect.h"
#include "trace/logs.h"

enum {
    LOG_WAIT_S = 5, /* maximum wait for a disk that hangs */
    ROOM_MS = 1000, /* interval between attempts to write to a full disk */
};

void job_on_mark(void *user, const struct mark *mark)
{
    struct job *j = user;
    if (job_query(j, mark) || step_sources_skip(&j->step_sources, mark))
        return;
    engine_mark(j->engine, mark);
    job_guard_mark(j, mark);
    if (j->heap.collect)
        collect_mark(j->heap.collect, mark);
    job_control_mark(j, mark);
}

void job_announce(struct job *j, uint64_t now_ns)
{
    if (j->is_announced || j->options->rundir.fd < 0 || now_ns < j->announce_ns)
        return;
    struct outcome_about *about = &j->outcome.about;
    char *dir = j->guard.cgroup.dir;
    about->cgroup = &dir;
    about->cgroup_count = dir[0] != '\0';
    json_auto_t *doc = job_running_json(j);
    about->cgroup = NULL;
    about->cgroup_count = 0;
    j->is_announced = rundir_write_json(&j->options->rundir, doc) == 0;
    j->announce_ns = now_ns + ROOM_MS * NS_PER_MS;
}

void job_on_tick(void *user, uint64_t now_ns)
{
    struct job *j = user;
    job_announce(j, now_ns);
    job_terminal_resume(j);
    job_guard_tick(j, now_ns);
    job_heap_tick(j, now_ns);
    job_control_tick(j, now_ns);
    job_node_tick(j);
    job_scrape_tick(j, now_ns);
    job_termination_tick(j, now_ns);
}

void job_on_process(void *user, const struct proc_event *event)
{
    job_guard_process(user, event);
    job_heap_process(user, event);
}

/* ---- start ---- */

void job_record(struct job *j)
{
    const struct rundir *dir = &j->options->rundir;
    struct err err = {""};
    if (dir->fd < 0)
        return;
    json_auto_t *header = job_header_json(j);
    int r = engine_record(j->engine, dir->fd, header, &err);
    /* ebb does not redirect the output of ranks and of attached jobs */
    if (!j->is_attached && !j->options->node)
        job_log_start(j);
    if (r < 0)
        job_notifyf(j, "%s; the job runs without a recording", err.text);
}

static int set_up_job(struct job *j, struct err *err)
{
    const struct engine_callbacks callbacks = {
        .tick = job_on_tick, .report = job_notify, .process = job_on_process, .user = j};
    int r = loop_new(&j->loop);
    if (r == 0)
        r = job_signals_start(j);
    if (r == 0)
        r = job_client_start(j);
    if (r < 0)
        return err_set(err, r, "cannot set up the event loop: %s", strerror(-r));
    if (mark_receiver_new(j->loop, job_on_mark, j, &j->marks, &j->no_marks) == 0)
        snprintf(j->note->socket_folder, sizeof j->note->socket_folder, "%s",
                 mark_receiver_folder(j->marks));
    job_control_start(j);
    struct engine_options options = j->options->engine;
    options.is_launched = true;
    r = engine_new(j->loop, &options, &callbacks, &j->engine, err);
    if (r == 0) {
        job_scrape_start(j);
        job_folder_start(j);
    }
    /* the ranks of a node are not the supervisor's descendants, so each rank is added when it
     * starts */
    return r < 0 || j->options->node ? r : engine_watch_below(j->engine, (int32_t)getpid(), err);
}

static void tear_down(struct job *j)
{
    job_signals_ignore();
    job_ranks_free(j);
    job_control_free(j);
    job_scrape_free(j);
    job_folder_free(j);
    job_streams_close(&j->output);
    loop_remove(j->output.log_source);
    loop_remove(j->output.log_timer);
    logs_close(j->output.log, LOG_WAIT_S * NS_PER_S);
    job_guard_free(&j->guard);
    engine_free(j->engine);
    guard_kill_fini(&j->end.kill);
    if (j->now.pidfd >= 0)
        close(j->now.pidfd);
    collect_free(j->heap.collect);
    mark_receiver_free(j->marks);
    j->note->socket_folder[0] = '\0';
    outcome_fini(&j->outcome);
    loop_remove(j->client.source);
    channel_fini(&j->client.channel);
    job_streams_leave_client(&j->output);
    buf_fini(&j->client.input);
    loop_free(j->loop);
}

/* ---- the end ---- */

static void send_end(struct job *j, const json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    char code = (char)job_run_status(j);
    json_print(&text, doc, 0);
    channel_queue(&j->client.channel, CHANNEL_STATUS, &code, 1);
    channel_queue(&j->client.channel, CHANNEL_END, text.data, text.len);
    /* Waits until the client has received all frames, even if the reader of the client's output
     * (such as a pager) is slow. This delays nothing else, because run.json is already written. A
     * client that was stopped by Ctrl-Z is woken. */
    job_client_flush(j);
    job_client_wake(j);
    while ((!j->client.is_gone && j->client.channel.out.len) || job_client_sleeps(&j->client))
        loop_once(j->loop, -1);
}

/* Records in run.json how the job ended, because no other file records this for a detached job. If
 * the disk is full, the supervisor retries until there is space or the job is cancelled, and keeps
 * the job's lock until then. Meanwhile, the control socket reports that the supervisor is
 * waiting. */
static int write_end(struct job *j, const json_t *doc)
{
    const struct rundir *dir = &j->options->rundir;
    int r = rundir_write_json(dir, doc);
    j->waits_for_disk = j->options->is_detached && !j->options->node && j->now.exited;
    while ((r == -ENOSPC || r == -EDQUOT) && j->waits_for_disk) {
        uint64_t until_ns = clock_mono_ns() + ROOM_MS * NS_PER_MS;
        job_control_state(j);
        for (uint64_t now_ns; j->waits_for_disk && (now_ns = clock_mono_ns()) < until_ns;)
            loop_once(j->loop, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
        r = rundir_write_json(dir, doc);
    }
    j->waits_for_disk = false;
    return r;
}

/* Stops the recording, writes the end of the job to run.json, and sends run.json to the client. */
static void finish_job(struct job *j)
{
    json_auto_t *footer = outcome_end_json(job_outcome_end(j));
    if (j->engine) {
        job_guard_end(j);
        job_heap_refresh(j, 0);
        engine_stop(j->engine, footer);
    }
    if (j->output.log) /* log.txt must be complete before run.json contains the end */
        sink_wait(logs_sink(j->output.log), LOG_WAIT_S * NS_PER_S);
    json_auto_t *doc = job_ended_json(j);
    int r = write_end(j, doc);
    j->note->finished = r == 0;
    if (r < 0 && j->options->rundir.fd >= 0 && !j->failure.text[0])
        job_notifyf(j, "cannot write run.json: %s", strerror(-r));
    job_node_free(j);
    job_ranks_finished(j);
    send_end(j, doc);
}

static int start(struct job *j)
{
    job_record(j);
    job_heap_begin(j);
    job_guard_begin(j);
    if (j->options->node)
        j->now.number = j->options->node->place->segment;
    int r = job_segment_start(j, &j->failure);
    j->started_ns = j->now.started_ns;
    j->started_wall_ns = j->now.started_wall_ns;
    if (r == 0 && j->options->node)
        r = job_ranks_start(j);
    if (r == 0 && j->options->node)
        job_node_start(j);
    if (r == 0 && j->no_marks.text[0])
        job_notify(j, j->no_marks.text);
    return r;
}

/* Enlarges the table of open files in advance. The kernel doubles the table whenever it is full. In
 * a multithreaded process, the kernel then waits for all CPUs, which takes seconds on a machine
 * with hundreds of busy processes. */
static void enlarge_file_table(int any_fd)
{
    enum { FILES = 4096 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < 2)
        return;
    int last = limit.rlim_cur < FILES ? (int)limit.rlim_cur - 1 : FILES - 1;
    int fd = fcntl(any_fd, F_DUPFD_CLOEXEC, last);
    if (fd >= 0)
        close(fd);
}

static int supervise(const struct supervisor_options *options,
                     const struct supervisor_client *client, struct sentinel_note *note)
{
    struct job j = {.options = options,
                    .note = note,
                    .client.pidfd = client->pidfd,
                    .now = {.pidfd = -1},
                    .guard = {.cgroup = guard_cgroup_none, .effective_fds = LIMIT_NO_FDS}};
    for (size_t i = 0; i < JOB_STREAMS; i++)
        j.output.streams[i] =
            (struct job_stream){.j = &j, .fd = -1, .client_fd = client->stream[i]};
    channel_init(&j.client.channel, client->fd);
    job_about_start(&j);
    enlarge_file_table(client->fd);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE must not kill the supervisor */
    int r = set_up_job(&j, &j.failure);
    if (r == 0)
        r = start(&j);
    if (r == 0 && !j.exec_error) {
        engine_start(j.engine);
        job_announce(&j, clock_mono_ns());
        if (options->is_detached)
            job_client_leave(&j);
        loop_run(j.loop);
    }
    if (r < 0 && !j.failure.text[0])
        err_set(&j.failure, r, "cannot start the job: %s", strerror(-r));
    if (j.loop)
        finish_job(&j);
    tear_down(&j);
    /* a nonzero exit status makes the sentinel end the job */
    return r < 0 && j.now.pid > 0;
}

/* ---- the sentinel ---- */

static void write_lost(const struct supervisor_options *options, const struct sentinel_end *end)
{
    struct outcome_end o = lost_end(CAUSE_SUPERVISOR, end->ended);
    if (end->was_kept && end->status_known) {
        o = outcome_end_of_status(end->status);
        o.has_left_behind = o.has_outlived_supervisor = o.outlived_supervisor = true;
        o.left_behind = (uint64_t)end->ended;
    }
    lost_write(options->rundir.fd, &o);
}

static void close_ends(const struct supervisor_client *ends)
{
    cleanup_close(&ends->fd);
    cleanup_close(&ends->pidfd);
    for (int i = 0; i < 3; i++)
        cleanup_close(&ends->stream[i]);
}

/* Writes our pid into the lock file, and replaces the standard streams by /dev/null, because the
 * process that started a detached job waits until these streams are closed. */
static void detach(const struct supervisor_options *options)
{
    if (options->lock_fd >= 0)
        lost_sign_lock(options->engine.root, options->lock_fd);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    if (null_fd > 2)
        close(null_fd);
}

/* Becomes the sentinel. Closes all fds that belong to the client and the user, because other
 * programs may wait until they are closed. If the supervisor of a detached job is killed, ends the
 * job even with --keep-on-exit, because the job could no longer be cancelled and its memory would
 * not be watched. */
static _Noreturn void be_sentinel(const struct supervisor_options *options,
                                  const struct supervisor_client *client)
{
    sigset_t all;
    sigfillset(&all);
    struct sentinel_end end = {.is_lost = true};
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "ebb-sentinel");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (options->is_detached)
        detach(options);
    struct sentinel_note *note =
        sentinel_note_new(options->guard.keep_on_exit && !options->is_detached);
    pid_t pid = note ? fork() : -1;
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &options->mask, NULL);
        prctl(PR_SET_NAME, "ebb-supervisor");
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        setsid();
        exit(supervise(options, client, note));
    }
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    if (options->node)
        /* no rank may connect after the supervisor's death */
        close(options->node->listen_fd);
    close_ends(client);
    if (pid > 0) {
        guard_cgroup_warm(options->engine.root);
        sentinel_wait(options->engine.root, pid, options->grace_ns, note, options->rundir.fd, &end);
    }
    if (end.is_lost && !(note && note->finished))
        write_lost(options, &end);
    _exit(end.is_lost);
}

/* Opens the channel between client and supervisor, and pipes for the output that does not go to a
 * terminal. The supervisor must not write to the user's own pipe: a reader that splices from that
 * pipe to a hanging disk keeps it locked, so the supervisor would hang. */
static int open_client(const struct supervisor_options *o, struct supervisor_client *ours,
                       struct supervisor_client *theirs)
{
    const struct supervisor_streams *s = &o->streams;
    const bool is_piped[3] = {false, !o->is_silent && !o->tty.out && !s->closed[1],
                              !o->is_silent && !o->tty.err && !s->closed[2] && !s->is_one_pipe};
    int pair[2];
    *ours = *theirs = (struct supervisor_client){.fd = -1, .stream = {-1, -1, -1}, .pidfd = -1};
    int r = channel_pair(pair);
    if (r < 0)
        return r;
    ours->fd = pair[0];
    theirs->fd = pair[1];
    theirs->pidfd = io_pidfd_open(getpid());
    for (int i = 0; i < 3; i++) {
        if (!is_piped[i])
            continue;
        if (pipe2(pair, O_CLOEXEC) < 0)
            return -errno;
        ours->stream[i] = pair[0];
        theirs->stream[i] = pair[1];
    }
    return 0;
}

int supervisor_start(const struct supervisor_options *options, struct supervisor_client *ret,
                     struct err *err)
{
    struct supervisor_client ours;
    struct supervisor_client theirs;
    int r = open_client(options, &ours, &theirs);
    pid_t pid = r < 0 ? -1 : fork();
    if (pid == 0) {
        close_ends(&ours);
        be_sentinel(options, &theirs);
    }
    if (r == 0 && pid < 0)
        r = -errno;
    close_ends(&theirs);
    if (r < 0) {
        close_ends(&ours);
        return err_set(err, r, "cannot start the supervisor process: %s", strerror(-r));
    }
    *ret = ours;
    ret->sentinel = pid;
    return 0;
}
