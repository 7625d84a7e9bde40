/* The folder that contains all run folders. It may be on a shared file system that is unreachable
 * when the server starts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct runs_folder;

/* PATH must be absolute. PREPARE, which may be NULL, is called with the fd of the folder once it is
 * open, and returns 0 or -errno. */
int runs_folder_new(const char *path, int (*prepare)(int fd), struct runs_folder **ret);
/* F may be NULL. F is not freed if a thread is still opening the folder. That is harmless, because
 * the process is about to exit. */
void runs_folder_free(struct runs_folder *f);
/* Returns the fd of the folder, or -EIO if it is not open. */
int runs_folder_fd(struct runs_folder *f);
bool runs_folder_is_open(struct runs_folder *f);
/* true if the folder is open and on a network file system */
bool runs_folder_is_remote(struct runs_folder *f);
/* Creates and opens the folder in a thread, unless it is open already. Returns 0; -ETIMEDOUT if
 * this takes longer than WAIT_NS, in which case the thread continues; or another -errno. */
int runs_folder_open(struct runs_folder *f, uint64_t wait_ns);
