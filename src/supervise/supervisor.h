/* One job from start to end. The supervisor is the job's parent and subreaper, runs the engine,
 * keeps log.txt and run.json. Above it sits a sentinel that does nothing but wait: should the
 * supervisor itself be killed, the job's processes fall to the sentinel, which ends them. In the
 * foreground a client shows the output and passes on keys and signals over a channel:
 *
 *     client ── sentinel (subreaper) ── supervisor (subreaper) ── job (own process group)
 *
 * Supervisor and job share a session that is nobody else's: with its parent in the same session the
 * job's process group is not an orphaned one, so that Ctrl-Z can stop it (the kernel ignores
 * terminal stops in orphaned groups).
 *
 * A detached job has no client but for the moment of its start; the job server follows it by its
 * control socket (job_control.c) and may come and go. */
#pragma once

#include <jansson.h>
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

/* The terminal the job is to see: those of its streams that are the user's terminal are on a
 * pseudo terminal of its own. */
struct supervisor_tty {
    bool in, out, err; /* which of the job's streams are on it */
    struct termios termios;
    struct winsize size;
};

/* What the job finds as its standard streams 0, 1 and 2 where they are not on a terminal. */
struct supervisor_streams {
    bool closed[3];   /* closed, as they were when ebb was started */
    bool is_one_pipe; /* standard output and error go to one place: neither is closed or a terminal
                       */
};

struct supervisor_options {
    const char *path; /* the program, found in $PATH already */
    char **argv;
    struct engine_options engine;
    struct rundir rundir; /* fd -1: no recording */
    const char *name;
    const char *shim; /* a folder for the front of PYTHONPATH; NULL: none */
    struct {
        const char *library;     /* to be preloaded; NULL: the heap is not profiled */
        uint64_t interval_bytes; /* mean distance of samples */
        bool no_python;          /* leave small Python objects out */
        const char *trouble;     /* why it is not, where the user might expect it; or NULL */
    } heap;
    uint64_t grace_ns; /* between SIGTERM and SIGKILL of what is left behind; default 5 s */
    struct supervisor_tty tty;
    struct supervisor_streams streams;
    struct rlimit nofile;            /* the job gets this back, */
    sigset_t mask;                   /* and this mask of signals: the caller has its own by now */
    bool ignores_pipe, ignores_xfsz; /* SIGPIPE and SIGXFSZ were ignored by whoever started us */
    struct guard_settings guard;
    uint64_t log_max_bytes; /* of log.txt and its later pieces (trace/logs.h); 0: no end */
    bool is_detached;       /* the client leaves once the job has started */
    int lock_fd;            /* of a detached job: sentinel and supervisor keep it open; -1: none */
};

/* The client's ends, which it closes. */
struct supervisor_client {
    int fd;         /* of the channel */
    int stream[3];  /* [1] and [2]: pipes with what the job writes to its own; -1 none. The reader
                       must not hold their lock for long: splice from them to pipes alone */
    pid_t sentinel; /* a child of the caller, to be waited for */
};

/* Starts sentinel, supervisor and job. Trouble after this point comes over the channel. When
 * CHANNEL_END has come, so has all of the job's output. */
int supervisor_start(const struct supervisor_options *options, struct supervisor_client *ret,
                     struct err *err);
