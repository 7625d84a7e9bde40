/* A job that was running before ebb attached. It is recorded, judged and guarded like a job that
 * ebb started, but is not a child of ebb. Runs on the caller's event loop. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "supervise/supervisor.h"

struct attached;
struct err;
struct loop;
struct mark;

struct attached_callbacks {
    void (*notice)(void *user, const char *sentence);
    /* Called for each mark of kind MARK_OTHER. */
    void (*mark)(void *user, const struct mark *mark);
    void (*tick)(void *user, uint64_t now_ns);
    void (*empty)(void *user); /* called when the last process has exited */
    void *user;
};

/* Starts to sample PID and all processes below it. OPTIONS must outlive the job; only the engine,
 * run folder, name, heap and guard in OPTIONS are used. */
int attached_new(struct loop *loop, const struct supervisor_options *options, int32_t pid,
                 const struct attached_callbacks *callbacks, struct attached **ret,
                 struct err *err);
void attached_free(struct attached *a); /* A may be NULL */
/* Return the path of the marks socket, and of the private folder that contains it. */
const char *attached_socket(const struct attached *a);
const char *attached_folder(const struct attached *a);
/* Returns the path of the library to load into the job; NULL if the heap is not profiled. */
const char *attached_library(const struct attached *a);
/* Ends the recording, writes run.json and returns its content. BY is the reason why ebb detached,
 * such as "Ctrl-C"; NULL if the job has exited. */
json_t *attached_end(struct attached *a, const char *by);
