/* A thread that empties the trash and measures run folders, because both take long on a slow disk.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/spec.h"

struct cleaner_folder {
    int64_t id; /* id of the job */
    char name[JOB_FOLDER_MAX], folder_id[JOB_FOLDER_ID_SIZE];
    uint64_t bytes; /* measured size */
};

struct cleaner {
    int runs_fd, trash_fd; /* fds of RUNS and RUNS/.trash; trash_fd -1: closed */
    unsigned moved;        /* number of folders moved so far, used for their names in the trash */
    pthread_t thread;
    bool is_running;
    atomic_bool is_done, is_stopped;
    /* used by the thread while it runs */
    bool has_left; /* something in the trash could not be removed */
    struct cleaner_folder *folders;
    size_t folder_count;
};

/* Creates RUNS/.trash. 0 or -errno. */
int cleaner_open(struct cleaner *c, int runs_fd);
void cleaner_close(struct cleaner *c); /* stops the thread; accepts a zeroed struct */
/* Moves RUNS/NAME into the trash: 0, -ENOENT, -errno. Must not be called while the thread runs. */
int cleaner_put(struct cleaner *c, const char *name);
/* Starts the thread, which empties the trash and measures c->folders. 0 or -errno. */
int cleaner_start(struct cleaner *c);
bool cleaner_is_busy(struct cleaner *c);
/* Gives us access to a folder of ours whose mode denies it. */
void cleaner_open_up(int dir, const char *name);
