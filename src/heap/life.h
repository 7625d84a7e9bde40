/* A profiled process from its first allocation to its end: settings, creating and sending the heap
 * table, fork. A fork is noticed when the child first takes or frees a sample, so a child that only
 * calls exec costs nothing. The kernel wipes one page at fork. The wiped page identifies the child
 * without a system call, however it was created. A vfork child runs in its parent's memory, finds
 * the page intact, and is correctly counted as part of the parent. */
#pragma once

#include "heap/heap.h"

/* Reads EBB_HEAP and EBB_SOCKET. EBB_HEAP is "0", or words between commas: interval=BYTES,
 * python=0|1, filters=N, parent=PID. Unknown or invalid words are ignored. */
void life_settings(const char *heap, const char *socket, struct heap_process *ret);
/* Returns the number of seccomp filters according to /proc/self/status; on older kernels 0 or 1. */
uint64_t life_filters(const char *status);
/* Decides once whether this process is profiled. The decision is made at the first allocation that
 * finds an environment, or in our constructor. Constructors of other libraries may allocate before
 * ours runs. Returns false if the decision has not been made yet. */
bool life_start(void);
/* Turns profiling off for the rest of the process. */
void life_give_up(void);
bool life_is_given_up(void);
/* Returns true if this process has a table to write into. Preserves errno. */
bool life_is_on(void);
/* Creates the memfd, maps it and sends it to ebb. Only one thread does so; the other threads take
 * no samples until the table is ready. Returns false if there is no table. Preserves errno. */
bool life_make_table(void);
/* Unmaps the parent's table in the child of a fork; the first sample creates a new one. */
void life_forked(void);
