/* Measures the unique memory (USS) of the processes of a tree by reading /proc/PID/pagemap in small
 * slices. It counts present pages that only one process has mapped, the present pages in malloc's
 * heaps and in stacks and, if the kernel has PAGEMAP_SCAN, anonymous memory in huge pages. Slices
 * keep lock times short and limit our CPU use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_tree;
struct proc_unique;

/* A value of 0 means the default. */
struct proc_unique_options {
    /* A slice ends after about this much wall time (default 0.5 ms), because a slice may delay the
     * job by its whole length. The kernel drops the lock on the job's memory every 2 MiB, but a
     * reader that takes the lock again at once overtakes a waiting writer for up to 4 ms. */
    uint64_t slice_ns;
    uint32_t cpu_permyriad; /* maximum share of one CPU (default 100, which is 1 %) */
    uint64_t period_ns; /* each process is measured at most once in this time (default 10 s), five
                           times as often if its memory changed */
    /* maximum duration of a system call (default 5 ms): chunks shrink if the last calls were
     * slow */
    uint64_t stall_budget_ns;
    bool no_pagemap_scan; /* behave as on kernels before 6.7, which cannot skip holes */
    /* the tree has all descendants of a program that ebb started; while it has only one process,
     * all anonymous memory of that process is unique */
    bool is_launched;
};

/* Creates a scheduler for TREE, which must outlive it. */
int proc_unique_new(struct proc_tree *tree, const struct proc_unique_options *options,
                    struct proc_unique **ret);
void proc_unique_free(struct proc_unique *u); /* NULL is fine */

/* Runs one slice: reads chunks of one process, after which the next process follows. When a process
 * is complete, SAMPLE_UNIQUE (and HUGE, HEAP, STACK) are put into its sample. A reading becomes
 * stale, and keeps its old value, if the files of the process may not be read, or if the last
 * complete count (or the birth) is older than twice the period, because the process is too large
 * for the CPU share or has too many holes. Returns the time of the next call. */
uint64_t proc_unique_slice(struct proc_unique *u, uint64_t now_ns);
/* Speeds up measurement while the decision whether a limit is exceeded depends on unmeasured
 * memory. New processes and processes whose memory changed are then counted without delay, with up
 * to a quarter of a CPU. Counting one GiB of small pages takes 9 ms. */
void proc_unique_hurry(struct proc_unique *u, bool is_hurried);
/* Call this from the tree's event callback when NODE died or executed another program. */
struct proc_node;
void proc_unique_forget(struct proc_unique *u, const struct proc_node *node);

/* Cost of the measurement so far. */
struct proc_unique_cost {
    uint64_t cpu_ns, slices;
    /* number of system calls that read the job's memory, and the longest of them, which bounds the
     * delay of the job */
    uint64_t calls, longest_call_ns;
    uint64_t scans_done;
    /* scans given up because the process died or called exec, could not be read, or had too many
     * holes */
    uint64_t scans_given_up;
};
void proc_unique_cost(const struct proc_unique *u, struct proc_unique_cost *ret);
