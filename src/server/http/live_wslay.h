/* The functions of wslay, loaded when the server starts, because only `ebb serve` needs the
 * library. */
#pragma once

#include <wslay/wslay.h>

struct err;

/* An X-macro with an entry for each wslay function in use: the member of struct wslay_table, and
 * the function's name in the library. */
#define WSLAY_FUNCTIONS(X)                                                                         \
    X(server_init, wslay_event_context_server_init)                                                \
    X(free, wslay_event_context_free)                                                              \
    X(set_max_length, wslay_event_config_set_max_recv_msg_length)                                  \
    X(recv, wslay_event_recv)                                                                      \
    X(send, wslay_event_send)                                                                      \
    X(queue_msg, wslay_event_queue_msg)                                                            \
    X(queue_close, wslay_event_queue_close)                                                        \
    X(set_error, wslay_event_set_error)                                                            \
    X(want_read, wslay_event_want_read)                                                            \
    X(want_write, wslay_event_want_write)                                                          \
    X(queued, wslay_event_get_queued_msg_count)

struct wslay_table {
    void *library;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define WSLAY_MEMBER(member, function) __typeof__(&function) member;
    WSLAY_FUNCTIONS(WSLAY_MEMBER)
};

/* Loads libwslay. Returns 0, or -ENOENT with a message that names the package to install. */
int wslay_load(struct wslay_table *ret, struct err *err);
void wslay_unload(struct wslay_table *t); /* closes the library; accepts a zeroed table */
