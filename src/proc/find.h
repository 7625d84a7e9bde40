/* Finds training jobs among all processes of the machine, with the evidence for each. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

struct find_candidate {
    struct process_info process;
    uint64_t rss_bytes; /* resident memory; for a launcher, that of its largest rank */
    int score;          /* sum of the weights of all evidence; find.c defines the weights */
    int32_t launcher;   /* pid of the launcher; 0 if there is none */
    size_t ranks;       /* number of ranks if PROCESS is their launcher, else 1 */
    /* the evidence in words: "libtorch mapped; /dev/nvidia0 open; training script on its command
     * line" */
    char reasons[256];
};

/* Finds at most MAX training jobs of this user (of all users if /proc permits), best first. The
 * descendants of a candidate, such as its workers, are part of it. The ranks of one torchrun,
 * mpirun or srun are a single candidate, represented by the launcher's process. SELF_PID and its
 * ancestors are never candidates. Returns the number of candidates, which may exceed MAX, or
 * -errno. */
int find_training(const struct proc_root *root, int32_t self_pid, struct find_candidate *ret,
                  size_t max, struct err *err);

/* If PID is a launcher, sets *ret_pid to the training process: the descendant of PID that has torch
 * or jax mapped. If no descendant has, the training process is the only program below PID, or a
 * program that is more than twice as large as any other. If PID is not a launcher, or if several
 * descendants match (the ranks of a torchrun), *ret_pid is PID itself and the whole tree is the
 * job. RET_WHY explains the choice in one line, or is "" if there was nothing to choose. Returns 0,
 * or -ESRCH or -EACCES as proc_tree_add does. */
int find_real_process(const struct proc_root *root, int32_t pid, int32_t *ret_pid,
                      char ret_why[256], struct err *err);
