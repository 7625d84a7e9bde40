/* Finds files that a job leaves in /dev/shm. A file belongs to the job if it appeared while the job
 * ran and a process of the job had it open for writing or mapped it writable. A file also belongs
 * to the job if its name has the form that torch uses and contains the pid of a process of the
 * job. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/tree.h"
#include "run/outcome.h"

struct leftovers;

/* Starts to watch FOLDER, which is "/dev/shm" except in tests. Files that exist now are never
 * attributed to the job. Returns NULL if the folder cannot be read. */
struct leftovers *leftovers_new(const char *folder);
void leftovers_free(struct leftovers *l); /* L may be NULL */
/* Call this for each new process of the job. */
void leftovers_process(struct leftovers *l, int32_t pid);
/* Searches the open and mapped files of the processes of TREE for new files, for at most a few
 * milliseconds. The next call continues where this one stopped. A call is cheap while the folder
 * contains no new file. */
void leftovers_sample(struct leftovers *l, struct proc_tree *tree, uint64_t now_ns);
/* Appends to RET those of the job's files that still exist. Called after the last process of the
 * job has exited. If CLEAN is set, removes the files that belong to this user and that no process
 * has open or mapped. */
void leftovers_end(struct leftovers *l, const struct proc_root *root, bool clean,
                   struct outcome_left_list *ret);
/* True if the file system of FOLDER has less than 1 % or less than 1 MiB of free space, or no free
 * inode. */
bool leftovers_folder_is_full(const char *folder);
