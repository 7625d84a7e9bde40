/* Accepts connections from the ranks of a node, keeps track of the ranks, and ends the node's run
 * after the last rank has ended. */
#include "supervise/job.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/read.h"
#include "base/json.h"
#include "base/loop.h"
#include "guard/sweep.h"
#include "supervise/rank.h"

enum {
    RANKS_MAX = 4096,
    /* after all known ranks have ended, wait this many seconds for ranks that start late */
    LATE_S = 3,
};

/* The connection to one `ebb run`. */
struct rank_client {
    struct job *j;
    int fd;
    struct loop_source *source;
    int32_t pid; /* pid of `ebb run` */
    /* index of the client's rank in outcome.ranks; SIZE_MAX until the client has sent "hello" */
    size_t index;
    bool is_live;    /* true after the client has sent "hello" and until its rank has ended */
    bool awaits_bye; /* the client's rank was the last to end, and run.json is not written yet */
    json_t *bye;     /* answer to the message "ended" */
};

struct job_ranks {
    struct loop_source *listen_source, *late_timer;
    struct rank_client **clients;
    size_t count, live;
    bool has_failed;
    int status; /* wait status of the first rank that failed */
    bool is_over;
};

static struct outcome_rank *rank_of(const struct rank_client *c)
{
    return c->index < c->j->outcome.rank_count ? &c->j->outcome.ranks[c->index] : NULL;
}

/* Makes the next tick write run.json again, because the list of ranks in run.json has changed. */
static void list_changed(struct job *j)
{
    j->is_announced = false;
}

/* ---- the end of the node's run ---- */

/* Kills the stand-in process (spawn_holder). Its exit ends the node's segment, as the exit of a job
 * ends its segment. */
static void node_over(struct job *j)
{
    struct job_ranks *r = j->ranks;
    if (r->is_over)
        return;
    r->is_over = true;
    /* a rank that starts later cannot connect here, so its `ebb run` starts a new supervisor */
    loop_remove(r->listen_source);
    r->listen_source = NULL;
    close(j->options->node->listen_fd);
    /* this child has not been reaped yet, so its pid cannot have been reused */
    kill(j->now.pid, SIGKILL);
}

static void on_late(void *user, uint64_t now_ns)
{
    struct job *j = user;
    (void)now_ns;
    if (j->ranks->live == 0)
        node_over(j);
}

static void check_over(struct job *j)
{
    struct job_ranks *r = j->ranks;
    if (r->live > 0 || j->outcome.rank_count == 0)
        return;
    if (j->outcome.rank_count >= j->options->node->place->local_ranks)
        node_over(j);
    else
        loop_set_timer(r->late_timer, clock_mono_ns() + LATE_S * NS_PER_S, 0);
}

/* ---- one rank ---- */

static void client_free(struct rank_client *c)
{
    loop_remove(c->source);
    if (c->fd >= 0)
        close(c->fd);
    json_decref(c->bye);
    free(c);
}

static void rank_ended(struct rank_client *c, bool has_status, int status)
{
    struct job *j = c->j;
    struct job_ranks *r = j->ranks;
    struct outcome_rank *rank = rank_of(c);
    if (!rank || !c->is_live)
        return;
    c->is_live = false;
    r->live--;
    snprintf(rank->state, sizeof rank->state, "ended");
    rank->has_ended_t_s = true;
    rank->ended_t_s = job_seconds(j, clock_mono_ns());
    if (has_status) {
        const struct outcome_end end = outcome_end_of_status(status);
        rank->has_status = true;
        rank->status = end.status;
        rank->has_signal = end.has_signal_number;
        rank->signal = end.signal_number;
    }
    if (has_status && status != 0 && !r->has_failed) {
        r->has_failed = true;
        r->status = status;
    }
    list_changed(j);
}

/* Answers a client that reported the end of its rank. The last rank of the node receives the answer
 * only after run.json is written, because Slurm kills all other processes of a step when the last
 * task of the step exits. */
static void say_bye(struct rank_client *c)
{
    if (c->bye && c->fd >= 0)
        rank_link_send(c->fd, json_incref(c->bye));
    json_decref(c->bye);
    c->bye = NULL;
    c->awaits_bye = false;
}

static void release_waiting(struct job_ranks *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->clients[i]->awaits_bye)
            say_bye(r->clients[i]);
}

static void take_end(struct rank_client *c, int status)
{
    struct job *j = c->j;
    char why[DEATH_TEXT] = "";
    enum cause cause = WIFSIGNALED(status) ? job_cause_of(j, status, why) : CAUSE_UNKNOWN;
    rank_ended(c, true, status);
    json_decref(c->bye);
    c->bye = json_pack("{s:b}", "bye", 1);
    if (cause == CAUSE_OOM_GROUP || cause == CAUSE_OOM_HOST || job_is_guard_stop(&j->now))
        json_object_set_new(c->bye, "why", json_text0(why[0] ? why : j->now.why));
    if (job_is_guard_stop(&j->now))
        json_object_set_new(c->bye, "status", json_integer(JOB_GUARD_STATUS));
    c->awaits_bye = j->ranks->live == 0;
    if (!c->awaits_bye)
        say_bye(c);
    check_over(j);
}

static int64_t message_number(const json_t *doc, const char *key)
{
    const json_t *v = json_object_get(doc, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static json_t *environment_json(const struct job *j)
{
    static const char *const names[] = {"EBB_SOCKET", "EBB_RUN_DIR", "EBB_RESUME", "EBB_SEGMENT",
                                        "EBB_LIMIT_BYTES"};
    json_t *env = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_object_set_new(env, names[i], json_text0(getenv(names[i])));
    json_t *doc = json_pack("{s:o}", "env", env);
    json_object_set_new(doc, "shim", json_text0(j->heap.shim));
    json_object_set_new(doc, "library", json_text0(j->heap.collect ? j->heap.library : ""));
    json_object_set_new(doc, "interval", json_u64(j->options->heap.interval_bytes));
    json_object_set_new(doc, "python", json_boolean(!j->options->heap.no_python));
    return doc;
}

static void take_hello(struct rank_client *c, const json_t *hello)
{
    struct job *j = c->j;
    struct outcome *o = &j->outcome;
    int64_t rank = message_number(hello, "rank"), local = message_number(hello, "local_rank");
    if (c->index != SIZE_MAX || rank < 0 || local < 0 || o->rank_count >= RANKS_MAX)
        return;
    struct outcome_rank *list = reallocarray(o->ranks, o->rank_count + 1, sizeof *list);
    if (!list)
        return;
    o->ranks = list;
    c->index = o->rank_count++;
    list[c->index] = (struct outcome_rank){.rank = (uint32_t)rank,
                                           .local_rank = (uint32_t)local,
                                           .state = "running",
                                           .started_t_s = job_seconds(j, clock_mono_ns())};
    c->is_live = true;
    j->ranks->live++;
    loop_disarm_timer(j->ranks->late_timer);
    /* the clients that waited for the end of the node's run may exit, because this rank now keeps
     * the run going */
    release_waiting(j->ranks);
    rank_link_send(c->fd, environment_json(j));
}

/* True if PID is a child of the `ebb run` that reported it. Other processes are not sampled. */
static bool is_child_of(const struct job *j, int32_t pid, int32_t parent, uint64_t *ret_ticks)
{
    struct proc_stat stat;
    if (proc_read_stat(j->options->engine.root, pid, &stat) < 0 || stat.ppid != parent)
        return false;
    *ret_ticks = stat.start_ticks;
    return true;
}

static void take_start(struct rank_client *c, int64_t pid)
{
    struct job *j = c->j;
    struct outcome_rank *rank = rank_of(c);
    struct err err = {""};
    uint64_t ticks;
    if (!rank || rank->pid || pid <= 0 || pid > INT32_MAX ||
        !is_child_of(j, (int32_t)pid, c->pid, &ticks))
        return;
    rank->pid = (int32_t)pid;
    rank->start_ticks = ticks;
    if (engine_watch_pid(j->engine, rank->pid, &err) == 0)
        engine_sample_now(j->engine);
    list_changed(j);
}

static void take_message(struct rank_client *c, const json_t *doc)
{
    const json_t *hello = json_object_get(doc, "hello");
    int64_t ended = message_number(doc, "ended"), started = message_number(doc, "started");
    if (json_is_object(hello))
        take_hello(c, hello);
    else if (started > 0)
        take_start(c, started);
    else if (message_number(doc, "signal") == SIGUSR1 && job_ranks_first(c->j) == 0)
        /* every rank reports the signal, but job_node_time_limit reacts only once */
        job_node_time_limit(c->j);
    else if (ended >= 0 && c->is_live)
        take_end(c, (int)ended);
}

static void on_rank(void *user, int fd, uint32_t events)
{
    struct rank_client *c = user;
    json_t *doc = NULL;
    int r;
    (void)events;
    while ((r = rank_link_receive(fd, 0, &doc)) > 0) {
        take_message(c, doc);
        json_decref(doc);
    }
    if (r == 0)
        return;
    loop_remove(c->source); /* this `ebb run` has exited, but its rank remains in run.json */
    c->source = NULL;
    close(c->fd);
    c->fd = -1;
    rank_ended(c, false, 0);
    check_over(c->j);
}

static void on_join(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct job_ranks *r = j->ranks;
    (void)events;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
        return;
    struct rank_client *c = calloc(1, sizeof *c);
    struct rank_client **list =
        c && r->count < RANKS_MAX ? reallocarray(r->clients, r->count + 1, sizeof(void *)) : NULL;
    if (list)
        r->clients = list;
    if (!list || !rank_link_is_ours(client, &c->pid) || c->pid <= 0) {
        close(client);
        free(c);
        return;
    }
    *c = (struct rank_client){.j = j, .fd = client, .pid = c->pid, .index = SIZE_MAX};
    if (loop_add_fd(j->loop, client, EPOLLIN, on_rank, c, &c->source) < 0) {
        client_free(c);
        return;
    }
    r->clients[r->count++] = c;
}

/* ---- all ranks ---- */

int job_ranks_start(struct job *j)
{
    struct job_ranks *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    j->ranks = r;
    j->outcome.has_node = true;
    j->outcome.node = (struct outcome_node){.number = j->options->node->place->node,
                                            .nodes = j->options->node->place->nodes};
    int e = loop_add_timer(j->loop, clock_mono_ns() + 10 * LATE_S * NS_PER_S, 0, on_late, j,
                           &r->late_timer);
    if (e == 0)
        e = loop_add_fd(j->loop, j->options->node->listen_fd, EPOLLIN, on_join, j,
                        &r->listen_source);
    return e;
}

void job_ranks_free(struct job *j)
{
    struct job_ranks *r = j->ranks;
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        client_free(r->clients[i]);
    free(r->clients);
    loop_remove(r->listen_source);
    loop_remove(r->late_timer);
    free(r);
    j->ranks = NULL;
}

/* Returns the connected `ebb run` with the lowest rank, or NULL. */
static struct rank_client *first_client(const struct job *j)
{
    const struct job_ranks *r = j->ranks;
    struct rank_client *first = NULL;
    uint32_t lowest = UINT32_MAX;
    for (size_t i = 0; i < r->count; i++) {
        const struct outcome_rank *rank = rank_of(r->clients[i]);
        if (r->clients[i]->fd < 0 || !rank || rank->rank >= lowest)
            continue;
        first = r->clients[i];
        lowest = rank->rank;
    }
    return first;
}

void job_ranks_say(struct job *j, const char *sentence)
{
    const struct rank_client *first = first_client(j);
    if (first)
        rank_link_send(first->fd, json_pack("{s:o}", "say", json_text0(sentence)));
}

void job_ranks_kill(struct job *j)
{
    const struct proc_root *root = j->options->engine.root;
    struct proc_tree *tree = engine_tree(j->engine);
    for (size_t i = 0; i < proc_tree_count(tree); i++)
        guard_signal(root, &proc_tree_at(tree, i)->info.id, SIGKILL);
}

int job_ranks_status(const struct job *j)
{
    return j->ranks->status;
}

int64_t job_ranks_first(const struct job *j)
{
    uint32_t first = j->ranks && j->outcome.rank_count ? UINT32_MAX : 0;
    for (size_t i = 0; j->ranks && i < j->outcome.rank_count; i++)
        first = j->outcome.ranks[i].rank < first ? j->outcome.ranks[i].rank : first;
    return first;
}

void job_ranks_finished(struct job *j)
{
    bool prints = j->outcome.rank_count && job_ranks_first(j) == 0;
    for (size_t i = 0; j->ranks && i < j->ranks->count; i++) {
        struct rank_client *c = j->ranks->clients[i];
        if (!c->awaits_bye)
            continue;
        if (prints && j->options->rundir.fd >= 0)
            json_object_set_new(c->bye, "print", json_text0(j->options->rundir.path));
        prints = false;
        say_bye(c);
    }
}
