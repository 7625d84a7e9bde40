/* Helpers for tests of process trees: child processes that follow commands, mock-ups of /proc, and
 * a log of events. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/eventually.h"
#include "proc/tree.h"

/* Counts events of each kind and keeps the last one of each kind. */
struct notebook {
    size_t count[8];
    int32_t pid[8];
    uint32_t slot[8];
};
void notebook_write(void *user, const struct proc_event *event);

/* Forks a child that calls FN and then sleeps until it is killed; it dies with this process. */
typedef void kid_fn(void *arg);
pid_t kid_start(kid_fn *fn, void *arg); /* Returns when FN has returned. */
pid_t kid_spawn(kid_fn *fn, void *arg); /* Returns without waiting for FN. */
void kid_end(pid_t pid);                /* SIGKILL and reap */
/* Forks a child that dies with its parent, even if the parent dies at once. A child that stays
 * would keep the output of the test open. */
pid_t fork_tied(void);
/* Forks a child that outlives its parent for a short time. */
pid_t fork_loose(void);
_Noreturn void sleep_for_ever(void);

/* Runs FN in a child process, as another user if this process is root. Returns FN's result (0 to
 * 99), or 100 if it crashed. FN must not use cmocka's assertions. */
typedef int strange_fn(void *arg);
int as_nobody(strange_fn *fn, void *arg);
int in_child(strange_fn *fn, void *arg);
/* Returns false in a user namespace without a second user; the test must then be skipped. */
bool can_be_nobody(void);
/* Returns whether there is a process of another user, either a child or init. */
bool has_strangers(void);

/* A folder with files like those of /proc. */
struct mock {
    char path[64];
    struct proc_root root;
};
struct mock_process {
    int32_t pid, ppid;
    char state; /* 0: S */
    uint64_t start;
    uint64_t rss_pages;
    uint64_t size_bytes; /* 0: 100 MiB, unless no_memory */
    bool no_memory;
    uint64_t start_stack;
    int threads; /* 0: 1 */
    const char *comm;
    const char *children; /* NULL means that the children file does not exist. */
};
void mock_begin(struct mock *m);
void mock_end(struct mock *m);
/* Writes DIR/NAME in place, so that open descriptors see the change, and creates missing
 * folders. */
void mock_write(const struct mock *m, int32_t pid, const char *name, const void *data, size_t len);
void mock_put(const struct mock *m, const struct mock_process *p);
void mock_remove(const struct mock *m, int32_t pid);
