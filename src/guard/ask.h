/* Asking the job for a checkpoint, and learning that it is written. Three ways to ask (all that are
 * set are used): a request to every rank on the marks socket, a signal to every rank, a command.
 * Three ways to learn: marks (ack, or save), a file that appears or changes, the command's exit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/ladder.h"
#include "mark/mark.h"
#include "mark/receiver.h"
#include "proc/tree.h"

struct ask_options {
    int signo;           /* 0: none */
    const char *command; /* for /bin/sh -c; NULL: none */
    const char *done;    /* a file; NULL: none */
};

enum { ASK_PEERS = MARK_PEERS_MAX, ASK_PATH_MAX = 1024, ASK_TEXT_MAX = 240 };

/* A rank that was asked by socket. */
struct ask_peer {
    int32_t pid; /* 0: unknown to the kernel; then any answer with the right ID may be its */
    enum ladder_ack ack;
    bool is_gone; /* died: what it has not answered it never will */
};

/* All fields are for reading only. */
struct ask {
    struct ask_options options;
    uint64_t id;                            /* of the request under way or the last; 0: none yet */
    uint64_t asked_ns, started_ns, done_ns; /* 0: not yet */
    bool is_open;                           /* asked, and neither done nor failed */
    enum ladder_ack ack;
    int socket_asked, signal_asked;  /* how many ranks by which way */
    pid_t command_pid;               /* 0: none runs */
    struct ask_peer peer[ASK_PEERS]; /* those asked by socket */
    size_t peers;
    char path[ASK_PATH_MAX]; /* of the checkpoint as the job reported it, raw; "" not reported */
    char by[16];             /* "mark", "file", "command": how it was learned; "" not done */
    /* private */
    uint64_t last_id; /* numbers are shared with STOP, so that no answer can be taken for another */
    int32_t signalled[ASK_PEERS]; /* those that live */
    size_t signalled_count;
    bool awaits_file; /* the command has exited: the file decides */
    bool file_was_there;
    uint64_t file_ino;
    int64_t file_size, file_mtime_ns; /* of the file before asking */
};

/* The strings in OPTIONS are borrowed. */
void ask_init(struct ask *a, const struct ask_options *options);
/* Could anybody be asked now? WHY gets the reason when not ("no rank has said hello on EBB_SOCKET,
 * and neither --checkpoint-signal nor --checkpoint-cmd is given"). MARKS may be NULL. */
bool ask_can(const struct ask *a, const struct mark_receiver *marks, char why[ASK_TEXT_MAX]);
/* Asks by every way there is; a request that was open is given up for the new one. A signal goes to
 * ranks only: to those that are connected; where none is to processes whose role is main; where
 * there is none to the job's own first processes. Never to launchers or workers, and only to those
 * that catch it: the default action would end them. A command that still runs is not started again,
 * its exit counts for the new request. Returns how many ways got through; 0 if none, and then the
 * request has FAILED. WHY says what did not get through, also where something else did; else it is
 * "". MARKS may be NULL. TREE is not walked. */
int ask_now(struct ask *a, uint64_t now_ns, struct mark_receiver *marks, struct proc_tree *tree,
            char why[ASK_TEXT_MAX]);

/* Of the four below the first that learns of a checkpoint makes it DONE. It is FAILED when nobody
 * is left who could still make one: every rank asked by socket has answered or died (and not all
 * that answered reported done), every one that got the signal has died, and the command has ended.
 */

/* A mark came: acknowledgements, and saves while a request is open (where no rank was asked by
 * socket: one that was says so itself). True if ACK has changed. */
bool ask_mark(struct ask *a, const struct mark *mark);
/* Looks for the file, on every tick or a quicker timer while a request is open. True if ACK has
 * changed. */
bool ask_check_file(struct ask *a, uint64_t now_ns);
/* A child has ended (called by whoever reaps, for any). If it is the command, exit status 0 means
 * done. True if ACK has changed. */
bool ask_reaped(struct ask *a, pid_t pid, int status, uint64_t now_ns);
/* A process of the job has died: one that was asked cannot answer any more. True if ACK has
 * changed. */
bool ask_died(struct ask *a, int32_t pid, uint64_t now_ns);
/* Asks every rank to end by itself (STOP), after the checkpoint. Returns how many got it. */
int ask_stop(struct ask *a, struct mark_receiver *marks);
