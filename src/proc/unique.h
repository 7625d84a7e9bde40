/* Unique memory (USS) of the processes of a tree, measured by reading /proc/PID/pagemap in small
 * slices. It counts present and exclusively mapped pages, the present pages in malloc's heaps and
 * in stacks and, if the kernel has PAGEMAP_SCAN, anonymous memory in huge pages. Slices keep lock
 * times short and limit our CPU use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_tree;
struct proc_unique;

/* A value of 0 means the default. */
struct proc_unique_options {
    /* A slice ends after about this much wall time (default 0.5 ms), which bounds how long the job
     * can be delayed. The kernel drops the job's lock every 2 MiB, but a reader that takes it
     * again at once overtakes a waiting writer for up to 4 ms. So the job may have to wait for a
     * whole slice. */
    uint64_t slice_ns;
    uint32_t cpu_permyriad; /* share of one CPU that is used at most (default 100 = 1 %) */
    uint64_t period_ns; /* each process is measured at most once in this time (default 10 s), five
                           times as often if its memory changed */
    uint64_t stall_budget_ns; /* no single system call may take longer (default 5 ms): chunks shrink
                                 if the last calls were slow */
    bool no_pagemap_scan;     /* as on kernels before 6.7: cannot skip holes */
    bool is_launched; /* the tree has all descendants of a program that we started: while that is
                         one process, its anonymous memory is unique to it */
};

/* TREE is borrowed and must outlive the result. */
int proc_unique_new(struct proc_tree *tree, const struct proc_unique_options *options,
                    struct proc_unique **ret);
void proc_unique_free(struct proc_unique *u); /* NULL is fine */

/* Runs one slice: reads chunks of the process whose turn it is. When a process is complete,
 * SAMPLE_UNIQUE (and HUGE, HEAP, STACK) are put into its sample. A reading is marked stale, and
 * keeps its old value, if the last complete one (or the birth) is older than twice the period,
 * because the process is too large for the CPU share or has too many holes, or if its files may
 * not be read. *ret_next_ns is when to call again. */
int proc_unique_slice(struct proc_unique *u, uint64_t now_ns, uint64_t *ret_next_ns);
/* Speeds up while unmeasured memory decides whether a limit is exceeded: new processes and those
 * whose memory changed are counted without delay, using up to a quarter of a CPU. A gibibyte of
 * small pages takes 9 ms. */
void proc_unique_hurry(struct proc_unique *u, bool is_hurried);
/* Call this from the tree's event callback when NODE died or executed another program. */
struct proc_node;
void proc_unique_forget(struct proc_unique *u, const struct proc_node *node);

/* The cost of the measurement. */
struct proc_unique_cost {
    uint64_t cpu_ns, slices;
    /* system calls on the job's memory; the longest is in wall time, an upper bound of how long a
     * call can have delayed the job */
    uint64_t calls, longest_call_ns;
    uint64_t scans_done;
    /* the process died or called exec during the scan, no permission, or too many holes */
    uint64_t scans_given_up;
};
void proc_unique_cost(const struct proc_unique *u, struct proc_unique_cost *ret);
