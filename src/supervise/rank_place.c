/* Reads the variables of Slurm and torchrun. */
#include "supervise/rank_place.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/number.h"
#include "trace/rundir.h"

/* Reads a number from the first of two variables that is set. */
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

/* Finds the entry of NODE in Slurm's list of tasks per node, such as "2(x3),1". Returns 0 if there
 * is none. */
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

/* If torchrun runs under srun, the ranks are torchrun's and the nodes are Slurm's. */
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

/* A checksum of variables that are the same for all ranks of a step, but differ between launchers.
 */
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
        /* the number of ranks is unknown, so the supervisor waits a little for more of them */
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
