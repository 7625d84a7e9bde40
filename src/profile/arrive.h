/* The socket that receives heap tables from profiled processes. The kernel identifies the sender,
 * which must run as our user or as root (any user, if we are root). Private to collect.c. */
#pragma once

#include <stdint.h>

struct arrive;
struct err;
struct loop;

/* Called when PID has sent the descriptor FD, which is closed after this returns. */
typedef void arrive_fn(void *user, int32_t pid, int fd);

/* Creates the socket at PATH, accessible only to its owner. */
int arrive_new(struct loop *loop, const char *path, arrive_fn *fn, void *user, struct arrive **ret,
               struct err *err);
void arrive_free(struct arrive *a); /* removes and closes the socket; A may be NULL */
/* Closes connections that have sent nothing for a while. */
void arrive_tick(struct arrive *a, uint64_t now_ns);
/* Returns the number of connections that sent no valid table: of other users, with invalid data,
 * too slow, or too many at once. */
uint64_t arrive_refused(const struct arrive *a);
