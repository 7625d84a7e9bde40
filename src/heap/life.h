/* A profiled process from its first allocation to its end: settings, creating and sending the heap
 * table, fork. A child of a fork is detected when it first takes or frees a sample, so a child that
 * only calls exec costs nothing. At a fork the kernel wipes one page in the child. The wiped page
 * identifies the child without a system call, and regardless of the call that created the child. A
 * vfork child runs in its parent's memory, finds the page intact, and is correctly treated as part
 * of the parent. */
#pragma once

#include "heap/heap.h"

/* Reads EBB_HEAP and EBB_SOCKET. EBB_HEAP is "0", or words separated by commas: interval=BYTES,
 * python=0|1, filters=N, parent=PID. Unknown or invalid words are ignored. Returns false if the
 * process is not to be profiled. */
bool life_settings(const char *heap, const char *socket, struct heap_process *ret);
/* Returns the number of seccomp filters according to /proc/self/status. Older kernels do not report
 * the number; the result is then 1 if there are filters, else 0. */
uint64_t life_filters(const char *status);
/* Decides once whether this process is profiled. The decision is made at the first allocation at
 * which the environment is available. This may be in another library's constructor; the latest
 * moment is our own constructor. Returns false if the decision has not been made yet. */
bool life_start(void);
/* Begins a section in which this thread may use the table. Returns false and begins no section if
 * profiling is off. Sections nest. life_detach waits until all threads have left their sections. A
 * preloaded library is never detached, so its sections cost nothing. */
bool life_enter(const struct heap_thread *t);
void life_leave(const struct heap_thread *t);
/* Sets this thread's countdown after the thread has found profiling off. */
void life_rest(struct heap_thread *t);
/* Turns profiling on in a running process, in a library that was loaded late. Sets the socket, the
 * sampling interval in bytes (0: default) and the number of seccomp filters that do not count as a
 * sandbox, and creates the table. Returns NULL, or the reason for a failure. */
const char *life_attach(const char *socket, uint64_t interval, uint64_t filters);
/* Turns profiling off again and unmaps the table. Returns false if a thread stayed in its section
 * for too long; the table then stays mapped until the next call. */
bool life_detach(void);
/* Sleeps for 0.1 ms, for threads that wait for another thread. */
void life_pause(void);
/* Turns profiling off until the process exits. */
void life_give_up(void);
bool life_is_given_up(void);
/* Returns true if this process has a table to write into. Preserves errno. */
bool life_is_on(void);
/* Creates the memfd, maps it and sends it to ebb. While one thread does this, the other threads
 * take no samples. Returns false if there is no table. Preserves errno. */
bool life_make_table(void);
/* Unmaps the parent's table in the child of a fork; the first sample creates a new one. */
void life_forked(void);
