/* The shared folder of a job that runs on several nodes, ebb-runs/JOB.STEP/, in which each node has
 * a run folder node-NN (docs/reference/nodes.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "supervise/rank.h"
#include "trace/rundir.h"

struct err;

struct node_folder_options {
    const struct rank_place *place;
    const char *job_dir; /* the shared folder; NULL: ebb-runs/JOB.STEP in the working directory */
    const char *name;    /* name of the job */
    char *const *command;
    uint64_t wall_ns;
};

enum { NODE_FOLDER_MAX = 32 };

/* Creates job.json and the empty file `request` unless another node has created them. Then creates
 * this node's folder: node-NN, or node-NN.1 and so on if this node had supervisors before. */
int node_folder_create(const struct node_folder_options *o, struct rundir *ret, struct err *err);
/* Finds the latest folder of node NUMBER in the job's folder. A node has a folder for each of its
 * supervisors. Returns false, with RET unchanged, if there is none. */
bool node_folder_newest(int job_fd, uint32_t number, char ret[NODE_FOLDER_MAX]);
