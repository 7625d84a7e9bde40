/* The event loop: epoll over fds, timerfds and signalfds. It runs in one thread, one callback at a
 * time. */
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
 * closes FD. Returns -EPERM if FD is a regular file. RET may be NULL if the caller does not need to
 * remove the source before the loop is freed. */
int loop_add_fd(struct loop *loop, int fd, uint32_t epoll_events, loop_fd_fn *fn, void *user,
                struct loop_source **ret);
int loop_change_fd(struct loop_source *source, uint32_t epoll_events);

/* Calls FN at FIRST_NS (on the clock of clock_mono_ns; at once if that time has passed), then at
 * multiples of PERIOD_NS after FIRST_NS. A PERIOD_NS of 0 means only once. If several periods were
 * missed, FN is called once for all of them. */
int loop_add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_timer_fn *fn,
                   void *user, struct loop_source **ret);
int loop_set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns);
void loop_disarm_timer(struct loop_source *source);

/* Blocks SIGNO in this thread and calls FN for each SIGNO received until the loop ends. Each signal
 * can be added once. Other threads must be started afterwards, or with SIGNO blocked. */
int loop_add_signal(struct loop *loop, int signo, loop_signal_fn *fn, void *user);
/* Returns the signal mask that was set before the first signal was added. A child process must
 * restore it before exec. */
void loop_original_mask(const struct loop *loop, sigset_t *ret);

void loop_remove(struct loop_source *source); /* SOURCE may be NULL */
/* Runs until loop_stop is called, then finishes the current round. Returns at once if loop_stop was
 * called beforehand. Returns 0, or -errno if epoll fails. */
int loop_run(struct loop *loop);
/* Runs one round: waits up to TIMEOUT_MS for events (-1: no limit) and handles them. */
int loop_once(struct loop *loop, int timeout_ms);
void loop_stop(struct loop *loop);
