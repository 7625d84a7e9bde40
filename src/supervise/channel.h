/* Frames between a supervisor and its client or the job server, sent over a stream socket. A frame
 * consists of a type byte, a length and that many bytes. The supervisor never blocks on the
 * socket. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

enum channel_type {
    /* frames that the supervisor sends: */
    CHANNEL_TERMINAL = 't', /* output on the job's terminal, including echoed input */
    /* standard output that is left when the job has exited, because the client's pipe was full */
    CHANNEL_OUT = 'o',
    /* like CHANNEL_OUT, but of standard error */
    CHANNEL_ERR = 'e',
    CHANNEL_NOTICE = 'm',  /* a message for the user */
    CHANNEL_STOPPED = 'z', /* the job was stopped by a stop signal, for example after Ctrl-Z */
    CHANNEL_TAKEN = 'a',   /* u32le, number of input bytes written to the job */
    CHANNEL_STATUS = 'x',  /* one byte, the exit status of the run */
    CHANNEL_END = 'E',     /* run.json as text; this is the last frame */
    CHANNEL_STARTED = 'S', /* a detached job has started; this is the last frame */
    CHANNEL_MESSAGE = 'n', /* a JSON object for the job server (docs/reference/api.md) */
    /* frames that the supervisor receives: */
    CHANNEL_INPUT = 'i',   /* input typed at the terminal */
    CHANNEL_SIZE = 'w',    /* struct winsize */
    CHANNEL_SIGNAL = 's',  /* one byte, the number of a signal for the job */
    CHANNEL_REQUEST = 'r', /* a JSON object from the job server (docs/reference/api.md) */
};

enum { CHANNEL_FRAME_MAX = 8 << 20 };

struct channel {
    int fd; /* owned; -1: closed */
    struct buf in, out;
    size_t in_at; /* number of bytes of IN that have been parsed */
};

/* Creates a connected pair of close-on-exec sockets. */
int channel_pair(int ret_fd[2]);
void channel_init(struct channel *c, int fd);
void channel_fini(struct channel *c);

void channel_queue(struct channel *c, enum channel_type type, const void *data, size_t len);
/* Sends as much as possible without blocking. Returns 0 if everything was sent, 1 if some data is
 * left, or -errno (-EPIPE if the connection is closed). */
int channel_flush(struct channel *c);
/* Reads without blocking. Returns 1 if bytes were received, 0 if no data is available, or -EPIPE if
 * the connection is closed. */
int channel_fill(struct channel *c);
/* Gets the next frame, which is valid until the next call. Returns 1; 0 if the frame is incomplete;
 * or -EBADMSG. */
int channel_next(struct channel *c, enum channel_type *ret_type, const char **ret_data,
                 size_t *ret_len);
