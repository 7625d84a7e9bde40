/* Files that a job leaves in /dev/shm. Only those known to be the job's are listed: a file that
 * appeared while it ran and that one of its processes had open or mapped, or whose name has the
 * pid of one of them, as torch names its files. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proc/tree.h"

struct leftovers;

/* FOLDER is "/dev/shm" (tests: another). Files that are in it now are never the job's. NULL where
 * it cannot be read: then nothing is listed. */
struct leftovers *leftovers_new(const char *folder);
void leftovers_free(struct leftovers *l); /* NULL is fine */
/* A process of the job was born. */
void leftovers_process(struct leftovers *l, int32_t pid);
/* Finds out which of the new files processes of TREE have open or mapped, for a few milliseconds
 * at most; the next call goes on from there. Cheap while the folder has no new file. */
void leftovers_sample(struct leftovers *l, struct proc_tree *tree, uint64_t now_ns);
/* After the end of the job's processes: {"shm": [files of the job that still exist]}. CLEAN removes
 * those that belong to this user and that no process has open or mapped. */
json_t *leftovers_end(struct leftovers *l, const struct proc_root *root, bool clean);
/* Whether the file system of FOLDER has under 1 % or 1 MiB of space left, or no inode. */
bool leftovers_folder_is_full(const char *folder);
