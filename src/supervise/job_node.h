/* Coordinates this node with the job's other nodes: heartbeats, checkpoints on all nodes at the
 * same step, and the return of the job to Slurm's queue. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "guard/ladder.h"

struct job;
struct job_node;

/* Connects to the other nodes through the run folder. Does nothing if there is no run folder. */
void job_node_start(struct job *j);
void job_node_free(struct job *j);
void job_node_tick(struct job *j);

/* Requests a checkpoint from the ranks of all nodes. All nodes confirm the request before any of
 * them sends it to its ranks, so that the ranks can agree on one step. Returns false if there are
 * no other nodes; the caller then sends the request to its own ranks. */
bool job_node_request(struct job *j, const char *why);
/* Returns the answer of all nodes together to the request of job_node_request. The answer is
 * LADDER_ACK_DONE once the ranks of every node have acknowledged. */
enum ladder_ack job_node_ack(const struct job *j);
/* Call this when the answer of this node's own ranks has changed. */
void job_node_acked(struct job *j);
/* Stops the ranks of all nodes, including this one. With --requeue, instead returns the job to
 * Slurm's queue; Slurm then stops the ranks. */
void job_node_stop(struct job *j, const char *why);
/* Call this when the ranks of this node were killed. Stops the ranks of the other nodes, because
 * they would wait for the killed ranks for ever. */
void job_node_killed(struct job *j, const char *why);
/* Call this when the time limit is near: requests a checkpoint and then requeues the job. */
void job_node_time_limit(struct job *j);
/* Call this when a child other than the job was reaped. That child may be scontrol. */
void job_node_reaped(struct job *j, pid_t pid, int status);
