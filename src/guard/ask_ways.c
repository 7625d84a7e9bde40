/* The three ways in which a job is asked for a checkpoint: by socket, by signal, by command. */
#include "guard/ask_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/text.h"
#include "base/words.h"
#include "guard/sweep.h"

void ask_add_why(char why[ASK_TEXT_MAX], const char *clause)
{
    size_t len = strlen(why);

    if (len + strlen("; ") + strlen(clause) < ASK_TEXT_MAX)
        snprintf(why + len, ASK_TEXT_MAX - len, "%s%s", len > 0 ? "; " : "", clause);
}

/* ---- by socket ---- */

/* Those whose socket is gone have been forgotten by the request itself. One whose queue is full
 * stays among the asked: without it the checkpoint would not be whole. */
bool ask_by_socket(struct ask *a, struct mark_receiver *marks)
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

static bool said_hello(const struct mark_receiver *marks, int32_t pid)
{
    const struct mark_peer *peers;
    size_t count = marks ? mark_receiver_peers(marks, &peers) : 0;

    for (size_t i = 0; i < count; i++)
        if (peers[i].pid == pid)
            return !peers[i].is_worker;
    return false;
}

/* The job's own first process, or what a launcher started. */
static bool is_first(struct proc_tree *tree, const struct proc_node *n)
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
        return said_hello(marks, n->info.id.pid);
    case CIRCLE_MAIN:
        return n->info.role == ROLE_MAIN;
    case CIRCLE_FIRST:
        return is_first(tree, n);
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

/* The mask of caught signals in the text of /proc/PID/status. The name, which stands before it,
 * cannot forge it: the kernel escapes newlines there. */
static bool status_catches(const char *text, int signo)
{
    const char *line = strstr(text, "\nSigCgt:");

    if (!line || signo < 1 || signo > 64)
        return false;
    return strtoull(line + strlen("\nSigCgt:"), NULL, 16) >> (signo - 1) & 1;
}

static bool catches(struct proc_tree *tree, struct proc_node *n, int signo)
{
    char text[8192];
    AUTO_CLOSE int fd = proc_node_open(tree, n, "status", O_RDONLY | O_CLOEXEC);

    return fd >= 0 && io_pread_small(fd, text, sizeof text) > 0 && status_catches(text, signo);
}

static int signal_rank(struct ask *a, struct proc_tree *tree, struct proc_node *n)
{
    int r;

    if (a->signalled_count == ASK_PEERS)
        return -ENOSPC;
    if (!catches(tree, n, a->options.signo))
        return -ENOTSUP;
    r = guard_signal(proc_tree_root(tree), &n->info.id, a->options.signo);
    if (r == 0)
        a->signalled[a->signalled_count++] = n->info.id.pid;
    return r;
}

static void say_not_signalled(const struct ask *a, const struct proc_node *n, int code,
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

bool ask_by_signal(struct ask *a, const struct mark_receiver *marks, struct proc_tree *tree,
                   char why[ASK_TEXT_MAX])
{
    enum circle circle;
    bool has_said = false;

    if (a->options.signo == 0)
        return false;
    circle = choose_circle(a, marks, tree);
    if (circle == CIRCLE_COUNT)
        ask_add_why(why, "no process of the job is known to train, so none got the signal");
    for (size_t i = 0; i < proc_tree_count(tree) && circle != CIRCLE_COUNT; i++) {
        struct proc_node *n = proc_tree_at(tree, i);
        int r = is_in_circle(a, marks, tree, n, circle) ? signal_rank(a, tree, n) : 0;

        if (r < 0 && !has_said) { /* one is enough of an example */
            say_not_signalled(a, n, r, why);
            has_said = true;
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

static int set_up_attributes(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    int r;

    sigemptyset(&none);
    sigfillset(&all);
    r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                           POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnattr_setpgroup(attr, 0);
    if (r == 0)
        r = posix_spawnattr_setsigmask(attr, &none);
    return r == 0 ? posix_spawnattr_setsigdefault(attr, &all) : r;
}

static int set_up_streams(posix_spawn_file_actions_t *streams)
{
    int r = posix_spawn_file_actions_addopen(streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

    return r == 0 ? posix_spawn_file_actions_adddup2(streams, STDERR_FILENO, STDOUT_FILENO) : r;
}

/* 0 or an errno, as the calls of posix_spawn have it. */
static int spawn_shell(const char *command, char *const *env, pid_t *ret)
{
    static char name[] = "sh", option[] = "-c";
    char *argv[] = {name, option, (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t streams;
    posix_spawnattr_t attr;
    int r = posix_spawnattr_init(&attr);

    if (r != 0)
        return r;
    r = posix_spawn_file_actions_init(&streams);
    if (r == 0) {
        r = set_up_streams(&streams);
        if (r == 0)
            r = set_up_attributes(&attr);
        if (r == 0)
            r = posix_spawn(ret, "/bin/sh", &streams, &attr, argv, env);
        posix_spawn_file_actions_destroy(&streams);
    }
    posix_spawnattr_destroy(&attr);
    return r;
}

bool ask_by_command(struct ask *a, char why[ASK_TEXT_MAX])
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
