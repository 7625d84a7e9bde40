/* Sends requests for checkpoints, and keeps track of which ranks have answered. */
#include "guard/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/text.h"
#include "base/words.h"
#include "guard/sweep.h"

void checkpoint_init(struct checkpoint *c, const struct checkpoint_options *options)
{
    *c = (struct checkpoint){.options = *options};
}

/* ---- the file given by --checkpoint-done ---- */

static struct stat file_now(const struct checkpoint *c)
{
    struct stat st;
    return c->options.done && stat(c->options.done, &st) == 0 ? st : (struct stat){0};
}

static bool file_is_new(const struct checkpoint *c)
{
    const struct stat was = c->file, is = file_now(c);
    return is.st_ino != 0 &&
           (is.st_ino != was.st_ino || is.st_size != was.st_size ||
            is.st_mtim.tv_sec != was.st_mtim.tv_sec || is.st_mtim.tv_nsec != was.st_mtim.tv_nsec);
}

/* ---- outcome of a request ---- */

static bool set_started(struct checkpoint *c)
{
    if (c->ack != LADDER_NO_ACK)
        return false;
    c->ack = LADDER_ACK_STARTED;
    return true;
}

static bool set_done(struct checkpoint *c, const char *by)
{
    c->ack = LADDER_ACK_DONE;
    c->is_open = false;
    snprintf(c->by, sizeof c->by, "%s", by);
    return true;
}

static bool may_answer(const struct checkpoint_peer *p)
{
    return !p->is_dead && p->ack != LADDER_ACK_DONE && p->ack != LADDER_ACK_FAILED;
}

/* Decides whether the request is done or has failed. Called after an answer, or after the exit of a
 * process or of the command. Checks the file before reporting a failure, because the process or
 * command may have written the checkpoint before it exited. */
static bool settle_request(struct checkpoint *c)
{
    size_t waiting = 0, done = 0, failed = 0;
    for (size_t i = 0; i < c->peers; i++) {
        waiting += may_answer(&c->peer[i]);
        done += c->peer[i].ack == LADDER_ACK_DONE;
        failed += c->peer[i].ack == LADDER_ACK_FAILED;
    }
    if (waiting == 0 && done > 0 && failed == 0)
        return set_done(c, "mark");
    /* Processes do not acknowledge a signal. Whether a signalled process has written a checkpoint
     * is known only from the file or, if no rank is connected, from a save mark. */
    bool awaits_signalled = c->signalled_count > 0 && (c->peers == 0 || c->options.done);
    if (waiting > 0 || c->command_pid != 0 || awaits_signalled)
        return false;
    if (file_is_new(c))
        return set_done(c, "file");
    c->ack = LADDER_ACK_FAILED;
    c->is_open = false;
    return true;
}

/* Appends a clause to WHY if it fits. */
static void add_why(char why[CHECKPOINT_TEXT_MAX], const char *clause)
{
    size_t len = strlen(why);
    if (len + strlen("; ") + strlen(clause) < CHECKPOINT_TEXT_MAX)
        snprintf(why + len, CHECKPOINT_TEXT_MAX - len, "%s%s", len > 0 ? "; " : "", clause);
}

/* ---- over the socket ---- */

/* Sends the request over the marks socket. A rank whose queue is full does not receive the request,
 * but is expected to answer nevertheless, because a checkpoint is incomplete without the part of
 * that rank. */
static bool request_by_socket(struct checkpoint *c, struct mark_receiver *marks)
{
    const struct mark_peer *peers;
    size_t count;
    if (!marks || mark_receiver_request(marks, "CHECKPOINT", c->id) == 0)
        return false;
    count = mark_receiver_peers(marks, &peers);
    for (size_t i = 0; i < count && c->peers < CHECKPOINT_PEERS; i++)
        if (!peers[i].is_worker)
            c->peer[c->peers++] = (struct checkpoint_peer){.pid = peers[i].pid};
    return true;
}

/* ---- by signal ---- */

/* Groups of processes, in order of preference. The signal goes only to the first group that is not
 * empty. */
enum target { TARGET_CONNECTED, TARGET_MAIN, TARGET_FIRST, TARGET_NONE };

static bool is_rank(const struct mark_receiver *marks, int32_t pid)
{
    const struct mark_peer *peers;
    size_t count = marks ? mark_receiver_peers(marks, &peers) : 0;
    for (size_t i = 0; i < count; i++)
        if (peers[i].pid == pid)
            return !peers[i].is_worker;
    return false;
}

/* True if the process is the job's first process, or was started by a launcher. */
static bool is_first_process(struct proc_tree *tree, const struct proc_node *n)
{
    const struct proc_node *parent = proc_tree_find(tree, n->info.ppid);
    return n->info.role == ROLE_OTHER && (!parent || parent->info.role == ROLE_LAUNCHER);
}

/* True if the process belongs to the command given by --checkpoint-cmd. The command has the same
 * subreaper as the job, so its processes are in the job's tree as well. */
static bool is_of_command(const struct checkpoint *c, struct proc_tree *tree,
                          const struct proc_node *n)
{
    /* Maximum number of parents to follow. The chain of parents may contain a cycle, because the
     * parents were read at different times. */
    enum { DEPTH_MAX = 64 };

    for (int i = 0; c->command_pid != 0 && n && i < DEPTH_MAX; i++) {
        if (n->info.id.pid == c->command_pid)
            return true;
        n = proc_tree_find(tree, n->info.ppid);
    }
    return false;
}

static bool is_target(const struct checkpoint *c, const struct mark_receiver *marks,
                      struct proc_tree *tree, const struct proc_node *n, enum target target)
{
    if (is_of_command(c, tree, n))
        return false;
    switch (target) {
    case TARGET_CONNECTED:
        return is_rank(marks, n->info.id.pid);
    case TARGET_MAIN:
        return n->info.role == ROLE_MAIN;
    case TARGET_FIRST:
        return is_first_process(tree, n);
    case TARGET_NONE:
        break;
    }
    return false;
}

static enum target choose_target(const struct checkpoint *c, const struct mark_receiver *marks,
                                 struct proc_tree *tree)
{
    for (enum target t = TARGET_CONNECTED; t < TARGET_NONE; t++)
        for (size_t i = 0; i < proc_tree_count(tree); i++)
            if (is_target(c, marks, tree, proc_tree_at(tree, i), t))
                return t;
    return TARGET_NONE;
}

/* Reads the mask of caught signals from /proc/PID/status. A process name cannot forge this line,
 * because the kernel escapes newlines in names. */
static bool catches_signal(struct proc_tree *tree, struct proc_node *n, int signo)
{
    char text[8192];
    AUTO_CLOSE int fd = proc_node_open(tree, n, "status", O_RDONLY);
    bool is_read = fd >= 0 && io_pread_small(fd, text, sizeof text) > 0;
    const char *line = is_read ? strstr(text, "\nSigCgt:") : NULL;
    return line && signo >= 1 && signo <= 64 &&
           strtoull(line + strlen("\nSigCgt:"), NULL, 16) >> (signo - 1) & 1;
}

static int signal_rank(struct checkpoint *c, struct proc_tree *tree, struct proc_node *n)
{
    int r;
    if (c->signalled_count == CHECKPOINT_PEERS)
        return -ENOSPC;
    if (!catches_signal(tree, n, c->options.signo))
        return -ENOTSUP;
    r = guard_signal(proc_tree_root(tree), &n->info.id, c->options.signo);
    if (r == 0)
        c->signalled[c->signalled_count++] = n->info.id.pid;
    return r;
}

static void explain_not_signalled(const struct checkpoint *c, const struct proc_node *n, int code,
                                  char why[CHECKPOINT_TEXT_MAX])
{
    enum { NAME_COLUMNS = 24 };
    char clause[200], name[4 * NAME_COLUMNS + 4], signal[WORDS_SIGNAL_MAX];
    text_fit(name, sizeof name, NAME_COLUMNS, n->info.comm, n->info.comm_len);
    words_signal_name(signal, c->options.signo);
    if (code == -ENOTSUP)
        snprintf(clause, sizeof clause,
                 "process %d (%s) has no handler for %s, so the signal could kill it",
                 n->info.id.pid, name, signal);
    else
        snprintf(clause, sizeof clause, "cannot send %s to process %d (%s): %s", signal,
                 n->info.id.pid, name, strerror(-code));
    add_why(why, clause);
}

static bool request_by_signal(struct checkpoint *c, const struct mark_receiver *marks,
                              struct proc_tree *tree, char why[CHECKPOINT_TEXT_MAX])
{
    enum target target;
    bool is_explained = false;
    if (c->options.signo == 0)
        return false;
    target = choose_target(c, marks, tree);
    if (target == TARGET_NONE)
        add_why(why, "no training process was found in the job, so no signal was sent");
    for (size_t i = 0; i < proc_tree_count(tree) && target != TARGET_NONE; i++) {
        struct proc_node *n = proc_tree_at(tree, i);
        int r = is_target(c, marks, tree, n, target) ? signal_rank(c, tree, n) : 0;
        if (r < 0 && !is_explained) { /* only the first failure is reported */
            explain_not_signalled(c, n, r, why);
            is_explained = true;
        }
    }
    return c->signalled_count > 0;
}

/* ---- by command ---- */

int checkpoint_spawn(char *const argv[], pid_t *ret)
{
    posix_spawn_file_actions_t streams;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_init(&streams);
    int r = posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&streams, STDERR_FILENO, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawnp(ret, argv[0], &streams, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&streams);
    posix_spawnattr_destroy(&attr);
    if (r)
        *ret = 0;
    return r;
}

static bool request_by_command(struct checkpoint *c, char why[CHECKPOINT_TEXT_MAX])
{
    static char shell[] = "/bin/sh", option[] = "-c";
    char *argv[] = {shell, option, (char *)(uintptr_t)c->options.command, NULL};
    char id[24], clause[128];
    if (!c->options.command)
        return false;
    if (c->command_pid != 0)
        return true;
    snprintf(id, sizeof id, "%" PRIu64, c->id);
    setenv("EBB_CHECKPOINT_ID", id, 1);
    int r = checkpoint_spawn(argv, &c->command_pid);
    /* the variable is only for the command; the job's next segment must not inherit it */
    unsetenv("EBB_CHECKPOINT_ID");
    if (r == 0)
        return true;
    snprintf(clause, sizeof clause, "cannot start the --checkpoint-cmd command: %s", strerror(r));
    add_why(why, clause);
    return false;
}

/* ---- requesting ---- */

static bool has_rank(const struct mark_receiver *marks)
{
    const struct mark_peer *peers;
    size_t count = marks ? mark_receiver_peers(marks, &peers) : 0;
    while (count > 0 && peers[count - 1].is_worker)
        count--;
    return count > 0;
}

bool checkpoint_is_possible(const struct checkpoint *c, const struct mark_receiver *marks,
                            char why[CHECKPOINT_TEXT_MAX])
{
    why[0] = '\0';
    if (has_rank(marks) || c->options.signo != 0 || c->options.command)
        return true;
    add_why(why, "no rank is connected to EBB_SOCKET, and neither --checkpoint-signal nor "
                 "--checkpoint-cmd is given");
    return false;
}

int checkpoint_request(struct checkpoint *c, uint64_t now_ns, struct mark_receiver *marks,
                       struct proc_tree *tree, char why[CHECKPOINT_TEXT_MAX])
{
    int ways = 0;
    (void)checkpoint_is_possible(c, marks, why); /* sets WHY; the result is not needed */
    c->ack = LADDER_NO_ACK;
    c->peers = c->signalled_count = 0;
    c->path[0] = c->by[0] = '\0';
    c->id = ++c->last_id;
    c->requested_ns = now_ns;
    c->file = file_now(c);
    ways += request_by_socket(c, marks);
    ways += request_by_signal(c, marks, tree, why);
    ways += request_by_command(c, why);
    if (ways == 0 && why[0] == '\0')
        add_why(why, "no connected rank could be reached on EBB_SOCKET");
    c->is_open = ways > 0;
    if (ways == 0)
        c->ack = LADDER_ACK_FAILED;
    return ways;
}

int checkpoint_send_stop(struct checkpoint *c, struct mark_receiver *marks)
{
    return marks ? mark_receiver_request(marks, "STOP", ++c->last_id) : 0;
}

/* ---- answers ---- */

static bool mark_value_is(const struct mark *m, const char *key, const char *value)
{
    size_t len;
    const char *s = mark_get(m, key, &len);
    return s && len == strlen(value) && memcmp(s, value, len) == 0;
}

static bool is_answer_to(const struct mark *m, uint64_t id)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, id);
    return mark_value_is(m, "ID", text);
}

/* Stores the mark's path if it is the first path that the job reported. Ignores a path that is too
 * long, because a truncated path would name another file. */
static void note_path(struct checkpoint *c, const struct mark *m)
{
    size_t len;
    const char *path = mark_get(m, "PATH", &len);
    if (!path || c->path[0] != '\0' || len >= sizeof c->path)
        return;
    memcpy(c->path, path, len);
    c->path[len] = '\0';
}

static enum ladder_ack ack_status(const struct mark *m)
{
    if (mark_value_is(m, "STATUS", "started"))
        return LADDER_ACK_STARTED;
    if (mark_value_is(m, "STATUS", "done"))
        return LADDER_ACK_DONE;
    return mark_value_is(m, "STATUS", "failed") ? LADDER_ACK_FAILED : LADDER_NO_ACK;
}

/* Finds the rank that sent an answer. If there is only one rank, its child processes, such as `ebb
 * mark`, may answer too. */
static struct checkpoint_peer *find_answering(struct checkpoint *c, int32_t pid)
{
    bool is_known = false;
    for (size_t i = 0; i < c->peers; i++) {
        if (c->peer[i].pid == pid && may_answer(&c->peer[i]))
            return &c->peer[i];
        is_known |= pid != 0 && c->peer[i].pid == pid;
    }
    return c->peers == 1 && !is_known && may_answer(&c->peer[0]) ? &c->peer[0] : NULL;
}

/* Handles an ack while no rank is connected. Such an ack can only come from the command given by
 * --checkpoint-cmd, which has the request's id in its environment. A failure ack is ignored,
 * because the command's exit status reports the failure. */
static bool apply_command_ack(struct checkpoint *c, const struct mark *m, enum ladder_ack status)
{
    if (status == LADDER_ACK_STARTED)
        return set_started(c);
    if (status != LADDER_ACK_DONE)
        return false;
    note_path(c, m);
    return set_done(c, "mark");
}

static bool apply_ack(struct checkpoint *c, const struct mark *m)
{
    enum ladder_ack status = ack_status(m);
    struct checkpoint_peer *p = find_answering(c, m->pid);
    if (c->peers == 0)
        return apply_command_ack(c, m, status);
    if (status == LADDER_NO_ACK || !p)
        return false;
    p->ack = status;
    if (status == LADDER_ACK_STARTED)
        return set_started(c);
    if (status == LADDER_ACK_DONE)
        note_path(c, m);
    return settle_request(c);
}

bool checkpoint_mark(struct checkpoint *c, const struct mark *mark)
{
    if (!c->is_open)
        return false;
    if (mark->kind == MARK_ACK)
        return is_answer_to(mark, c->id) && apply_ack(c, mark);
    if (mark->kind != MARK_SAVE || c->peers > 0)
        return false;
    note_path(c, mark);
    return set_done(c, "mark");
}

bool checkpoint_check_file(struct checkpoint *c)
{
    return c->is_open && file_is_new(c) && set_done(c, "file");
}

bool checkpoint_command_exited(struct checkpoint *c, pid_t pid, int status)
{
    if (pid <= 0 || pid != c->command_pid)
        return false;
    c->command_pid = 0;
    if (!c->is_open)
        return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return settle_request(c);
    if (!c->options.done)
        return set_done(c, "command");
    return checkpoint_check_file(c) || set_started(c);
}

static bool forget_signalled(struct checkpoint *c, int32_t pid)
{
    for (size_t i = 0; i < c->signalled_count; i++)
        if (c->signalled[i] == pid) {
            c->signalled[i] = c->signalled[--c->signalled_count];
            return true;
        }
    return false;
}

bool checkpoint_process_died(struct checkpoint *c, int32_t pid)
{
    bool was_requested = forget_signalled(c, pid);
    for (size_t i = 0; i < c->peers && pid != 0; i++)
        if (c->peer[i].pid == pid) {
            c->peer[i].is_dead = true;
            was_requested = true;
        }
    return c->is_open && was_requested && settle_request(c);
}
