/* Asking the job for a checkpoint, and hearing that it is there. Three ways to ask (all that are
 * set are used): a request to every rank on the marks socket, a signal to every rank, a command.
 * Three ways to hear: marks (ack, or save), a file that appears or changes, the command's exit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/ladder.h"
#include "mark/mark.h"
#include "mark/receiver.h"
#include "proc/tree.h"

struct err;

struct ask_options {
    int signo;           /* 0: none */
    const char *command; /* for /bin/sh -c; NULL: none */
    const char *done;    /* a file; NULL: none */
};

enum { ASK_PEERS = 64, ASK_PATH_MAX = 1024, ASK_TEXT_MAX = 240 };

/* All fields are for reading only. */
struct ask {
    struct ask_options options;
    uint64_t id; /* of the request under way or the last; 0: none yet */
    uint64_t asked_ns, started_ns, done_ns;
    bool is_open; /* asked, and neither done nor failed */
    enum ladder_ack ack;
    int socket_asked, signal_asked; /* how many ranks by which way */
    pid_t command_pid;              /* 0: none runs */
    struct {
        int32_t pid;
        enum ladder_ack ack;
    } peer[ASK_PEERS]; /* those asked by socket */
    size_t peers;
    char path[ASK_PATH_MAX]; /* of the checkpoint as the job said it, raw; "" not said */
    char by[16];             /* "mark", "file", "command": how it was heard */
    /* private */
    int64_t done_mtime_ns, done_ino, done_size; /* of the file before asking */
};

void ask_init(struct ask *a, const struct ask_options *options);
/* Could anybody be asked now? WHY gets the reason when not ("no rank has said hello on EBB_SOCKET,
 * and neither --checkpoint-signal nor --checkpoint-cmd is given"). */
bool ask_can(const struct ask *a, const struct mark_receiver *marks, char why[ASK_TEXT_MAX]);
/* Asks by every way there is. A signal goes to ranks only (processes whose role is main, or that
 * said hello as a rank; never launchers or workers), and only to those that catch it: the default
 * action would end them. Returns how many ways got through, 0 if none (WHY says). MARKS may be
 * NULL. */
int ask_now(struct ask *a, uint64_t now_ns, struct mark_receiver *marks, struct proc_tree *tree,
            char why[ASK_TEXT_MAX]);
/* A mark came: acknowledgements, and saves while a request is open. True if ACK has changed. */
bool ask_mark(struct ask *a, const struct mark *mark);
/* Looks for the file, on every tick or a quicker timer while a request is open. True if ACK has
 * changed. */
bool ask_look(struct ask *a, uint64_t now_ns);
/* The command has ended (called by whoever reaps). True if ACK has changed. */
bool ask_reaped(struct ask *a, pid_t pid, int status, uint64_t now_ns);
/* A process of the job has died: one that was asked cannot answer any more. True if ACK has
 * changed (all that lived have answered, or nobody is left: failed). */
bool ask_died(struct ask *a, int32_t pid, uint64_t now_ns);
/* Asks every rank to end by itself (STOP), after the checkpoint. Returns how many got it. */
int ask_stop(struct ask *a, struct mark_receiver *marks);
