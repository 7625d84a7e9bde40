/* The event loop: epoll over fds, timerfds and signalfds. It runs in one thread, one callback
 * at a time. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/signalfd.h>

struct loop;
struct loop_source;

/* A callback may remove any source, including its own, and may stop the loop. */
typedef void loop_fd_fn(void *user, int fd, uint32_t epoll_events);
typedef void loop_timer_fn(void *user, uint64_t now_ns);
typedef void loop_signal_fn(void *user, const struct signalfd_siginfo *info);

int loop_new(struct loop **ret);
/* Removes the remaining sources and restores the signal mask. LOOP may be NULL. */
void loop_free(struct loop *loop);

/* Calls FN when FD is ready. The loop never closes FD: the caller removes the source first, then
 * closes FD. Returns -EPERM if FD is a regular file. RET may be NULL if the source is never removed
 * before the loop ends. */
int loop_add_fd(struct loop *loop, int fd, uint32_t epoll_events, loop_fd_fn *fn, void *user,
                struct loop_source **ret);
int loop_change_fd(struct loop_source *source, uint32_t epoll_events);

/* Calls FN at FIRST_NS (a time of clock_mono_ns; a time in the past means at once), then every
 * PERIOD_NS on a fixed grid. A PERIOD_NS of 0 means only once. If periods are missed, FN is called
 * once for all of them. */
int loop_add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_timer_fn *fn,
                   void *user, struct loop_source **ret);
int loop_set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns);
void loop_disarm_timer(struct loop_source *source);

/* Blocks SIGNO in this thread and delivers it to FN until the loop ends; each signal can be added
 * once. Start other threads after this, or with the signal blocked. */
int loop_add_signal(struct loop *loop, int signo, loop_signal_fn *fn, void *user);
/* The signal mask before the loop was created. Restore it in a child before exec. */
void loop_original_mask(const struct loop *loop, sigset_t *ret);

void loop_remove(struct loop_source *source); /* NULL is fine */
/* Runs until loop_stop is called, and then finishes the current round. Returns at once if loop_stop
 * was called before. Returns 0, or -errno if epoll fails. */
int loop_run(struct loop *loop);
/* Runs one round, which waits at most TIMEOUT_MS for an event (-1: no limit). */
int loop_once(struct loop *loop, int timeout_ms);
void loop_stop(struct loop *loop);
