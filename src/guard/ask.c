/* One request for a checkpoint: who is asked by which way, and who has answered. */
#include "guard/ask.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "guard/ask_private.h"

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

struct tally {
    size_t waiting, done, failed;
};

static struct tally count_answers(const struct ask *a)
{
    struct tally t = {0};

    for (size_t i = 0; i < a->peers; i++) {
        t.waiting += may_answer(&a->peer[i]);
        t.done += a->peer[i].ack == LADDER_ACK_DONE;
        t.failed += a->peer[i].ack == LADDER_ACK_FAILED;
    }
    return t;
}

/* One that got the signal says nothing itself: it is heard by the file or by the mark of its save,
 * and the latter tells nothing new where ranks answer on the socket. */
static bool signal_may_be_heard(const struct ask *a)
{
    return a->signalled_count > 0 && (a->peers == 0 || a->options.done);
}

/* After any bad news or answer: is it over? The file comes last, since one who wrote it and then
 * died, or whose command failed later, has made a checkpoint all the same. */
static bool settle(struct ask *a, uint64_t now_ns)
{
    struct tally t = count_answers(a);

    if (t.waiting == 0 && t.done > 0 && t.failed == 0)
        return set_done(a, "mark", now_ns);
    if (t.waiting > 0 || a->command_pid != 0 || signal_may_be_heard(a))
        return false;
    if (file_is_new(a))
        return set_done(a, "file", now_ns);
    a->ack = LADDER_ACK_FAILED;
    a->is_open = false;
    return true;
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

static void forget_last(struct ask *a)
{
    a->awaits_file = false;
    a->asked_ns = a->started_ns = a->done_ns = 0;
    a->ack = LADDER_NO_ACK;
    a->socket_asked = a->signal_asked = 0;
    a->peers = a->signalled_count = 0;
    a->path[0] = a->by[0] = '\0';
}

int ask_now(struct ask *a, uint64_t now_ns, struct mark_receiver *marks, struct proc_tree *tree,
            char why[ASK_TEXT_MAX])
{
    int ways = 0;

    (void)ask_can(a, marks, why); /* for the reason */
    forget_last(a);
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

/* ---- hearing ---- */

static bool value_is(const struct mark *m, const char *key, const char *value)
{
    size_t len;
    const char *s = mark_get(m, key, &len);

    return s && len == strlen(value) && memcmp(s, value, len) == 0;
}

static bool is_answer_to(const struct mark *m, uint64_t id)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, id);
    return value_is(m, "ID", text);
}

/* Of several ranks the first that names a path is believed. One that does not fit is not kept: cut
 * short it would name something else. */
static void take_path(struct ask *a, const struct mark *m)
{
    size_t len;
    const char *path = mark_get(m, "PATH", &len);

    if (!path || a->path[0] != '\0' || len >= sizeof a->path)
        return;
    memcpy(a->path, path, len);
    a->path[len] = '\0';
}

static enum ladder_ack status_of(const struct mark *m)
{
    if (value_is(m, "STATUS", "started"))
        return LADDER_ACK_STARTED;
    if (value_is(m, "STATUS", "done"))
        return LADDER_ACK_DONE;
    return value_is(m, "STATUS", "failed") ? LADDER_ACK_FAILED : LADDER_NO_ACK;
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
 * That it failed its exit will tell. */
static bool take_ack_of_command(struct ask *a, const struct mark *m, enum ladder_ack status)
{
    if (status == LADDER_ACK_STARTED)
        return set_started(a, m->t_ns);
    if (status != LADDER_ACK_DONE)
        return false;
    take_path(a, m);
    return set_done(a, "mark", m->t_ns);
}

static bool take_ack(struct ask *a, const struct mark *m)
{
    enum ladder_ack status = status_of(m);
    struct ask_peer *p = find_answering(a, m->pid, status);

    if (a->peers == 0)
        return take_ack_of_command(a, m, status);
    if (status == LADDER_NO_ACK || !p)
        return false;
    p->ack = status;
    if (status == LADDER_ACK_STARTED)
        return set_started(a, m->t_ns);
    if (status == LADDER_ACK_DONE)
        take_path(a, m);
    return settle(a, m->t_ns);
}

bool ask_mark(struct ask *a, const struct mark *mark)
{
    if (!a->is_open)
        return false;
    if (mark->kind == MARK_ACK)
        return is_answer_to(mark, a->id) && take_ack(a, mark);
    if (mark->kind != MARK_SAVE || a->peers > 0)
        return false;
    take_path(a, mark);
    return set_done(a, "mark", mark->t_ns);
}

bool ask_look(struct ask *a, uint64_t now_ns)
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
        return settle(a, now_ns);
    if (!a->options.done)
        return set_done(a, "command", now_ns);
    a->awaits_file = true;
    return ask_look(a, now_ns) || set_started(a, now_ns);
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
    return a->is_open && was_asked && settle(a, now_ns);
}
