/* Measures the unique memory (USS) of a tree's processes by reading /proc/PID/pagemap in small
 * slices. Counts present pages that only one process has mapped, present pages in malloc's heaps
 * and in stacks and, if the kernel supports PAGEMAP_SCAN, anonymous memory in huge pages. Small
 * slices limit lock times and CPU use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_tree;
struct proc_unique;

/* A value of 0 means the default. */
struct proc_unique_options {
    /* Wall time after which a slice ends (default 0.5 ms). A slice is short because it may delay
     * the job by its whole duration: although the kernel drops the lock on the job's memory every 2
     * MiB, a reader that immediately takes the lock again overtakes a waiting writer for up to 4
     * ms. */
    uint64_t slice_ns;
    uint32_t cpu_permyriad; /* maximum share of one CPU (default 100, which is 1 %) */
    /* minimum interval between two measurements of a process (default 10 s); a fifth of this
     * interval if the process's memory has changed */
    uint64_t period_ns;
    /* maximum duration of a system call (default 5 ms); chunks shrink if calls take longer */
    uint64_t stall_budget_ns;
    bool no_pagemap_scan; /* behave as on kernels before 6.7, which cannot skip holes */
    /* the tree contains all descendants of a program that ebb started; as long as the tree contains
     * only one process, all anonymous memory of that process is unique */
    bool is_launched;
};

/* Creates a scheduler for TREE, which must outlive it. */
int proc_unique_new(struct proc_tree *tree, const struct proc_unique_options *options,
                    struct proc_unique **ret);
void proc_unique_free(struct proc_unique *u); /* U may be NULL */

/* Runs one slice: counts chunks of one process and, if that count is complete, of the next process.
 * A complete count is stored in the process's sample as SAMPLE_UNIQUE (and HUGE, HEAP, STACK). A
 * reading becomes stale, and keeps its old value, in two cases: permission to read the files of the
 * process is missing, or no count has been completed for twice the period (since the last complete
 * count or, if there is none, since the birth of the process), because the process is too large for
 * the CPU share or has too many holes. Returns the time at which the next call is due. */
uint64_t proc_unique_slice(struct proc_unique *u, uint64_t now_ns);
/* If IS_HURRIED is set, speeds up measurement: new processes and processes whose memory has changed
 * are counted without delay, with up to a quarter of a CPU. Set this while unmeasured memory
 * decides whether a limit is exceeded. Counting one GiB of small pages takes 9 ms. */
void proc_unique_hurry(struct proc_unique *u, bool is_hurried);
/* Call this from the tree's event callback when NODE died or executed another program. */
struct proc_node;
void proc_unique_forget(struct proc_unique *u, const struct proc_node *node);

/* Cost of the measurement so far. */
struct proc_unique_cost {
    uint64_t cpu_ns, slices;
    /* number of system calls that read the job's memory, and duration of the longest, which is an
     * upper bound for the delay of the job */
    uint64_t calls, longest_call_ns;
    uint64_t scans_done;
    /* scans that were given up because the process died or called exec, could not be read, or had
     * too many holes */
    uint64_t scans_given_up;
};
void proc_unique_cost(const struct proc_unique *u, struct proc_unique_cost *ret);
