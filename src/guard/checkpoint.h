/* Requests a checkpoint from the job and finds out when it is written. A request is sent in every
 * configured way: to all ranks over the marks socket, as a signal to all ranks, by a command. A
 * checkpoint is written when a mark says so (ack or save), when a file appears or changes, or when
 * the command exits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "guard/ladder.h"
#include "mark/mark.h"
#include "mark/receiver.h"
#include "proc/tree.h"

struct checkpoint_options {
    int signo;           /* 0: no signal */
    const char *command; /* for /bin/sh -c; NULL: no command */
    const char *done;    /* path of a file that appears or changes when the checkpoint is written;
                            NULL: no file */
};

enum { CHECKPOINT_PEERS = MARK_PEERS_MAX, CHECKPOINT_PATH_MAX = 1024, CHECKPOINT_TEXT_MAX = 240 };

/* A rank that was sent the request over the socket. */
struct checkpoint_peer {
    int32_t pid; /* 0: the kernel did not report it */
    enum ladder_ack ack;
    bool is_dead;
};

/* Other files only read the fields. */
struct checkpoint {
    struct checkpoint_options options;
    uint64_t id;                                /* of the last request; 0: no request yet */
    uint64_t requested_ns, started_ns, done_ns; /* 0: not yet */
    bool is_open;                               /* requested, and neither written nor failed */
    enum ladder_ack ack;
    int by_socket, by_signal; /* number of ranks that were sent the request in this way */
    pid_t command_pid;        /* 0: no command runs */
    struct checkpoint_peer peer[CHECKPOINT_PEERS];
    size_t peers;
    char path[CHECKPOINT_PATH_MAX]; /* path of the checkpoint as the job reported it; "": unknown */
    char by[16]; /* how its end was noticed: "mark", "file", "command"; "": not written yet */
    /* private */
    uint64_t last_id; /* STOP messages take their ids from it as well, so that no two answers are
                         confused */
    int32_t signalled[CHECKPOINT_PEERS]; /* living processes that were sent the signal */
    size_t signalled_count;
    bool awaits_file; /* the command has exited, so the file decides */
    struct stat file; /* the file before the request; st_ino 0: it did not exist */
};

/* C borrows the strings in OPTIONS. */
void checkpoint_init(struct checkpoint *c, const struct checkpoint_options *options);
/* Whether a checkpoint can be requested now; if not, WHY is the reason. MARKS may be NULL. */
bool checkpoint_is_possible(const struct checkpoint *c, const struct mark_receiver *marks,
                            char why[CHECKPOINT_TEXT_MAX]);
/* Sends a request in every configured way; it replaces an open request. The signal goes to
 * connected ranks, else to processes whose role is main, else to the first processes of the job:
 * never to launchers and workers, and only to processes with a handler, because the default action
 * would end them. A command that still runs is not started again; its exit counts for the new
 * request. Returns the number of ways that succeeded; 0: the request has failed. WHY explains the
 * ways that failed, or is "". MARKS may be NULL. TREE is not walked. */
int checkpoint_request(struct checkpoint *c, uint64_t now_ns, struct mark_receiver *marks,
                       struct proc_tree *tree, char why[CHECKPOINT_TEXT_MAX]);

/* Each of the next four functions returns whether ACK has changed. ACK becomes LADDER_ACK_DONE at
 * the first sign of a written checkpoint. It becomes LADDER_ACK_FAILED once no process is left that
 * could write one: all ranks have answered (not all with done) or exited, all signalled processes
 * have exited, and the command has exited. */

/* To be called with each mark: an ack counts, and a save if no rank was sent the request over the
 * socket. */
bool checkpoint_mark(struct checkpoint *c, const struct mark *mark);
/* To be called at least on every tick while a request is open. */
bool checkpoint_check_file(struct checkpoint *c, uint64_t now_ns);
/* To be called for each reaped child. Exit status 0 of the command means that the checkpoint is
 * written. */
bool checkpoint_command_exited(struct checkpoint *c, pid_t pid, int status, uint64_t now_ns);
bool checkpoint_process_died(struct checkpoint *c, int32_t pid, uint64_t now_ns);
/* Asks all connected ranks to exit by themselves (STOP), after a checkpoint. Returns the number of
 * ranks. */
int checkpoint_send_stop(struct checkpoint *c, struct mark_receiver *marks);
