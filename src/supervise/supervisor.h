/* One job from start to end. The supervisor is the job's parent and subreaper, runs the engine, and
 * writes log.txt and run.json. Its parent is a sentinel that only waits: if the supervisor is
 * killed, the job's processes become children of the sentinel, which ends them. In the foreground a
 * client prints the output and forwards keys and signals over a channel:
 *
 *     client ── sentinel (subreaper) ── supervisor (subreaper) ── job (own process group)
 *
 * Supervisor and job share a session of their own. Because the supervisor is in the job's session,
 * the job's process group is not orphaned, and Ctrl-Z can stop it (the kernel ignores terminal
 * stops in orphaned groups).
 *
 * A detached job has a client only while it starts. The job server follows a detached job over the
 * job's control socket (job_control.c) and may disconnect at any time. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <termios.h>

#include "engine/engine.h"
#include "engine/memory.h"
#include "guard/settings.h"
#include "trace/rundir.h"

struct err;
struct rank_place;

/* One node of a job with several ranks. The supervisor starts none of the ranks: each is a child of
 * its own `ebb run`, which connects to listen_fd (supervise/job_ranks.h). */
struct supervisor_node {
    const struct rank_place *place;
    int listen_fd;
};

/* The job's pseudo-terminal, which replaces the user's terminal. */
struct supervisor_tty {
    bool in, out, err; /* which of the job's streams are on the terminal */
    struct termios termios;
    struct winsize size;
};

/* State of the job's standard streams (0, 1 and 2), if they are not on a terminal. */
struct supervisor_streams {
    bool closed[3];   /* the stream was closed when ebb was started */
    bool is_one_pipe; /* standard output and error are the same pipe or file */
};

/* Destinations of the job's metrics. */
struct supervisor_metrics {
    int listen_fd;    /* a listening socket, or -1 if there is none */
    int folder_fd;    /* folder of the metrics file, or -1 if there is no file */
    const char *file; /* name of the metrics file in that folder */
};

struct supervisor_options {
    const char *path; /* path of the program, found through $PATH */
    char **argv;
    struct engine_options engine;
    struct rundir rundir; /* the run folder; its fd is -1 if nothing is recorded */
    const char *name;
    const char *shim; /* folder to put first in PYTHONPATH, or NULL */
    struct {
        const char *library;     /* library to preload; NULL if the heap is not profiled */
        uint64_t interval_bytes; /* mean number of allocated bytes between two heap samples */
        bool no_python;          /* do not profile small Python objects */
        /* reason why the heap is not profiled, if the user should know; else NULL */
        const char *trouble;
    } heap;
    uint64_t grace_ns; /* time between SIGTERM and SIGKILL for remaining processes (default 5 s) */
    struct supervisor_tty tty;
    struct supervisor_streams streams;
    struct rlimit nofile; /* the original RLIMIT_NOFILE, which is restored in the job */
    sigset_t mask;        /* the original signal mask, which is restored in the job */
    /* whether SIGPIPE and SIGXFSZ were ignored when ebb was started */
    bool ignores_pipe, ignores_xfsz;
    struct guard_settings guard;
    const struct supervisor_metrics *metrics; /* NULL if no metrics are served */
    /* maximum size of log.txt and its continuation files (trace/logs.h); 0 means unlimited */
    uint64_t log_max_bytes;
    int termination_fd;  /* fd of the container's termination log, or -1 */
    bool is_detached;    /* the client exits once the job has started */
    bool folder_control; /* a job server follows the job through its run folder (job_folder.h) */
    bool is_silent;      /* the client does not print the job's output */
    /* the lock that the sentinel and the supervisor of a detached job keep open, or -1 */
    int lock_fd;
    const struct supervisor_node *node; /* NULL if the supervisor starts the job itself */
};

/* The client's or the supervisor's ends of the connections between them. Each side must close its
 * own ends. */
struct supervisor_client {
    int fd; /* the channel */
    /* [1] and [2] are pipes with the job's output, or -1. The client may splice from them only into
     * other pipes, because splicing to anything else could keep them locked for long. */
    int stream[3];
    /* a pidfd that refers to the client, used by the supervisor; -1 in the client */
    int pidfd;
    pid_t sentinel; /* pid of the sentinel, for which its parent, the client, must wait */
};

/* Starts the sentinel, the supervisor and the job. Later errors are sent over the channel.
 * CHANNEL_END is sent after all of the job's output. */
int supervisor_start(const struct supervisor_options *options, struct supervisor_client *ret,
                     struct err *err);
