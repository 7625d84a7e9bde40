/* A mark: one thing the job said about itself (a step, an evaluation, a checkpoint), as
 * KEY=VALUE lines in one datagram. The wire format is part of the interface: docs/marks.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, number, word)   numbers are part of the recording's format */
#define MARK_KINDS(X)                                                                              \
    X(OTHER, 0, "other") /* a kind we do not know: kept, not interpreted */                        \
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
    X(SERIES, 11, "series") /* a figure of the job's own: NAME= VALUE= */

#define X(sym, num, word) MARK_##sym = (num),
enum mark_kind { MARK_KINDS(X) MARK_KIND_COUNT };
#undef X

enum mark_has {
    MARK_HAS_STEP = 1,
    MARK_HAS_EPOCH = 2,
    MARK_HAS_STEPS_PER_EPOCH = 4,
    MARK_HAS_MAX_STEPS = 8,
    MARK_HAS_RANK = 16,
    MARK_HAS_EXAMPLES = 32,        /* EXAMPLES=: length of the data set */
    MARK_HAS_EFFECTIVE_BATCH = 64, /* EFFECTIVE_BATCH=: examples a step */
};

/* The whole datagram stays in TEXT (of LEN bytes, not owned); the numbers that everything needs
 * are also decoded. */
enum { MARK_TEXT_MAX = 8192 };
struct mark {
    uint64_t t_ns; /* received, our monotonic clock */
    enum mark_kind kind;
    int32_t pid; /* the sender as the kernel says it; 0 unknown */
    uint32_t has;
    int64_t step, steps_per_epoch, max_steps, rank, examples, effective_batch;
    double epoch;
    const char *text;
    size_t len;
};

const char *mark_kind_name(enum mark_kind kind);
/* The kind called WORD (MARK_OTHER if unknown). */
enum mark_kind mark_kind_parse(const char *word, size_t len);

/* Parses one datagram: lines KEY=VALUE, keys [A-Z][A-Z0-9_]*, UTF-8 without NUL, a final newline
 * optional, KIND required. A number that is none (STEP=abc), is negative, or is a length of 0
 * (STEPS_PER_EPOCH, EFFECTIVE_BATCH) is -EBADMSG: a mark is right or dropped. t_ns and pid are
 * left at 0, text points at S. -EBADMSG leaves *ret untouched. */
int mark_parse(const char *s, size_t len, struct mark *ret);
/* One line of a mark's text; points into it. */
struct mark_line {
    const char *key, *value;
    size_t key_len, value_len;
};
/* The line at *AT (0 to begin), which moves on: false at the end, or where no KEY=VALUE stands. */
bool mark_next(const struct mark *m, size_t *at, struct mark_line *ret);
/* The value of KEY in M's text: NULL if absent. The first wins. */
const char *mark_get(const struct mark *m, const char *key, size_t *ret_len);

/* Whether the value of KEY is WORD, in upper or lower case. */
bool mark_is(const struct mark *m, const char *key, const char *word);

/* A figure of a process as a recording names it, "heap_live_bytes@4711"; the pid is 0 where its
 * sender was not known. False: it has no name, one that does not fit, or no number behind the "@".
 */
bool mark_figure_parse(const char *full, char *ret_name, size_t name_size, int32_t *ret_pid);

/* Sends TEXT to the datagram socket at PATH without blocking: 0 or -errno (-EAGAIN: full, and
 * Linux lets only net.unix.max_dgram_qlen of them wait, 10 on many machines; -ENAMETOOLONG). */
int mark_send(const char *path, const char *text, size_t len);
/* The same, but waits at most WAIT_MS (1 or more) for room: what `ebb mark` uses, so that a
 * burst from a script is not lost. -EAGAIN when there was none in that time. */
int mark_send_wait(const char *path, const char *text, size_t len, unsigned wait_ms);
