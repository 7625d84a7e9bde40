/* The functions of wslay that are used, found when the server starts: the program needs the library
 * for `ebb serve` alone. */
#pragma once

#include <wslay/wslay.h>

struct err;

struct wslay_table {
    void *library;
    __typeof__(&wslay_event_context_server_init) server_init;
    __typeof__(&wslay_event_context_free) free;
    __typeof__(&wslay_event_config_set_max_recv_msg_length) set_max_length;
    __typeof__(&wslay_event_recv) recv;
    __typeof__(&wslay_event_send) send;
    __typeof__(&wslay_event_queue_msg) queue_msg;
    __typeof__(&wslay_event_queue_close) queue_close;
    __typeof__(&wslay_event_set_error) set_error;
    __typeof__(&wslay_event_want_read) want_read;
    __typeof__(&wslay_event_want_write) want_write;
    __typeof__(&wslay_event_get_queued_msg_count) queued;
};

/* -ENOENT with a sentence that says what to install. */
int wslay_load(struct wslay_table *ret, struct err *err);
void wslay_unload(struct wslay_table *t); /* accepts a zeroed one */
