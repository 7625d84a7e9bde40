/* A mark is one event that the job reports (a step, an evaluation, a checkpoint): KEY=VALUE lines
 * in one datagram. The wire format is part of the interface: docs/reference/marks.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, number, word). The numbers are part of the recording's format. */
#define MARK_KINDS(X)                                                                              \
    X(OTHER, 0, "other") /* an unknown kind, which is recorded but not interpreted */              \
    X(BEGIN, 1, "begin")                                                                           \
    X(STEP, 2, "step")                                                                             \
    X(SUBSTEP, 3, "substep")                                                                       \
    X(EVAL, 4, "eval")                                                                             \
    X(SAVE, 5, "save")                                                                             \
    X(EPOCH, 6, "epoch")                                                                           \
    X(END, 7, "end")                                                                               \
    X(PHASE, 8, "phase")    /* NAME=eval STATE=begin|end */                                        \
    X(HELLO, 9, "hello")    /* REPLY=path RANK= ROLE=rank|worker */                                \
    X(ACK, 10, "ack")       /* ID= STATUS=started|done|failed PATH= */                             \
    X(SERIES, 11, "series") /* a number that the job reports as NAME= and VALUE= */

#define X(sym, num, word) MARK_##sym = (num),
enum mark_kind { MARK_KINDS(X) MARK_KIND_COUNT };
#undef X

enum mark_has {
    MARK_HAS_STEP = 1,
    MARK_HAS_EPOCH = 2,
    MARK_HAS_STEPS_PER_EPOCH = 4,
    MARK_HAS_MAX_STEPS = 8,
    MARK_HAS_RANK = 16,
    MARK_HAS_EXAMPLES = 32,        /* EXAMPLES=, the size of the data set */
    MARK_HAS_EFFECTIVE_BATCH = 64, /* EFFECTIVE_BATCH=, the number of examples per step */
};

/* A parsed mark. TEXT is the whole datagram (LEN bytes, not owned); frequently used numbers are
 * also decoded. */
enum { MARK_TEXT_MAX = 8192 };
struct mark {
    uint64_t t_ns; /* when the mark was received, by our monotonic clock */
    enum mark_kind kind;
    int32_t pid; /* pid of the sender, reported by the kernel; 0 if unknown */
    uint32_t has;
    int64_t step, steps_per_epoch, max_steps, rank, examples, effective_batch;
    double epoch;
    const char *text;
    size_t len;
};

const char *mark_kind_name(enum mark_kind kind);
/* The kind of mark called WORD, or MARK_OTHER if unknown. */
enum mark_kind mark_kind_parse(const char *word, size_t len);

/* Parses one datagram: lines of the form KEY=VALUE with keys [A-Z][A-Z0-9_]*, in UTF-8 without NUL,
 * with an optional final newline. KIND is required. A mark with an invalid or negative number, or
 * with STEPS_PER_EPOCH=0 or EFFECTIVE_BATCH=0, is refused with -EBADMSG, and *ret is unchanged.
 * Sets t_ns and pid to 0; text points to S. */
int mark_parse(const char *s, size_t len, struct mark *ret);
/* One line of a mark. Key and value point into the mark's text. */
struct mark_line {
    const char *key, *value;
    size_t key_len, value_len;
};
/* Takes the line at offset *AT. *AT must be 0 for the first line, and is advanced past each line.
 * Returns false at the end, or at a line that is not KEY=VALUE. */
bool mark_next(const struct mark *m, size_t *at, struct mark_line *ret);
/* Returns the value of KEY in M's text, or NULL if absent. If a key is repeated, its first value is
 * used. */
const char *mark_get(const struct mark *m, const char *key, size_t *ret_len);

/* True if the value of KEY is WORD, ignoring case. */
bool mark_is(const struct mark *m, const char *key, const char *word);
bool mark_line_is(const struct mark_line *line, const char *key);
/* The value of KEY as a number; NAN if it is missing or invalid. */
double mark_get_number(const struct mark *m, const char *key);
/* Gets the integer that mark_parse decoded from LINE, a line of M. Returns false if LINE's key is
 * not an integer key (STEP, RANK, …). */
bool mark_line_number(const struct mark *m, const struct mark_line *line, int64_t *ret);

/* Splits the name of a series in a recording, such as "heap_live_bytes@4711", into name and pid (0
 * if the sender was unknown). Returns false if the name is empty or too long, or if no number
 * follows the "@". */
bool mark_figure_parse(const char *full, char *ret_name, size_t name_size, int32_t *ret_pid);

/* Sends TEXT to the datagram socket at PATH. If the socket's queue is full, waits at most WAIT_MS
 * (0: not at all). A full queue is common: Linux queues only net.unix.max_dgram_qlen datagrams, 10
 * on many machines. Returns 0 or -errno (-EAGAIN if the queue stayed full, -ENAMETOOLONG). */
int mark_send(const char *path, const char *text, size_t len, unsigned wait_ms);
