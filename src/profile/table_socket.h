/* The socket that receives heap tables from profiled processes. The kernel identifies the sender,
 * which must run as our user or as root (any user, if we are root). Private to collect.c. */
#pragma once

#include <stdint.h>

struct table_socket;
struct err;
struct loop;

/* Called when PID has sent the descriptor FD, which is closed after the callback returns. */
typedef void table_socket_fn(void *user, int32_t pid, int fd);

/* Creates the socket at PATH, accessible only to its owner. */
int table_socket_new(struct loop *loop, const char *path, table_socket_fn *fn, void *user,
                     struct table_socket **ret, struct err *err);
void table_socket_free(struct table_socket *a); /* removes and closes the socket; A may be NULL */
/* Closes connections that have sent nothing for a while. */
void table_socket_tick(struct table_socket *a, uint64_t now_ns);
/* Returns the number of connections that sent no valid table: from other users, with invalid data,
 * too slow, or too many at once. */
uint64_t table_socket_refused(const struct table_socket *a);
