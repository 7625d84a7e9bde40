/* The socket that tables arrive at. Whoever connects is taken for who the kernel says it is, and
 * only if of our user (or root, or we are). Private to collect.c. */
#pragma once

#include <stdint.h>

struct arrive;
struct err;
struct loop;

/* PID sent the descriptor FD, which is closed after this returns. */
typedef void arrive_fn(void *user, int32_t pid, int fd);

/* Makes the socket at PATH, for its owner alone. */
int arrive_new(struct loop *loop, const char *path, arrive_fn *fn, void *user, struct arrive **ret,
               struct err *err);
void arrive_free(struct arrive *a); /* NULL is fine; removes the socket */
/* Hangs up on those who connected a while ago and say nothing. */
void arrive_tick(struct arrive *a, uint64_t now_ns);
/* Connections that brought no table: strangers, nonsense, silence, too many at once. */
uint64_t arrive_refused(const struct arrive *a);
