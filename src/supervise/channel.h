/* Frames between a job's supervisor and whoever runs it in the foreground, or the job server: one
 * byte of type, a length, the bytes. Over a stream socket, never blocking on the supervisor's side.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum channel_type {
    /* from the supervisor */
    CHANNEL_TERMINAL =
        't',              /* the job wrote this to its terminal, echoes of what is typed included */
    CHANNEL_OUT = 'o',    /* the last of its standard output, which did not fit into the pipe */
    CHANNEL_ERR = 'e',    /* or standard error */
    CHANNEL_NOTICE = 'm', /* a sentence for the user */
    CHANNEL_STOPPED = 'z', /* the job was stopped as by Ctrl-Z */
    CHANNEL_TAKEN = 'a',   /* u32le: so many bytes of input have reached the job */
    CHANNEL_STATUS = 'x',  /* one byte: the exit status to end with */
    CHANNEL_END = 'E',     /* run.json as text: the last frame */
    CHANNEL_STARTED = 'S', /* a detached job's first process is there: nothing more comes */
    CHANNEL_MESSAGE = 'n', /* a JSON object for the job server (docs/api.md) */
    /* to the supervisor */
    CHANNEL_INPUT = 'i',   /* typed at the terminal */
    CHANNEL_SIZE = 'w',    /* struct winsize */
    CHANNEL_SIGNAL = 's',  /* one byte: pass it on to the job */
    CHANNEL_REQUEST = 'r', /* a JSON object of the job server's (docs/api.md) */
};

enum { CHANNEL_FRAME_MAX = 8 << 20 };

struct channel {
    int fd; /* owned; -1: closed */
    struct buf in, out;
    size_t in_at; /* consumed of in */
};

/* One end of a pair each; close-on-exec. */
int channel_pair(int ret_fd[2]);
void channel_init(struct channel *c, int fd);
void channel_fini(struct channel *c);

/* Puts a frame into the queue. */
void channel_queue(struct channel *c, enum channel_type type, const void *data, size_t len);
/* Sends what it can without blocking: 0 all gone, 1 some left, -errno (-EPIPE: nobody there). */
int channel_flush(struct channel *c);
/* Takes in what there is without blocking: 1 something came, 0 nothing now, -EPIPE at the end. */
int channel_fill(struct channel *c);
/* 1 and the next whole frame (valid until the next call), 0 if there is none yet, -EBADMSG. */
int channel_next(struct channel *c, enum channel_type *ret_type, const char **ret_data,
                 size_t *ret_len);
