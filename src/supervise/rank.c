/* Reads the environment variables of Slurm and torchrun, and connects ranks to their node's
 * supervisor. */
#include "supervise/rank.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/number.h"
#include "trace/rundir.h"

/* Reads a number from the variable NAME or, if it is not set, from OTHER. */
static bool place_number(rank_place_get_fn *get, const char *name, const char *other, uint32_t *ret)
{
    const char *text = get(name);
    int64_t v;
    if (!text && other)
        text = get(other);
    if (!text || number_parse_i64(text, strlen(text), &v) < 0 || v < 0 || v > INT32_MAX)
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* Returns the number of tasks of NODE from Slurm's list of tasks per node, such as "2(x3),1"; 0 if
 * the list has no entry for it. */
static uint32_t tasks_of_node(const char *list, uint32_t node)
{
    unsigned tasks, times;
    int used;
    while (list && sscanf(list, "%u%n", &tasks, &used) == 1) {
        list += used;
        times = 1;
        used = 0;
        if (sscanf(list, "(x%u)%n", &times, &used) == 1)
            list += used;
        if (node < times)
            return tasks;
        node -= times;
        list = *list == ',' ? list + 1 : NULL;
    }
    return 0;
}

static bool read_slurm(rank_place_get_fn *get, struct rank_place *p)
{
    const char *job = get("SLURM_JOB_ID"), *step = get("SLURM_STEP_ID");
    if (!job || !step || !place_number(get, "SLURM_PROCID", NULL, &p->rank) ||
        !place_number(get, "SLURM_NODEID", NULL, &p->node) ||
        !place_number(get, "SLURM_LOCALID", NULL, &p->local_rank) ||
        !place_number(get, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", &p->ranks) ||
        !place_number(get, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", &p->nodes))
        return false;
    snprintf(p->job_id, sizeof p->job_id, "%s", job);
    snprintf(p->step_id, sizeof p->step_id, "%s", step);
    (void)place_number(get, "SLURM_RESTART_COUNT", NULL, &p->restarts);
    p->local_ranks = tasks_of_node(get("SLURM_STEP_TASKS_PER_NODE"), p->node);
    p->is_slurm = true;
    return true;
}

/* Reads torchrun's variables. If torchrun runs under srun, only the ranks are taken from them; the
 * nodes come from Slurm's variables. */
static bool read_torchrun(rank_place_get_fn *get, struct rank_place *p)
{
    const char *id = get("TORCHELASTIC_RUN_ID"), *port = get("MASTER_PORT");
    uint32_t node, nodes, again = 0;
    if (!id || !port || !place_number(get, "RANK", NULL, &p->rank) ||
        !place_number(get, "WORLD_SIZE", NULL, &p->ranks) ||
        !place_number(get, "LOCAL_RANK", NULL, &p->local_rank) ||
        !place_number(get, "LOCAL_WORLD_SIZE", NULL, &p->local_ranks) ||
        !place_number(get, "GROUP_RANK", NULL, &node) ||
        !place_number(get, "GROUP_WORLD_SIZE", NULL, &nodes))
        return false;
    (void)place_number(get, "TORCHELASTIC_RESTART_COUNT", NULL, &again);
    p->segment = p->restarts + again;
    if (p->is_slurm)
        return true;
    p->node = node;
    p->nodes = nodes;
    snprintf(p->job_id, sizeof p->job_id, "%s", id);
    snprintf(p->step_id, sizeof p->step_id, "%s", port);
    return true;
}

/* A checksum of variables that are equal for all ranks of one launch, but differ between
 * launches. */
static uint32_t launch_of(rank_place_get_fn *get)
{
    static const char *const names[] = {"SLURM_WORKING_CLUSTER", "SLURM_SRUN_COMM_PORT",
                                        "SLURM_STEP_LAUNCHER_PORT", "MASTER_ADDR"};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = get(names[i]);
        sum = crc32c(sum, text ? text : "", (text ? strlen(text) : 0) + 1);
    }
    return sum;
}

bool rank_place_read(rank_place_get_fn *get, struct rank_place *ret)
{
    struct rank_place p = {.is_slurm = false}, slurm = p;
    if (read_slurm(get, &slurm))
        p = slurm;
    p.segment = p.restarts;
    struct rank_place both = p;
    if (read_torchrun(get, &both))
        p = both;
    else if (!p.is_slurm)
        return false;
    if (p.local_ranks == 0)
        /* The number of ranks is unknown. With 1, the supervisor waits only briefly for further
         * ranks. */
        p.local_ranks = 1;
    if (p.rank >= p.ranks || p.nodes < 1 || p.node >= p.nodes)
        return false;
    p.launch = launch_of(get);
    *ret = p;
    return true;
}

void rank_place_folder(const struct rank_place *p, char ret[RANK_FOLDER_MAX])
{
    char id[RUNDIR_NAME_MAX + 1], step[RUNDIR_NAME_MAX + 1];
    rundir_clean_name(p->job_id, id);
    rundir_clean_name(p->step_id, step);
    int n = snprintf(ret, RANK_FOLDER_MAX, "%.48s.%.32s", id, step);
    if (p->restarts && n > 0 && n < RANK_FOLDER_MAX)
        snprintf(ret + n, RANK_FOLDER_MAX - (size_t)n, ".r%u", p->restarts);
}

socklen_t rank_place_address(const struct rank_place *p, uid_t uid, struct sockaddr_un *ret)
{
    char folder[RANK_FOLDER_MAX];
    rank_place_folder(p, folder);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "ebb/%u/%08x/%.60s/%u/%u",
                     (unsigned)uid, p->launch, folder, p->segment, p->node);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* ---- the connection to the supervisor ---- */

enum { MESSAGE_MAX = 64 << 10, BACKLOG = 1024 };

int rank_link_lead(const struct rank_place *p)
{
    struct sockaddr_un address;
    socklen_t len = rank_place_address(p, geteuid(), &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&address, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int r = -errno;
    close(fd);
    return r;
}

int rank_link_join(const struct rank_place *p)
{
    struct sockaddr_un address;
    socklen_t len = rank_place_address(p, geteuid(), &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, (const struct sockaddr *)&address, len) < 0 ? -errno : 0;
    if (r == 0 && !rank_link_is_ours(fd, NULL))
        r = -EACCES;
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

bool rank_link_is_ours(int fd, int32_t *ret_pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid())
        return false;
    if (ret_pid)
        *ret_pid = (int32_t)peer.pid;
    return true;
}

int rank_link_send(int fd, json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    int r = json_print(&text, doc, 0);
    if (r == 0 && send(fd, text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        r = -errno;
    json_decref(doc);
    return r;
}

int rank_link_receive(int fd, int timeout_ms, json_t **ret)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n = timeout_ms ? poll(&p, 1, timeout_ms) : 1;
    if (n <= 0)
        return n < 0 && errno != EINTR ? -errno : 0;
    AUTO_FREE char *text = malloc(MESSAGE_MAX);
    ssize_t len = text ? recv(fd, text, MESSAGE_MAX, MSG_DONTWAIT) : -1;
    if (len == 0)
        return -EPIPE;
    if (len < 0)
        return !text ? -ENOMEM : errno == EAGAIN || errno == EINTR ? 0 : -errno;
    json_t *doc = json_parse(text, (size_t)len, NULL);
    if (!json_is_object(doc)) {
        json_decref(doc);
        return -EBADMSG;
    }
    *ret = doc;
    return 1;
}
