/* The folder that contains all run folders. It may be on a shared file system that does not answer
 * when the server starts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct runs_folder;

/* PATH is absolute. Whenever the folder has been opened, PREPARE is called with its fd and returns
 * 0 or -errno; NULL: nothing is to be prepared. */
int runs_folder_new(const char *path, int (*prepare)(int fd), struct runs_folder **ret);
/* F may be NULL. It is not freed if a thread still waits for the folder; the process is about to
 * exit. */
void runs_folder_free(struct runs_folder *f);
/* Returns the fd of the folder, or -EIO if it is not open. */
int runs_folder_fd(struct runs_folder *f);
bool runs_folder_is_open(struct runs_folder *f);
bool runs_folder_is_remote(struct runs_folder *f); /* it is open and on a network file system */
/* Creates and opens the folder in a thread unless it is open. Returns 0, why it could not be
 * opened, or -ETIMEDOUT after WAIT_NS; the thread keeps waiting. */
int runs_folder_open(struct runs_folder *f, uint64_t wait_ns);
