/* Which of the machine's processes is a training job: candidates with their evidence. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

struct find_candidate {
    struct process_info process;
    uint64_t rss_bytes; /* of the largest of its ranks where it has several */
    int score;          /* the sum of its evidence; see find.c for the weights */
    int32_t launcher;   /* pid of the launcher above it, 0 if none */
    size_t ranks;       /* 1; more: PROCESS is the launcher of that many processes that train */
    char reasons[256];  /* "libtorch mapped; /dev/nvidia0 open; trainer on its command line" */
};

/* Candidates of this user (of all users where /proc allows), best first, at most MAX. Children of
 * a candidate (its workers) belong to it and are not listed apart; the ranks of one torchrun (or
 * mpirun, srun…) are one candidate, and that is the torchrun. Ourselves (SELF_PID and its
 * ancestors) are never candidates. Returns how many there are, which may be more than MAX, or
 * -errno. */
int find_training(const struct proc_root *root, int32_t self_pid, struct find_candidate *ret,
                  size_t max, struct err *err);

/* Follows a launcher to what it launched: the process below PID that does the work. It is the one
 * with torch or jax mapped; without such, the only program, or one more than twice as large as
 * all others. PID itself when it is no launcher, and also when several would do (the ranks of a
 * torchrun): then the whole tree is the job. RET_WHY says so in one line, "" where PID is simply
 * right. -ESRCH, -EACCES as proc_tree_add. */
int find_real_process(const struct proc_root *root, int32_t pid, int32_t *ret_pid,
                      char ret_why[256], struct err *err);
