/* The position of one `ebb run` among the ranks of a job, from the environment variables that Slurm
 * and torchrun set. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

struct rank_place {
    bool is_slurm; /* true if job_id and step_id are Slurm's, false if they are torchrun's */
    char job_id[64];
    /* Slurm's step; for torchrun, the port of the first rank, which identifies the torchrun run */
    char step_id[32];
    uint32_t restarts; /* number of times Slurm has restarted the job */
    uint32_t segment;  /* number of restarts by Slurm plus number of restarts by torchrun */
    uint32_t node, nodes;
    uint32_t rank, ranks;             /* rank in the whole job, and number of ranks in the job */
    uint32_t local_rank, local_ranks; /* rank on this node, and number of ranks on this node */
    /* a checksum that distinguishes jobs with equal ids, for example of two clusters on one
     * machine */
    uint32_t launch;
};

/* Returns the value of an environment variable, or NULL. */
typedef const char *rank_place_get_fn(const char *name);
/* Returns false if this process is not a rank of a Slurm step or of torchrun, or if the variables
 * contradict each other. Also accepts a job with only one rank. */
bool rank_place_read(rank_place_get_fn *get, struct rank_place *ret);

/* The name of the job's folder in ebb-runs: "1234.0", or "1234.0.r2" after the second restart. */
enum { RANK_FOLDER_MAX = 128 };
void rank_place_folder(const struct rank_place *p, char ret[RANK_FOLDER_MAX]);
/* The address at which the supervisor of this node accepts ranks, in the abstract socket namespace.
 * The process that binds the address starts the supervisor, and the kernel frees the address when
 * its owner exits. */
socklen_t rank_place_address(const struct rank_place *p, uid_t uid, struct sockaddr_un *ret);

/* ---- the connection to the supervisor ---- */

/* The connection between the supervisor of a node and the `ebb run` of one rank on it: JSON
 * messages over a Unix socket that keeps message boundaries.
 *
 *   rank → supervisor                          supervisor → rank
 *   {"hello": {"rank": 3, "local_rank": 1}}    {"env": {…}, "shim": "…", "library": "…", …}
 *   {"started": PID}                           {"say": "guard: …"}
 *   {"ended": WAIT_STATUS}                     {"bye": true, "print": …, "why": …, "status": …}
 *   {"signal": 10} */

/* Binds the address of P and listens. A caller that succeeds must start this node's supervisor.
 * Returns a non-blocking fd, -EADDRINUSE if there is a supervisor already, or -errno. */
int rank_link_lead(const struct rank_place *p);
/* Connects to the supervisor of this node, which must belong to the same user. Returns an fd,
 * -ECONNREFUSED if there is none, or -errno. */
int rank_link_join(const struct rank_place *p);
/* True if the process at the other end of FD belongs to this user. RET_PID may be NULL; *RET_PID is
 * 0 if the process is in another pid namespace. */
bool rank_link_is_ours(int fd, int32_t *ret_pid);
/* Sends DOC and releases it. Never blocks and never raises SIGPIPE. Returns 0 or -errno. */
int rank_link_send(int fd, json_t *doc);
/* Receives one message, waiting at most TIMEOUT_MS (0: no wait). Returns 1 with a message, 0 if no
 * message arrived, or -errno: -EPIPE if the other end has closed, -EBADMSG if the message is
 * invalid. */
int rank_link_receive(int fd, int timeout_ms, json_t **ret);
