/* Unique memory (USS) of the processes of a tree by paced reading of /proc/PID/pagemap: present
 * and exclusively mapped pages; what of all present ones lies in malloc's heaps and in stacks; and,
 * where the kernel has PAGEMAP_SCAN, how much is anonymous memory in huge pages. Works in slices so
 * that no lock of the job's is held for long and our CPU stays within a share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_tree;
struct proc_unique;

/* Zeroes mean the defaults. */
struct proc_unique_options {
    uint64_t slice_ns;      /* a slice ends after about this much wall time (default 0.5 ms).
                               The kernel drops the job's lock every 2 MiB, but a reader that
                               takes it again at once overtakes a waiting writer (for up to
                               4 ms), so a slice, not a call, is what the job may wait for */
    uint32_t cpu_permyriad; /* pauses so as to use at most this share of one CPU (default
                               100 = 1 %) */
    uint64_t period_ns; /* at the most once in this time for each process (default 10 s), a fifth of
                           it for one whose memory moved */
    uint64_t stall_budget_ns; /* no single system call of ours may take longer (default 5 ms): the
                                 chunk shrinks by what the last ones took */
    bool no_pagemap_scan;     /* as on kernels before 6.7: cannot jump over holes */
    bool is_launched; /* the tree has all that descends from a program that we started: as long as
                         that is one process, its anonymous memory is its own */
};

/* TREE is borrowed and must outlive it. */
int proc_unique_new(struct proc_tree *tree, const struct proc_unique_options *options,
                    struct proc_unique **ret);
void proc_unique_free(struct proc_unique *u); /* NULL is fine */

/* Does one slice: reads chunks of the process whose turn it is, and when one is whole puts
 * SAMPLE_UNIQUE (and HUGE, HEAP, STACK) into its sample. A process whose last whole reading (or
 * birth) is older than twice the period, because it is too large for the share or has too many
 * holes, and one whose files may not be read, gets the stale bit; the old value stays.
 * *ret_next_ns: when to call again. */
int proc_unique_slice(struct proc_unique *u, uint64_t now_ns, uint64_t *ret_next_ns);
/* Somebody needs the truth now, as unmeasured memory decides whether a limit holds: while hurried,
 * newborns and processes whose memory moved are counted without delay, at up to a quarter of a CPU.
 * A gibibyte of small pages takes 9 ms. */
void proc_unique_hurry(struct proc_unique *u, bool is_hurried);
/* NODE died or became another program: forget it. To be called from the tree's event callback. */
struct proc_node;
void proc_unique_forget(struct proc_unique *u, const struct proc_node *node);

/* What it cost, for the tool to state: */
struct proc_unique_cost {
    uint64_t cpu_ns, slices;
    uint64_t calls, longest_call_ns; /* system calls on the job's memory, by wall time: an upper
                                        bound of what one of them can have held up */
    uint64_t scans_done;
    uint64_t scans_given_up; /* died or exec'd half-way, no rights, too many holes */
};
void proc_unique_cost(const struct proc_unique *u, struct proc_unique_cost *ret);
