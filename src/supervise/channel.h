/* Frames between a job's supervisor and its client or the job server, over a stream socket: a type
 * byte, a length, the bytes. The supervisor never blocks on it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum channel_type {
    /* sent by the supervisor: */
    CHANNEL_TERMINAL = 't', /* output on the job's terminal, echoed input included */
    CHANNEL_OUT = 'o', /* the end of the job's standard output, which did not fit into the pipe */
    CHANNEL_ERR = 'e', /* the same of its standard error */
    CHANNEL_NOTICE = 'm',  /* a message for the user */
    CHANNEL_STOPPED = 'z', /* the job was stopped as by Ctrl-Z */
    CHANNEL_TAKEN = 'a',   /* u32le: number of input bytes that have reached the job */
    CHANNEL_STATUS = 'x',  /* one byte: the exit status of the run */
    CHANNEL_END = 'E',     /* run.json as text: the last frame */
    CHANNEL_STARTED = 'S', /* a detached job has started: the last frame */
    CHANNEL_MESSAGE = 'n', /* a JSON object for the job server (docs/reference/api.md) */
    /* sent to the supervisor: */
    CHANNEL_INPUT = 'i',   /* typed at the terminal */
    CHANNEL_SIZE = 'w',    /* struct winsize */
    CHANNEL_SIGNAL = 's',  /* one byte: a signal for the job */
    CHANNEL_REQUEST = 'r', /* a JSON object from the job server (docs/reference/api.md) */
};

enum { CHANNEL_FRAME_MAX = 8 << 20 };

struct channel {
    int fd; /* owned; -1: closed */
    struct buf in, out;
    size_t in_at; /* bytes of IN that are already consumed */
};

/* Makes a connected pair of sockets, close-on-exec. */
int channel_pair(int ret_fd[2]);
void channel_init(struct channel *c, int fd);
void channel_fini(struct channel *c);

/* Puts a frame into the queue. */
void channel_queue(struct channel *c, enum channel_type type, const void *data, size_t len);
/* Sends as much as possible without blocking: 0: all sent; 1: some is left; -errno (-EPIPE:
 * closed). */
int channel_flush(struct channel *c);
/* Reads without blocking: 1: received bytes; 0: nothing to read; -EPIPE at the end. */
int channel_fill(struct channel *c);
/* Returns 1 and the next frame, valid until the next call; 0: the frame is incomplete; -EBADMSG. */
int channel_next(struct channel *c, enum channel_type *ret_type, const char **ret_data,
                 size_t *ret_len);
