/* From the first allocation of a process to its end: settings, the table and its way out, fork.
 *
 * fork() is noticed late, with the first sample or the first end of one in the child: a child that
 * only calls exec costs nothing. A page that the kernel wipes at fork tells the child from its
 * parent without a system call, however it was made; a vfork child, which runs in the parent's
 * memory and on its heap, finds it as it was and rightly counts for the parent. */
#pragma once

#include "heap/heap.h"

/* Reads EBB_HEAP and EBB_SOCKET. EBB_HEAP is "0", or words between commas: interval=BYTES,
 * python=0|1, filters=N, parent=PID. What is not understood is left at its default: there is nobody
 * to tell. */
void life_settings(const char *heap, const char *socket, struct heap_process *ret);
/* How many filters of system calls /proc/self/status tells of; older kernels only tell whether
 * there are any. */
uint64_t life_filters(const char *status);
/* Settles what this process does, once: at the first allocation that has an environment to look at,
 * which other libraries' constructors may make, or in our constructor. False: not settled yet. */
bool life_start(void);
/* For good: there will be no sample, and no table. */
void life_give_up(void);
bool life_is_given_up(void);
/* Is there a table of this process to write into? Preserves errno. */
bool life_is_on(void);
/* Makes the memfd, maps it, hands it out. One thread does, the others go without a sample until it
 * is there. False: there is none now. Preserves errno. */
bool life_make_table(void);
/* In the child of a fork: the parent's table is let go; its own comes with its first sample. */
void life_forked(void);
