/* Files that a job leaves in /dev/shm. A file is the job's if it appeared while the job ran and a
 * process of the job had it open for writing or mapped writable, or if its name is one that torch
 * makes from the pid of such a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/tree.h"
#include "run/outcome.h"

struct leftovers;

/* FOLDER is "/dev/shm" (tests: another). Files that exist now are never the job's. NULL: the folder
 * cannot be read. */
struct leftovers *leftovers_new(const char *folder);
void leftovers_free(struct leftovers *l); /* NULL is fine */
/* To be called for each new process of the job. */
void leftovers_process(struct leftovers *l, int32_t pid);
/* Searches the processes of TREE for the new files, for at most a few milliseconds; the next call
 * continues from there. Cheap while the folder has no new file. */
void leftovers_sample(struct leftovers *l, struct proc_tree *tree, uint64_t now_ns);
/* After the last process of the job has exited: appends the job's files that still exist to RET.
 * CLEAN removes those that belong to this user and that no process has open or mapped. */
void leftovers_end(struct leftovers *l, const struct proc_root *root, bool clean,
                   struct outcome_left_list *ret);
/* Whether the file system of FOLDER has less than 1 % or 1 MiB of free space, or no free inode. */
bool leftovers_folder_is_full(const char *folder);
