/* From the first allocation of a process to its end: settings, the table and its way out, fork. */
#pragma once

#include "heap/heap.h"

/* Reads EBB_HEAP and EBB_SOCKET. EBB_HEAP is "0", or words between commas: interval=BYTES,
 * python=0|1. What is not understood is left at its default: there is nobody to tell. */
void life_settings(const char *heap, const char *socket, struct heap_process *ret);
/* Makes the memfd, maps it, hands it out. One thread does, the others go without a sample until it
 * is there. False: there will be none. */
bool life_make_table(void);
/* In the child of a fork: the parent's table is let go; its own comes with its first sample. */
void life_forked(void);
