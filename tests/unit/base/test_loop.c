/* Tests the event loop: which events are delivered, which are not, and that the signal mask is
 * restored. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"

enum { LONG_MS = 120000 }; /* Time limit in ms. Only a broken loop takes this long. */

static struct loop *loop;

static int setup(void **state)
{
    (void)state;
    return loop_new(&loop);
}

static int teardown(void **state)
{
    (void)state;
    loop_free(loop);
    loop = NULL;
    return 0;
}

/* Instructions for a callback, and a record of its calls. */
struct seen {
    int calls;
    uint32_t events;
    uint64_t now_ns;
    int signo;
    int32_t value;
    struct loop_source **victims; /* NULL-terminated list of sources for the callback to remove */
    bool should_stop;
    bool should_nest;
};

static void react(struct seen *s)
{
    s->calls++;
    for (struct loop_source **v = s->victims; v && *v; v++)
        loop_remove(*v);
    s->victims = NULL;
    if (s->should_stop)
        loop_stop(loop);
    if (s->should_nest) {
        s->should_nest = false;
        assert_int_equal(loop_once(loop, 0), 0);
    }
}

static void on_fd(void *user, int fd, uint32_t events)
{
    struct seen *s = user;
    char byte;
    if (events & EPOLLIN)
        assert_int_equal(read(fd, &byte, 1), 1);
    s->events = events;
    react(s);
}

static void on_fd_without_reading(void *user, int fd, uint32_t events)
{
    struct seen *s = user;
    (void)fd;
    s->events = events;
    react(s);
}

static void on_timer(void *user, uint64_t now_ns)
{
    struct seen *s = user;
    s->now_ns = now_ns;
    react(s);
}

static void on_signal(void *user, const struct signalfd_siginfo *info)
{
    struct seen *s = user;
    s->signo = (int)info->ssi_signo;
    s->value = info->ssi_int;
    react(s);
}

static void run_until(const int *calls, int want)
{
    uint64_t limit = clock_mono_ns() + LONG_MS * NS_PER_MS;
    while (*calls < want && clock_mono_ns() < limit)
        assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_true(*calls >= want);
}

static void sleep_ms(uint64_t ms)
{
    struct timespec ts = {0, (long)(ms * NS_PER_MS)};
    while (nanosleep(&ts, &ts) < 0)
        ;
}

static void loop_iteration_without_events_succeeds(void **state)
{
    (void)state;
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(loop_once(loop, 1), 0);
    loop_free(NULL);
    loop_remove(NULL);
}

static void readable_event_is_delivered_until_the_fd_is_removed(void **state)
{
    (void)state;
    int p[2];
    struct seen s = {0};
    struct loop_source *source;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(loop_add_fd(loop, p[0], EPOLLIN, on_fd, &s, &source), 0);
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(s.calls, 0);
    assert_int_equal(write(p[1], "ab", 2), 2);
    run_until(&s.calls, 1);
    assert_int_equal(s.events, EPOLLIN);
    loop_remove(source);
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(s.calls, 1);
    /* Removing a source does not close its descriptor. */
    assert_int_equal(fcntl(p[0], F_GETFD), 0);
    close(p[0]);
    close(p[1]);
}

static void hangup_event_is_delivered_even_if_not_requested(void **state)
{
    (void)state;
    int p[2];
    struct seen s = {0};
    assert_int_equal(pipe(p), 0);
    assert_int_equal(loop_add_fd(loop, p[0], 0, on_fd_without_reading, &s, NULL), 0);
    close(p[1]);
    run_until(&s.calls, 1);
    assert_int_equal(s.events, EPOLLHUP);
    loop_free(loop);
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(loop_add_fd(loop, p[1], 0, on_fd_without_reading, &s, NULL), 0);
    close(p[0]);
    run_until(&s.calls, 2);
    assert_true(s.events & EPOLLERR);
    close(p[1]);
}

static void adding_an_fd_that_epoll_refuses_returns_the_error(void **state)
{
    (void)state;
    char path[] = "/tmp/ebb-test-loop.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    struct seen s = {0};
    struct loop_source *source = (struct loop_source *)&s;
    assert_int_equal(loop_add_fd(loop, fd, EPOLLIN, on_fd, &s, &source), -EPERM);
    assert_int_equal(loop_add_fd(loop, -1, EPOLLIN, on_fd, &s, &source), -EBADF);
    assert_ptr_equal(source, &s);
    close(fd);
}

/* Both pipes are readable, so the events of both arrive in one batch. */
struct two {
    int a[2], b[2];
    struct seen seen_a, seen_b;
    struct loop_source *source_a, *source_b;
};

static void two_open(struct two *t)
{
    memset(t, 0, sizeof(*t));
    assert_int_equal(pipe(t->a), 0);
    assert_int_equal(pipe(t->b), 0);
    assert_int_equal(loop_add_fd(loop, t->a[0], EPOLLIN, on_fd, &t->seen_a, &t->source_a), 0);
    assert_int_equal(loop_add_fd(loop, t->b[0], EPOLLIN, on_fd, &t->seen_b, &t->source_b), 0);
    assert_int_equal(write(t->a[1], "aa", 2), 2);
    assert_int_equal(write(t->b[1], "bb", 2), 2);
}

static void two_close(struct two *t)
{
    close(t->a[0]);
    close(t->a[1]);
    close(t->b[0]);
    close(t->b[1]);
}

static void pending_event_of_a_removed_source_is_not_delivered(void **state)
{
    (void)state;
    struct two t;
    two_open(&t);
    struct loop_source *other_of_a[] = {t.source_b, NULL}, *other_of_b[] = {t.source_a, NULL};
    t.seen_a.victims = other_of_a;
    t.seen_b.victims = other_of_b;
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 1);
    assert_int_equal(loop_once(loop, LONG_MS), 0); /* The remaining pipe has one unread byte. */
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 2);
    assert_true(t.seen_a.calls == 0 || t.seen_b.calls == 0);
    two_close(&t);
}

static void loop_callback_may_remove_all_sources_including_its_own(void **state)
{
    (void)state;
    struct two t;
    two_open(&t);
    /* source_a is listed twice on purpose, because removing a source twice is allowed. */
    struct loop_source *all[] = {t.source_a, t.source_b, t.source_a, NULL};
    t.seen_a.victims = all;
    t.seen_b.victims = all;
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 1);
    two_close(&t);
}

static void nested_iteration_does_not_free_sources_still_in_use(void **state)
{
    (void)state;
    struct two t;
    two_open(&t);
    struct loop_source *all[] = {t.source_a, t.source_b, NULL};
    t.seen_a.victims = all;
    t.seen_b.victims = all;
    t.seen_a.should_nest = t.seen_b.should_nest = true;
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 1);
    two_close(&t);
}

static struct two *changing;

static void stop_asking(void *user, int fd, uint32_t events)
{
    struct two *t = changing;
    (void)fd;
    (void)events;
    react(user);
    assert_int_equal(loop_change_fd(t->source_a, 0), 0);
    assert_int_equal(loop_change_fd(t->source_b, 0), 0);
}

static void pending_event_is_dropped_if_no_longer_subscribed(void **state)
{
    (void)state;
    struct two t;
    two_open(&t);
    loop_remove(t.source_a);
    loop_remove(t.source_b);
    assert_int_equal(loop_add_fd(loop, t.a[0], EPOLLIN, stop_asking, &t.seen_a, &t.source_a), 0);
    assert_int_equal(loop_add_fd(loop, t.b[0], EPOLLIN, stop_asking, &t.seen_b, &t.source_b), 0);
    changing = &t;
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 1);
    assert_int_equal(loop_change_fd(t.source_a, EPOLLIN), 0);
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(t.seen_a.calls + t.seen_b.calls, 2);
    two_close(&t);
}

static void timer_fires_once_and_not_early(void **state)
{
    (void)state;
    struct seen s = {0};
    uint64_t at = clock_mono_ns() + 20 * NS_PER_MS;
    assert_int_equal(loop_add_timer(loop, at, 0, on_timer, &s, NULL), 0);
    run_until(&s.calls, 1);
    assert_true(s.now_ns >= at);
    assert_int_equal(loop_once(loop, 20), 0);
    assert_int_equal(s.calls, 1);
}

static void timer_with_a_time_in_the_past_fires_at_once(void **state)
{
    (void)state;
    struct seen zero = {0}, past = {0};
    assert_int_equal(loop_add_timer(loop, 0, 0, on_timer, &zero, NULL), 0);
    run_until(&zero.calls, 1);
    const uint64_t period = 100 * NS_PER_MS;
    uint64_t now = clock_mono_ns(), first = now > 200 * period ? now - 200 * period : 0;
    assert_int_equal(loop_add_timer(loop, first, period, on_timer, &past, NULL), 0);
    run_until(&past.calls, 1);
}

static void missed_timer_periods_cause_a_single_callback(void **state)
{
    (void)state;
    const uint64_t period = 10 * NS_PER_MS;
    struct seen s = {0};
    uint64_t first = clock_mono_ns() + period;
    assert_int_equal(loop_add_timer(loop, first, period, on_timer, &s, NULL), 0);
    for (int i = 1; i <= 4; i++) {
        sleep_ms(35);
        run_until(&s.calls, i);
        assert_int_equal(s.calls, i);
    }
}

static void disarmed_timer_does_not_fire_until_set_again(void **state)
{
    (void)state;
    struct seen s = {0};
    struct loop_source *timer;
    assert_int_equal(loop_add_timer(loop, 0, NS_PER_MS, on_timer, &s, &timer), 0);
    run_until(&s.calls, 2);
    sleep_ms(5);
    loop_disarm_timer(timer);
    int calls = s.calls;
    assert_int_equal(loop_once(loop, 20), 0);
    assert_int_equal(s.calls, calls);
    assert_int_equal(loop_set_timer(timer, clock_mono_ns() + NS_PER_MS, 0), 0);
    run_until(&s.calls, calls + 1);
    loop_remove(timer);
}

static void expired_timer_does_not_fire_after_removal(void **state)
{
    (void)state;
    struct seen a = {0}, b = {0};
    struct loop_source *timer_a, *timer_b;
    assert_int_equal(loop_add_timer(loop, 1, 0, on_timer, &a, &timer_a), 0);
    assert_int_equal(loop_add_timer(loop, 1, 0, on_timer, &b, &timer_b), 0);
    sleep_ms(2); /* Both timers have expired, so one batch contains both events. */
    struct loop_source *both[] = {timer_a, timer_b, NULL};
    a.victims = b.victims = both;
    assert_int_equal(loop_once(loop, LONG_MS), 0);
    assert_int_equal(loop_once(loop, 0), 0);
    assert_int_equal(a.calls + b.calls, 1);
}

static bool is_blocked(int signo)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, signo) == 1;
}

static void signal_is_delivered_with_its_sender(void **state)
{
    (void)state;
    struct seen s = {0};
    assert_int_equal(loop_add_signal(loop, SIGUSR1, on_signal, &s), 0);
    union sigval v = {.sival_int = 42};
    assert_int_equal(sigqueue(getpid(), SIGUSR1, v), 0);
    run_until(&s.calls, 1);
    assert_int_equal(s.signo, SIGUSR1);
    assert_int_equal(s.value, 42);
}

static void signal_source_receives_no_other_signals(void **state)
{
    (void)state;
    struct seen one = {0}, two = {0};
    assert_int_equal(loop_add_signal(loop, SIGUSR1, on_signal, &one), 0);
    assert_int_equal(loop_add_signal(loop, SIGUSR2, on_signal, &two), 0);
    raise(SIGUSR2);
    run_until(&two.calls, 1);
    assert_int_equal(one.calls, 0);
}

static void freeing_the_event_loop_restores_the_signal_mask(void **state)
{
    (void)state;
    sigset_t mine, before, original;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mine, &before);
    struct loop *other;
    struct seen s = {0};
    assert_int_equal(loop_new(&other), 0);
    assert_int_equal(loop_add_signal(other, SIGUSR1, on_signal, &s), 0);
    assert_int_equal(loop_add_signal(other, SIGUSR2, on_signal, &s), 0);
    assert_true(is_blocked(SIGUSR1));
    loop_original_mask(other, &original);
    assert_int_equal(sigismember(&original, SIGUSR1), 0);
    assert_int_equal(sigismember(&original, SIGUSR2), 1);
    loop_free(other);
    assert_false(is_blocked(SIGUSR1));
    assert_true(is_blocked(SIGUSR2)); /* SIGUSR2 was already blocked before the loop was created */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void masks_are_equal(const sigset_t *a, const sigset_t *b)
{
    for (int signo = 1; signo < NSIG; signo++)
        assert_int_equal(sigismember(a, signo), sigismember(b, signo));
}

static void event_loop_refuses_a_signal_that_cannot_be_caught(void **state)
{
    (void)state;
    struct seen s = {0};
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(loop_add_signal(loop, SIGKILL, on_signal, &s), -EINVAL);
    assert_int_equal(loop_add_signal(loop, 0, on_signal, &s), -EINVAL);
    assert_int_equal(loop_add_signal(loop, 9999, on_signal, &s), -EINVAL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    masks_are_equal(&before, &after);
    loop_original_mask(loop, &after);
    masks_are_equal(&before, &after);
}

static void child_exit_wakes_the_event_loop(void **state)
{
    (void)state;
    struct seen s = {.should_stop = true};
    assert_int_equal(loop_add_signal(loop, SIGCHLD, on_signal, &s), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    assert_int_equal(loop_run(loop), 0);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 3);
}

static void stopped_event_loop_can_run_again(void **state)
{
    (void)state;
    struct seen s = {.should_stop = true};
    assert_int_equal(loop_add_timer(loop, 0, NS_PER_MS, on_timer, &s, NULL), 0);
    assert_int_equal(loop_run(loop), 0);
    assert_int_equal(s.calls, 1);
    assert_int_equal(loop_run(loop), 0);
    assert_int_equal(s.calls, 2);
    loop_stop(loop);
    assert_int_equal(loop_run(loop), 0); /* The stop was requested before the loop was run. */
    assert_int_equal(s.calls, 2);
}

static int alarm_pipe[2];
static volatile sig_atomic_t alarms;

static void on_alarm(int signo)
{
    (void)signo;
    if (++alarms == 3 && write(alarm_pipe[1], "x", 1) != 1)
        abort();
}

static void event_loop_continues_after_an_interrupted_wait(void **state)
{
    (void)state;
    struct seen s = {.should_stop = true};
    struct sigaction old, handler = {.sa_handler = on_alarm};
    alarms = 0;
    assert_int_equal(pipe(alarm_pipe), 0);
    assert_int_equal(loop_add_fd(loop, alarm_pipe[0], EPOLLIN, on_fd, &s, NULL), 0);
    sigaction(SIGALRM, &handler, &old);
    struct itimerval every = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    int r = loop_run(loop);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(r, 0);
    assert_int_equal(s.calls, 1);
    close(alarm_pipe[0]);
    close(alarm_pipe[1]);
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_LOOP(loop_iteration_without_events_succeeds),
        WITH_LOOP(readable_event_is_delivered_until_the_fd_is_removed),
        WITH_LOOP(hangup_event_is_delivered_even_if_not_requested),
        WITH_LOOP(adding_an_fd_that_epoll_refuses_returns_the_error),
        WITH_LOOP(pending_event_of_a_removed_source_is_not_delivered),
        WITH_LOOP(loop_callback_may_remove_all_sources_including_its_own),
        WITH_LOOP(nested_iteration_does_not_free_sources_still_in_use),
        WITH_LOOP(pending_event_is_dropped_if_no_longer_subscribed),
        WITH_LOOP(timer_fires_once_and_not_early),
        WITH_LOOP(timer_with_a_time_in_the_past_fires_at_once),
        WITH_LOOP(missed_timer_periods_cause_a_single_callback),
        WITH_LOOP(disarmed_timer_does_not_fire_until_set_again),
        WITH_LOOP(expired_timer_does_not_fire_after_removal),
        WITH_LOOP(signal_is_delivered_with_its_sender),
        WITH_LOOP(signal_source_receives_no_other_signals),
        WITH_LOOP(freeing_the_event_loop_restores_the_signal_mask),
        WITH_LOOP(event_loop_refuses_a_signal_that_cannot_be_caught),
        WITH_LOOP(child_exit_wakes_the_event_loop),
        WITH_LOOP(stopped_event_loop_can_run_again),
        WITH_LOOP(event_loop_continues_after_an_interrupted_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
