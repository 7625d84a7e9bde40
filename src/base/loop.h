/* The event loop: epoll over fds, timerfds and one signalfd. One thread, callbacks in turn. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/signalfd.h>

struct loop;
struct loop_source;

/* A callback may remove any source, its own included, and may stop the loop. */
typedef void loop_fd_fn(void *user, int fd, uint32_t epoll_events);
typedef void loop_timer_fn(void *user, uint64_t now_ns, uint64_t missed); /* missed periods */
typedef void loop_signal_fn(void *user, const struct signalfd_siginfo *info);

int loop_new(struct loop **ret);
/* Removes what is left of its sources; signal masks go back to what they were. NULL is fine. */
void loop_free(struct loop *loop);

/* The loop never closes FD: remove the source first, then close. -EPERM for a regular file. RET may
 * be NULL where the source lives as long as the loop. */
int loop_add_fd(struct loop *loop, int fd, uint32_t epoll_events, loop_fd_fn *fn, void *user,
                struct loop_source **ret);
int loop_change_fd(struct loop_source *source, uint32_t epoll_events);

/* Fires at FIRST_NS (clock_mono_ns time; past means at once), then every PERIOD_NS on a fixed grid
 * (0: once). Periods slept over are counted, not replayed. */
int loop_add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_timer_fn *fn,
                   void *user, struct loop_source **ret);
int loop_set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns);
void loop_disarm_timer(struct loop_source *source);

/* Blocks SIGNO in this thread and delivers it here. Start other threads after this, or with the
 * signal blocked. */
int loop_add_signal(struct loop *loop, int signo, loop_signal_fn *fn, void *user,
                    struct loop_source **ret);
/* What was blocked before the loop: to be restored in a child before exec. */
void loop_original_mask(const struct loop *loop, sigset_t *ret);

void loop_remove(struct loop_source *source); /* NULL is fine */
/* Runs until loop_stop, also one called before; the round under way is finished first. 0, or -errno
 * when epoll itself fails. */
int loop_run(struct loop *loop);
/* One round, waiting at most TIMEOUT_MS (-1: without end). */
int loop_once(struct loop *loop, int timeout_ms);
void loop_stop(struct loop *loop);
