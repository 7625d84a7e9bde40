/* One request for a checkpoint: which ranks are asked in which way, and which have answered. */
#include "guard/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "base/words.h"
#include "guard/sweep.h"

void ask_init(struct ask *a, const struct ask_options *options)
{
    *a = (struct ask){.options = *options};
}

/* ---- the file ---- */

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

static void remember_file(struct ask *a)
{
    struct stat st;
    a->file_was_there = a->options.done && stat(a->options.done, &st) == 0;
    if (!a->file_was_there)
        return;
    a->file_ino = st.st_ino;
    a->file_size = st.st_size;
    a->file_mtime_ns = mtime_ns(&st);
}

static bool file_is_new(const struct ask *a)
{
    struct stat st;
    if (!a->options.done || stat(a->options.done, &st) < 0)
        return false;
    return !a->file_was_there || st.st_ino != a->file_ino || st.st_size != a->file_size ||
           mtime_ns(&st) != a->file_mtime_ns;
}

/* ---- how it stands ---- */

static bool set_started(struct ask *a, uint64_t now_ns)
{
    if (a->ack != LADDER_NO_ACK)
        return false;
    a->ack = LADDER_ACK_STARTED;
    a->started_ns = now_ns;
    return true;
}

static bool set_done(struct ask *a, const char *by, uint64_t now_ns)
{
    a->ack = LADDER_ACK_DONE;
    a->done_ns = now_ns;
    a->is_open = false;
    snprintf(a->by, sizeof a->by, "%s", by);
    return true;
}

static bool may_answer(const struct ask_peer *p)
{
    return !p->is_gone && p->ack != LADDER_ACK_DONE && p->ack != LADDER_ACK_FAILED;
}

/* After any bad news or answer: is it over? The file comes last, since one who wrote it and then
 * died, or whose command failed later, has made a checkpoint all the same. */
static bool settle_request(struct ask *a, uint64_t now_ns)
{
    size_t waiting = 0, done = 0, failed = 0;
    for (size_t i = 0; i < a->peers; i++) {
        waiting += may_answer(&a->peer[i]);
        done += a->peer[i].ack == LADDER_ACK_DONE;
        failed += a->peer[i].ack == LADDER_ACK_FAILED;
    }
    if (waiting == 0 && done > 0 && failed == 0)
        return set_done(a, "mark", now_ns);
    /* One that got the signal does not answer: its file tells, or the mark of its save, and that
     * tells nothing new where ranks answer on the socket. */
    bool awaits_signalled = a->signalled_count > 0 && (a->peers == 0 || a->options.done);
    if (waiting > 0 || a->command_pid != 0 || awaits_signalled)
        return false;
    if (file_is_new(a))
        return set_done(a, "file", now_ns);
    a->ack = LADDER_ACK_FAILED;
    a->is_open = false;
    return true;
}

/* Adds one clause to WHY; one that does not fit whole is left out. */
static void ask_add_why(char why[ASK_TEXT_MAX], const char *clause)
{
    size_t len = strlen(why);
    if (len + strlen("; ") + strlen(clause) < ASK_TEXT_MAX)
        snprintf(why + len, ASK_TEXT_MAX - len, "%s%s", len > 0 ? "; " : "", clause);
}

/* ---- by socket ---- */

/* Those whose socket is gone have been forgotten by the request itself. One whose queue is full
 * stays among the asked: without it the checkpoint would not be whole. */
static bool ask_by_socket(struct ask *a, struct mark_receiver *marks)
{
    const struct mark_peer *peers;
    size_t count;
    a->socket_asked = marks ? mark_receiver_request(marks, "CHECKPOINT", a->id) : 0;
    if (a->socket_asked == 0)
        return false;
    count = mark_receiver_peers(marks, &peers);
    for (size_t i = 0; i < count && a->peers < ASK_PEERS; i++)
        if (!peers[i].is_worker)
            a->peer[a->peers++] = (struct ask_peer){.pid = peers[i].pid};
    return true;
}

/* ---- by signal ---- */

/* Who gets it, from the surest knowledge of who trains to the least. */
enum circle { CIRCLE_HELLO, CIRCLE_MAIN, CIRCLE_FIRST, CIRCLE_COUNT };

static bool is_rank(const struct mark_receiver *marks, int32_t pid)
{
    const struct mark_peer *peers;
    size_t count = marks ? mark_receiver_peers(marks, &peers) : 0;
    for (size_t i = 0; i < count; i++)
        if (peers[i].pid == pid)
            return !peers[i].is_worker;
    return false;
}

/* The job's own first process, or what a launcher started. */
static bool is_first_process(struct proc_tree *tree, const struct proc_node *n)
{
    const struct proc_node *parent = proc_tree_find(tree, n->info.ppid);
    return n->info.role == ROLE_OTHER && (!parent || parent->info.role == ROLE_LAUNCHER);
}

/* Our command is below the same subreaper as the job, so the tree holds it as well. */
static bool is_of_command(const struct ask *a, struct proc_tree *tree, const struct proc_node *n)
{
    enum { DEPTH_MAX = 64 }; /* parents read at different moments may form a ring */

    for (int i = 0; a->command_pid != 0 && n && i < DEPTH_MAX; i++) {
        if (n->info.id.pid == a->command_pid)
            return true;
        n = proc_tree_find(tree, n->info.ppid);
    }
    return false;
}

static bool is_in_circle(const struct ask *a, const struct mark_receiver *marks,
                         struct proc_tree *tree, const struct proc_node *n, enum circle circle)
{
    if (is_of_command(a, tree, n))
        return false;
    switch (circle) {
    case CIRCLE_HELLO:
        return is_rank(marks, n->info.id.pid);
    case CIRCLE_MAIN:
        return n->info.role == ROLE_MAIN;
    case CIRCLE_FIRST:
        return is_first_process(tree, n);
    case CIRCLE_COUNT:
        break;
    }
    return false;
}

static enum circle choose_circle(const struct ask *a, const struct mark_receiver *marks,
                                 struct proc_tree *tree)
{
    for (enum circle c = CIRCLE_HELLO; c < CIRCLE_COUNT; c++)
        for (size_t i = 0; i < proc_tree_count(tree); i++)
            if (is_in_circle(a, marks, tree, proc_tree_at(tree, i), c))
                return c;
    return CIRCLE_COUNT;
}

/* By the mask of caught signals in status. The name, which stands before it, cannot forge it: the
 * kernel escapes newlines there. */
static bool catches_signal(struct proc_tree *tree, struct proc_node *n, int signo)
{
    char text[8192];
    AUTO_CLOSE int fd = proc_node_open(tree, n, "status", O_RDONLY);
    bool is_read = fd >= 0 && io_pread_small(fd, text, sizeof text) > 0;
    const char *line = is_read ? strstr(text, "\nSigCgt:") : NULL;
    return line && signo >= 1 && signo <= 64 &&
           strtoull(line + strlen("\nSigCgt:"), NULL, 16) >> (signo - 1) & 1;
}

static int signal_rank(struct ask *a, struct proc_tree *tree, struct proc_node *n)
{
    int r;
    if (a->signalled_count == ASK_PEERS)
        return -ENOSPC;
    if (!catches_signal(tree, n, a->options.signo))
        return -ENOTSUP;
    r = guard_signal(proc_tree_root(tree), &n->info.id, a->options.signo);
    if (r == 0)
        a->signalled[a->signalled_count++] = n->info.id.pid;
    return r;
}

static void explain_not_signalled(const struct ask *a, const struct proc_node *n, int code,
                                  char why[ASK_TEXT_MAX])
{
    enum { NAME_COLUMNS = 24 };
    char clause[200], name[4 * NAME_COLUMNS + 4], signal[WORDS_SIGNAL_MAX];
    text_fit(name, sizeof name, NAME_COLUMNS, n->info.comm, n->info.comm_len);
    words_signal_name(signal, a->options.signo);
    if (code == -ENOTSUP)
        snprintf(clause, sizeof clause, "process %d (%s) does not catch %s, which might end it",
                 n->info.id.pid, name, signal);
    else
        snprintf(clause, sizeof clause, "process %d (%s) did not get %s: %s", n->info.id.pid, name,
                 signal, strerror(-code));
    ask_add_why(why, clause);
}

static bool ask_by_signal(struct ask *a, const struct mark_receiver *marks, struct proc_tree *tree,
                          char why[ASK_TEXT_MAX])
{
    enum circle circle;
    bool is_explained = false;
    if (a->options.signo == 0)
        return false;
    circle = choose_circle(a, marks, tree);
    if (circle == CIRCLE_COUNT)
        ask_add_why(why, "no process of the job is known to train, so none got the signal");
    for (size_t i = 0; i < proc_tree_count(tree) && circle != CIRCLE_COUNT; i++) {
        struct proc_node *n = proc_tree_at(tree, i);
        int r = is_in_circle(a, marks, tree, n, circle) ? signal_rank(a, tree, n) : 0;
        if (r < 0 && !is_explained) { /* one is enough of an example */
            explain_not_signalled(a, n, r, why);
            is_explained = true;
        }
    }
    a->signal_asked = (int)a->signalled_count;
    return a->signal_asked > 0;
}

/* ---- by command ---- */

/* Our environment with ID in place of any EBB_CHECKPOINT_ID. The strings are borrowed. */
static char **environment_with(char *id)
{
    size_t count = 0, out = 0;
    char **env;
    while (environ[count])
        count++;
    env = calloc(count + 2, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "EBB_CHECKPOINT_ID=", strlen("EBB_CHECKPOINT_ID=")) != 0)
            env[out++] = environ[i];
    env[out] = id;
    return env;
}

/* 0 or an errno, as the calls of posix_spawn have it. */
static int spawn_shell(const char *command, char *const *env, pid_t *ret)
{
    static char name[] = "sh", option[] = "-c";
    char *argv[] = {name, option, (char *)(uintptr_t)command, NULL};
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
        r = posix_spawn(ret, "/bin/sh", &streams, &attr, argv, env);
    posix_spawn_file_actions_destroy(&streams);
    posix_spawnattr_destroy(&attr);
    return r;
}

static bool ask_by_command(struct ask *a, char why[ASK_TEXT_MAX])
{
    char id[48], clause[128];
    int r;
    if (!a->options.command)
        return false;
    if (a->command_pid != 0)
        return true;
    snprintf(id, sizeof id, "EBB_CHECKPOINT_ID=%" PRIu64, a->id);
    AUTO_FREE char **env = environment_with(id);
    r = env ? spawn_shell(a->options.command, env, &a->command_pid) : ENOMEM;
    if (r == 0)
        return true;
    a->command_pid = 0;
    snprintf(clause, sizeof clause, "the command of --checkpoint-cmd could not be started: %s",
             strerror(r));
    ask_add_why(why, clause);
    return false;
}

/* ---- asking ---- */

static size_t count_ranks(const struct mark_receiver *marks)
{
    const struct mark_peer *peers;
    size_t count = marks ? mark_receiver_peers(marks, &peers) : 0;
    size_t ranks = 0;
    for (size_t i = 0; i < count; i++)
        ranks += !peers[i].is_worker;
    return ranks;
}

bool ask_can(const struct ask *a, const struct mark_receiver *marks, char why[ASK_TEXT_MAX])
{
    why[0] = '\0';
    if (count_ranks(marks) > 0 || a->options.signo != 0 || a->options.command)
        return true;
    ask_add_why(why, "no rank has said hello on EBB_SOCKET, and neither --checkpoint-signal nor "
                     "--checkpoint-cmd is given");
    return false;
}

int ask_now(struct ask *a, uint64_t now_ns, struct mark_receiver *marks, struct proc_tree *tree,
            char why[ASK_TEXT_MAX])
{
    int ways = 0;
    (void)ask_can(a, marks, why); /* for the reason */
    a->awaits_file = false;
    a->started_ns = a->done_ns = 0;
    a->ack = LADDER_NO_ACK;
    a->socket_asked = a->signal_asked = 0;
    a->peers = a->signalled_count = 0;
    a->path[0] = a->by[0] = '\0';
    a->id = ++a->last_id;
    a->asked_ns = now_ns;
    remember_file(a);
    ways += ask_by_socket(a, marks);
    ways += ask_by_signal(a, marks, tree, why);
    ways += ask_by_command(a, why);
    if (ways == 0 && why[0] == '\0')
        ask_add_why(why, "no rank that had said hello on EBB_SOCKET could be reached");
    a->is_open = ways > 0;
    if (ways == 0)
        a->ack = LADDER_ACK_FAILED;
    return ways;
}

int ask_stop(struct ask *a, struct mark_receiver *marks)
{
    return marks ? mark_receiver_request(marks, "STOP", ++a->last_id) : 0;
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

/* Of several ranks the first that names a path is believed. One that does not fit is not kept: cut
 * short it would name something else. */
static void note_path(struct ask *a, const struct mark *m)
{
    size_t len;
    const char *path = mark_get(m, "PATH", &len);
    if (!path || a->path[0] != '\0' || len >= sizeof a->path)
        return;
    memcpy(a->path, path, len);
    a->path[len] = '\0';
}

static enum ladder_ack ack_status(const struct mark *m)
{
    if (mark_value_is(m, "STATUS", "started"))
        return LADDER_ACK_STARTED;
    if (mark_value_is(m, "STATUS", "done"))
        return LADDER_ACK_DONE;
    return mark_value_is(m, "STATUS", "failed") ? LADDER_ACK_FAILED : LADDER_NO_ACK;
}

/* Among those whose pid is not known: one that begins has not begun before, one that ends has. */
static struct ask_peer *find_nameless(struct ask *a, enum ladder_ack status)
{
    struct ask_peer *other = NULL;
    for (size_t i = 0; i < a->peers; i++) {
        struct ask_peer *p = &a->peer[i];
        if (p->pid != 0 || !may_answer(p))
            continue;
        if ((p->ack == LADDER_ACK_STARTED) == (status != LADDER_ACK_STARTED))
            return p;
        other = p;
    }
    return other;
}

/* Whose answer is it? Where only one was asked it may have sent a helper of its own (`ebb mark`).
 */
static struct ask_peer *find_answering(struct ask *a, int32_t pid, enum ladder_ack status)
{
    struct ask_peer *p;
    for (size_t i = 0; i < a->peers && pid != 0; i++)
        if (a->peer[i].pid == pid)
            return may_answer(&a->peer[i]) ? &a->peer[i] : NULL;
    p = find_nameless(a, status);
    if (p)
        return p;
    return a->peers == 1 && may_answer(&a->peer[0]) ? &a->peer[0] : NULL;
}

/* Where no rank was asked by socket it is the command that knows the number, from its environment.
 * Its exit status reports a failure. */
static bool apply_ack_of_command(struct ask *a, const struct mark *m, enum ladder_ack status)
{
    if (status == LADDER_ACK_STARTED)
        return set_started(a, m->t_ns);
    if (status != LADDER_ACK_DONE)
        return false;
    note_path(a, m);
    return set_done(a, "mark", m->t_ns);
}

static bool apply_ack(struct ask *a, const struct mark *m)
{
    enum ladder_ack status = ack_status(m);
    struct ask_peer *p = find_answering(a, m->pid, status);
    if (a->peers == 0)
        return apply_ack_of_command(a, m, status);
    if (status == LADDER_NO_ACK || !p)
        return false;
    p->ack = status;
    if (status == LADDER_ACK_STARTED)
        return set_started(a, m->t_ns);
    if (status == LADDER_ACK_DONE)
        note_path(a, m);
    return settle_request(a, m->t_ns);
}

bool ask_mark(struct ask *a, const struct mark *mark)
{
    if (!a->is_open)
        return false;
    if (mark->kind == MARK_ACK)
        return is_answer_to(mark, a->id) && apply_ack(a, mark);
    if (mark->kind != MARK_SAVE || a->peers > 0)
        return false;
    note_path(a, mark);
    return set_done(a, "mark", mark->t_ns);
}

bool ask_check_file(struct ask *a, uint64_t now_ns)
{
    return a->is_open && file_is_new(a) && set_done(a, "file", now_ns);
}

bool ask_reaped(struct ask *a, pid_t pid, int status, uint64_t now_ns)
{
    if (pid <= 0 || pid != a->command_pid)
        return false;
    a->command_pid = 0;
    if (!a->is_open)
        return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return settle_request(a, now_ns);
    if (!a->options.done)
        return set_done(a, "command", now_ns);
    a->awaits_file = true;
    return ask_check_file(a, now_ns) || set_started(a, now_ns);
}

static bool strike_signalled(struct ask *a, int32_t pid)
{
    for (size_t i = 0; i < a->signalled_count; i++)
        if (a->signalled[i] == pid) {
            a->signalled[i] = a->signalled[--a->signalled_count];
            return true;
        }
    return false;
}

bool ask_died(struct ask *a, int32_t pid, uint64_t now_ns)
{
    bool was_asked = strike_signalled(a, pid);
    for (size_t i = 0; i < a->peers && pid != 0; i++)
        if (a->peer[i].pid == pid) {
            a->peer[i].is_gone = true;
            was_asked = true;
        }
    return a->is_open && was_asked && settle_request(a, now_ns);
}
