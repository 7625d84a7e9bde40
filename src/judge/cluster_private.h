/* Internals of the view of several nodes: cluster.c finds the nodes, cluster_node.c reads one,
 * cluster_ranks.c judges. */
#pragma once

#include "judge/cluster.h"

/* Reads the parts of N's folder that are new: run.json, the recording, the heartbeat. */
bool cluster_node_refresh(const struct cluster *c, struct cluster_node *n, uint64_t now_ns);
/* Judges node N without its peers. */
int cluster_node_judge(struct cluster_node *n, bool has_heaps);
/* Forgets the folder of N, so that another one can be read. */
void cluster_node_reset(struct cluster_node *n);
/* Free and build the list of ranks with their verdicts, and the verdict on the job. */
void cluster_drop_ranks(struct cluster *c);
int cluster_judge_ranks(struct cluster *c);
