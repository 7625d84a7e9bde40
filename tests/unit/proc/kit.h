/* Helpers for tests of process trees: child processes that run a given function, mock-ups of /proc,
 * and a log of events. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/eventually.h"
#include "proc/tree.h"

/* How many events of each kind were reported, and the pid and slot of the last event. */
struct notebook {
    size_t count[8];
    int32_t pid[8];
    uint32_t slot[8];
};
void notebook_write(void *user, const struct proc_event *event);

/* Forks a child that calls FN and then sleeps until it is killed. It is killed when this process
 * exits. */
typedef void kid_fn(void *arg);
pid_t kid_start(kid_fn *fn, void *arg); /* Returns when FN has returned. */
pid_t kid_spawn(kid_fn *fn, void *arg); /* Returns without waiting for FN. */
void kid_end(pid_t pid);                /* SIGKILL and reap */
/* Forks a child that is killed when its parent exits, even if the parent exits at once. A remaining
 * child would keep the test's output open. */
pid_t fork_tied(void);
/* Forks a child that may run for a short time after its parent has exited. */
pid_t fork_loose(void);
_Noreturn void sleep_for_ever(void);

/* Run FN in a child process; as_nobody runs it as another user if this process is root. Return FN's
 * result (0 to 99), or 100 if FN crashed. FN must not use cmocka's assertions. */
typedef int strange_fn(void *arg);
int as_nobody(strange_fn *fn, void *arg);
int in_child(strange_fn *fn, void *arg);
/* Returns false in a user namespace that has only one user; the test must then be skipped. */
bool can_be_nobody(void);
/* Returns true if the tests can use a process of another user. If the test runs as root, that
 * process is a child that switches to the user nobody, so can_be_nobody() must be true. Otherwise
 * that process is init, which must belong to root. */
bool has_strangers(void);

/* A folder with files like those of /proc. */
struct mock {
    char path[64];
    struct proc_root root;
};
struct mock_process {
    int32_t pid, ppid;
    char state; /* 0 means S */
    uint64_t start;
    uint64_t rss_pages;
    uint64_t size_bytes; /* 0 means 100 MiB, unless no_memory is set */
    bool no_memory;
    uint64_t start_stack;
    int threads; /* 0 means 1 */
    const char *comm;
    const char *children; /* NULL if the children file does not exist */
};
void mock_begin(struct mock *m);
void mock_end(struct mock *m);
/* Writes DIR/NAME in place, so that fds that are open see the change. Creates missing folders. */
void mock_write(const struct mock *m, int32_t pid, const char *name, const void *data, size_t len);
void mock_put(const struct mock *m, const struct mock_process *p);
void mock_remove(const struct mock *m, int32_t pid);
