/* Internals of the multi-node view: cluster.c finds the nodes, cluster_node.c reads one node,
 * cluster_ranks.c judges the ranks. */
#pragma once

#include "judge/cluster.h"

/* Reads the new parts of N's folder: run.json, the recording, the heartbeat. */
bool cluster_node_refresh(const struct cluster *c, struct cluster_node *n, uint64_t now_ns);
/* Judges node N without a comparison with other nodes. */
int cluster_node_judge(struct cluster_node *n, bool has_heaps);
/* Discards everything read from the folder of N, so that another folder can be read. */
void cluster_node_reset(struct cluster_node *n);
/* cluster_judge_ranks builds the list of ranks with the verdicts on the ranks and on the job;
 * cluster_drop_ranks frees the list. */
void cluster_drop_ranks(struct cluster *c);
int cluster_judge_ranks(struct cluster *c);
