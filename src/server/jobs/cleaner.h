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
    int runs_fd, trash_fd; /* fds of RUNS and RUNS/.trash; trash_fd is -1 if closed */
    unsigned moved; /* number of folders moved so far, which is used in their names in the trash */
    pthread_t thread;
    bool is_running;
    atomic_bool is_done, is_stopped;
    /* Fields used by the thread while it runs: */
    bool has_left; /* something in the trash could not be removed */
    struct cleaner_folder *folders;
    size_t folder_count;
};

/* Creates RUNS/.trash. Returns 0 or -errno. */
int cleaner_open(struct cleaner *c, int runs_fd);
void cleaner_close(struct cleaner *c); /* stops the thread; accepts a zeroed struct */
/* Moves RUNS/NAME into the trash. Must not be called while the thread runs. Returns 0, -ENOENT or
 * -errno. */
int cleaner_put(struct cleaner *c, const char *name);
/* Starts the thread, which empties the trash and measures c->folders. Returns 0 or -errno. */
int cleaner_start(struct cleaner *c);
bool cleaner_is_busy(struct cleaner *c);
/* Changes the mode of a folder that our user owns but cannot read or enter. */
void cleaner_open_up(int dir, const char *name);
