/* Coordinates checkpoints and the end of the job between this node and the job's other nodes. */
#include "supervise/job.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "judge/judge.h"
#include "supervise/node_bus.h"
#include "supervise/rank.h"

enum {
    READY_MS = 2500, /* maximum wait for nodes to confirm a request */
    REQUEUE_S = 15,  /* maximum duration of scontrol */
    LAST_BEAT_S = 2, /* maximum wait for the shared folder at the end */
    /* when the time limit is near: maximum wait for the requested checkpoint */
    CHECKPOINT_S = 60,
};

static const char time_limit_why[] = "the time limit is near";

struct job_node {
    struct node_bus *bus; /* NULL if there is no shared folder */
    struct loop_source *bus_source, *timer;
    /* request made by this node; its phase is NODE_NONE if there is none */
    struct node_request mine;
    struct node_request theirs; /* the request of another node, which this node answers */
    struct node_answers answers;
    /* the time limit is near; the job is requeued even if the checkpoint that was requested for
     * this reason fails */
    bool is_time_limit;
    pid_t requeue_pid; /* pid of scontrol, or 0 */
    bool has_requeued;
    char stop_why[NODE_WHY_MAX];
};

static const struct rank_place *place_of(const struct job *j)
{
    return j->options->node->place;
}

/* ---- stopping all nodes ---- */

static void stop_ranks(struct job *j, const char *why)
{
    job_set_cause(&j->now, CAUSE_GUARD, why);
    checkpoint_send_stop(&j->guard.checkpoint, j->marks);
    job_term(j);
}

static void publish(struct job *j, enum node_phase phase, const char *why)
{
    struct job_node *n = j->node;
    if (!n->mine.id[0])
        snprintf(n->mine.id, sizeof n->mine.id, "%02u-%" PRIx64, place_of(j)->node,
                 clock_wall_ns() / NS_PER_MS);
    n->mine.node = place_of(j)->node;
    n->mine.phase = phase;
    if (why != n->mine.why)
        snprintf(n->mine.why, sizeof n->mine.why, "%s", why);
    if (n->bus)
        node_bus_request(n->bus, &n->mine);
}

static void stop_all(struct job *j)
{
    struct job_node *n = j->node;
    publish(j, NODE_STOP, n->stop_why);
    stop_ranks(j, n->stop_why);
}

/* Starts `scontrol requeue`. Slurm then ends the job's processes and starts it again later. */
static void requeue(struct job *j)
{
    static char name[] = "scontrol", verb[] = "requeue";
    struct job_node *n = j->node;
    char *argv[] = {name, verb, (char *)(uintptr_t)place_of(j)->job_id, NULL};
    if (n->requeue_pid || n->has_requeued)
        return;
    unsetenv("LD_PRELOAD"); /* LD_PRELOAD is meant for the ranks, not for scontrol */
    int r = checkpoint_spawn(argv, &n->requeue_pid);
    if (r) {
        job_notifyf(j, "--requeue: cannot start scontrol: %s", strerror(r));
        stop_all(j);
        return;
    }
    loop_set_timer(n->timer, clock_mono_ns() + REQUEUE_S * NS_PER_S, 0);
    job_notifyf(j, "guard: requeuing job %s in Slurm", place_of(j)->job_id);
}

static void requeue_at_time_limit(struct job *j)
{
    snprintf(j->node->stop_why, sizeof j->node->stop_why, "%s", time_limit_why);
    job_set_cause(&j->now, CAUSE_REQUEUED, time_limit_why);
    requeue(j);
}

void job_node_reaped(struct job *j, pid_t pid, int status)
{
    struct job_node *n = j->node;
    if (!n || pid != n->requeue_pid || WIFSTOPPED(status) || WIFCONTINUED(status))
        return;
    n->requeue_pid = 0;
    n->has_requeued = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (n->has_requeued)
        return;
    job_notifyf(j, "--requeue: scontrol requeue %s failed; stopping the job", place_of(j)->job_id);
    if (j->now.ending == RUNNING)
        stop_all(j);
}

void job_node_stop(struct job *j, const char *why)
{
    snprintf(j->node->stop_why, sizeof j->node->stop_why, "%s", why);
    if (j->options->guard.requeue)
        requeue(j);
    else
        stop_all(j);
}

void job_node_killed(struct job *j, const char *why)
{
    if (j->node && j->options->guard.requeue)
        requeue(j);
    else if (j->node)
        publish(j, NODE_STOP, why);
}

/* ---- a checkpoint of all nodes ---- */

static bool has_others(const struct job_node *n)
{
    return n->bus && n->answers.others > 0;
}

/* Sends the request to the ranks of this node. */
static void ask_ranks(struct job *j, const char *id)
{
    struct job_node *n = j->node;
    if (n->bus)
        node_bus_answer(n->bus, id, NODE_ASKED);
    job_guard_request_checkpoint(j, clock_mono_ns());
    if (!j->guard.checkpoint.is_open && n->bus)
        node_bus_answer(n->bus, id, NODE_FAILED);
}

static void go(struct job *j)
{
    struct job_node *n = j->node;
    publish(j, NODE_GO, n->mine.why);
    uint64_t wait_ns = (n->is_time_limit ? CHECKPOINT_S : 24 * 3600) * NS_PER_S;
    loop_set_timer(n->timer, clock_mono_ns() + wait_ns, 0);
    ask_ranks(j, n->mine.id);
}

bool job_node_request(struct job *j, const char *why)
{
    struct job_node *n = j->node;
    if (!n || !n->bus || place_of(j)->nodes < 2)
        return false;
    if (n->theirs.phase == NODE_READY || n->theirs.phase == NODE_GO)
        return true; /* another node has already requested a checkpoint */
    n->mine = (struct node_request){.id = ""};
    publish(j, NODE_READY, why);
    n->answers = (struct node_answers){.others = 0};
    node_bus_follow(n->bus, n->mine.id);
    loop_set_timer(n->timer, clock_mono_ns() + READY_MS * NS_PER_MS, 0);
    return true;
}

enum ladder_ack job_node_ack(const struct job *j)
{
    const struct job_node *n = j->node;
    enum ladder_ack own = j->guard.checkpoint.ack;
    if (!n || n->mine.phase == NODE_NONE)
        return own;
    if (n->mine.phase == NODE_READY)
        return LADDER_NO_ACK;
    if (own != LADDER_ACK_DONE || !has_others(n))
        return own;
    if (n->answers.failed)
        return LADDER_ACK_FAILED;
    return n->answers.done >= n->answers.others ? LADDER_ACK_DONE : LADDER_ACK_STARTED;
}

/* If a checkpoint was requested because the time limit is near, requeues the job once the
 * checkpoint has been written or has failed. */
static void check_time_limit(struct job *j)
{
    struct job_node *n = j->node;
    enum ladder_ack ack = job_node_ack(j);
    if (!n->is_time_limit || n->mine.phase == NODE_READY ||
        (ack != LADDER_ACK_DONE && ack != LADDER_ACK_FAILED))
        return;
    if (ack == LADDER_ACK_FAILED)
        job_notifyf(j, "guard: no checkpoint was written before the time limit");
    n->is_time_limit = false;
    requeue_at_time_limit(j);
}

void job_node_acked(struct job *j)
{
    struct job_node *n = j->node;
    enum ladder_ack ack = j->guard.checkpoint.ack;
    if (!n || (ack != LADDER_ACK_DONE && ack != LADDER_ACK_FAILED))
        return;
    const char *id = n->theirs.phase == NODE_GO ? n->theirs.id : n->mine.id;
    if (n->bus && id[0])
        node_bus_answer(n->bus, id, ack == LADDER_ACK_DONE ? NODE_DONE : NODE_FAILED);
    check_time_limit(j);
}

void job_node_time_limit(struct job *j)
{
    struct job_node *n = j->node;
    if (!n || n->is_time_limit || n->requeue_pid || n->has_requeued || j->now.cause)
        return;
    job_notifyf(j, "guard: requesting a checkpoint: %s", time_limit_why);
    n->is_time_limit = true;
    if (job_node_request(j, time_limit_why))
        return;
    n->mine = (struct node_request){.id = ""};
    go(j);
    if (!j->guard.checkpoint.is_open)
        check_time_limit(j);
}

/* ---- requests of other nodes ---- */

static void take_request(struct job *j, const struct node_request *q)
{
    struct job_node *n = j->node;
    bool is_known = strcmp(q->id, n->theirs.id) == 0;
    if (is_known && q->phase == n->theirs.phase)
        return;
    n->theirs = *q;
    if (q->phase == NODE_READY) {
        node_bus_answer(n->bus, q->id, NODE_READY);
    } else if (q->phase == NODE_GO) {
        job_notifyf(j, "guard: requesting a checkpoint for node %u: %s", q->node, q->why);
        ask_ranks(j, q->id);
    } else if (q->phase == NODE_STOP && j->now.ending == RUNNING && !j->now.cause) {
        char why[LADDER_WHY_MAX];
        snprintf(why, sizeof why, "node %u: %s", q->node, q->why);
        job_notifyf(j, "guard: stopping the ranks of this node at the request of node %u", q->node);
        stop_ranks(j, why);
        loop_set_timer(
            n->timer,
            clock_mono_ns() + (uint64_t)(j->guard.ladder.rules.grace_s * (double)NS_PER_S), 0);
    }
}

static void on_bus(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct job_node *n = j->node;
    struct node_request q;
    (void)fd;
    (void)events;
    node_bus_read(n->bus, &q, &n->answers);
    if (strcmp(n->answers.id, n->mine.id) != 0)
        n->answers = (struct node_answers){.others = 0};
    if (q.id[0])
        take_request(j, &q);
    if (n->mine.phase == NODE_READY && has_others(n) && n->answers.ready >= n->answers.others &&
        n->answers.others + 1 >= place_of(j)->nodes)
        go(j);
    check_time_limit(j);
    job_guard_decide(j, clock_mono_ns());
}

static void on_node_timer(void *user, uint64_t now_ns)
{
    struct job *j = user;
    struct job_node *n = j->node;
    (void)now_ns;
    if (n->requeue_pid) {
        /* scontrol has not been reaped yet, so its pid cannot have been reused */
        kill(n->requeue_pid, SIGKILL);
    } else if (n->theirs.phase == NODE_STOP) {
        job_begin_ending(j, KILLING);
    } else if (n->mine.phase == NODE_READY) {
        go(j); /* do not wait any longer: a node that has not confirmed may be dead */
    } else if (n->is_time_limit) {
        n->is_time_limit = false;
        job_notifyf(j, "guard: no checkpoint was written before the time limit");
        requeue_at_time_limit(j);
    }
}

/* ---- start and ticks ---- */

void job_node_start(struct job *j)
{
    struct job_node *n = calloc(1, sizeof *n);
    char host[65] = "";
    if (!n)
        return;
    gethostname(host, sizeof host - 1);
    const char *name = getenv("SLURMD_NODENAME");
    const struct node_bus_options o = {.node_fd = j->options->rundir.fd,
                                       .node = place_of(j)->node,
                                       .nodes = place_of(j)->nodes,
                                       .host = name ? name : host};
    j->node = n;
    loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_node_timer, j, &n->timer);
    if (o.node_fd >= 0 && node_bus_new(&o, &n->bus) == 0)
        loop_add_fd(j->loop, node_bus_event_fd(n->bus), EPOLLIN, on_bus, j, &n->bus_source);
    job_node_tick(j);
}

static void send_beat(struct job *j, bool has_ended)
{
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    const struct job_guard *g = &j->guard;
    uint64_t limit = g->limit_bytes ? g->limit_bytes : g->effective.limit_bytes;
    struct node_beat beat = {.has_ended = has_ended,
                             .ranks = (uint32_t)j->outcome.rank_count,
                             .has_step = j->now.progress.has_step,
                             .step = j->now.progress.last_step,
                             .has_limit = limit != 0,
                             .limit_bytes = limit,
                             .verdict = tree ? verdict_word_name(tree->result.word) : NULL};
    (void)engine_memory(j->engine, &beat.memory_bytes);
    node_bus_beat(j->node->bus, &beat);
}

void job_node_tick(struct job *j)
{
    if (j->node && j->node->bus)
        send_beat(j, false);
}

void job_node_free(struct job *j)
{
    struct job_node *n = j->node;
    if (!n)
        return;
    loop_remove(n->bus_source);
    loop_remove(n->timer);
    if (n->bus)
        send_beat(j, true);
    node_bus_free(n->bus, LAST_BEAT_S * NS_PER_S);
    free(n);
    j->node = NULL;
}
