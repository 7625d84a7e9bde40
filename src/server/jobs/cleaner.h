/* Removes and measures run folders in a thread, because both take long on a slow disk, and for ever
 * on one that hangs. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/spec.h"

struct runs_folder;
struct task;
struct workers;

struct cleaner_folder {
    int64_t id; /* id of the job */
    char name[JOB_FOLDER_MAX], folder_id[JOB_FOLDER_ID_SIZE];
    uint64_t bytes; /* measured size */
};

struct cleaner {
    struct workers *workers;
    struct task *task; /* the task that cleaner_put or cleaner_clean started; NULL: none */
    bool is_closed;
    atomic_bool is_stopped;
    void (*done)(void *user); /* called from the event loop at the end of each task */
    void *user;
    /* Used by the thread while it runs: */
    struct runs_folder *runs;
    int trash_fd; /* fd of RUNS/.trash, or -1 */
    /* number of folders moved so far, which makes their names in the trash unique */
    unsigned moved;
    bool is_put; /* the task was started by cleaner_put */
    struct cleaner_folder put;
    int put_result; /* 0, or why the folder could not be moved */
    bool has_left;  /* something in the trash could not be removed */
    struct cleaner_folder *folders;
    size_t folder_count;
};

/* Creates RUNS/.trash if RUNS is open. Returns 0 or -errno. */
int cleaner_new(struct workers *workers, struct runs_folder *runs, void (*done)(void *user),
                void *user, struct cleaner **ret);
void cleaner_close(struct cleaner *c); /* stops the task and frees C, which may be NULL */
/* Starts to move the folder NAME into the trash, if it belongs to the job with FOLDER_ID. A folder
 * without a signature does not count as the job's, even if its name matches. Returns 0 or -errno;
 * the result is c->put_result. No other task may be running. */
int cleaner_put(struct cleaner *c, const char *name, const char *folder_id);
/* Starts to empty the trash and to measure c->folders. Returns 0 or -errno. */
int cleaner_clean(struct cleaner *c);
