/* Requests a checkpoint from the job and detects when the checkpoint is written. A request is sent
 * in every configured way: to all ranks over the marks socket, to all ranks as a signal, and by
 * running a command. A checkpoint is treated as written when a mark reports it (ack or save), when
 * the file given by --checkpoint-done appears or changes, or when the command exits with status
 * 0. */
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
    int signo;           /* signal that requests a checkpoint, or 0 */
    const char *command; /* command for /bin/sh -c, or NULL */
    /* path of a file that appears or changes when the checkpoint is written, or NULL */
    const char *done;
};

enum { CHECKPOINT_PEERS = MARK_PEERS_MAX, CHECKPOINT_PATH_MAX = 1024, CHECKPOINT_TEXT_MAX = 240 };

/* A rank to which the request was sent over the socket. */
struct checkpoint_peer {
    int32_t pid; /* pid of the rank; 0 if the kernel did not report it */
    enum ladder_ack ack;
    bool is_dead;
};

/* The state of checkpoint requests. Code outside checkpoint.c may only read the fields. */
struct checkpoint {
    struct checkpoint_options options;
    uint64_t id;           /* id of the last request; 0 if there was none */
    uint64_t requested_ns; /* time of the last request, or 0 */
    bool is_open;          /* true from a request until the checkpoint is written or has failed */
    enum ladder_ack ack;
    pid_t command_pid; /* pid of the running command, or 0 */
    struct checkpoint_peer peer[CHECKPOINT_PEERS];
    size_t peers;
    /* path of the checkpoint as the job reported it; "" if unknown */
    char path[CHECKPOINT_PATH_MAX];
    /* what showed that the checkpoint is written ("mark", "file" or "command"); "" if it is not
     * written yet */
    char by[16];
    /* private */
    /* last id of a checkpoint request or STOP message; both take their ids from the same
     * sequence */
    uint64_t last_id;
    /* pids of processes that received the signal and are still alive */
    int32_t signalled[CHECKPOINT_PEERS];
    size_t signalled_count;
    struct stat file; /* state of the file before the request; st_ino is 0 if it did not exist */
};

/* Initializes C. The strings in OPTIONS must outlive it. */
void checkpoint_init(struct checkpoint *c, const struct checkpoint_options *options);
/* True if a checkpoint can be requested now; if not, writes the reason to WHY. MARKS may be
 * NULL. */
bool checkpoint_is_possible(const struct checkpoint *c, const struct mark_receiver *marks,
                            char why[CHECKPOINT_TEXT_MAX]);
/* Sends a request in every configured way. A new request replaces a request that is still open. The
 * signal goes to connected ranks. If there are none, it goes to processes whose role is main, or
 * else to the first processes of the job. It never goes to launchers or workers, nor to processes
 * without a handler, which the signal would kill. A command that is still running is not started
 * again; its exit is treated as an answer to the new request. Returns the number of ways that
 * succeeded; 0 means that the request has failed. WHY explains why the other ways failed, or is "".
 * MARKS may be NULL. Does not walk TREE. */
int checkpoint_request(struct checkpoint *c, uint64_t now_ns, struct mark_receiver *marks,
                       struct proc_tree *tree, char why[CHECKPOINT_TEXT_MAX]);

/* Each of the next four functions returns true if it changed c->ack. c->ack becomes LADDER_ACK_DONE
 * at the first sign of a written checkpoint, and LADDER_ACK_FAILED when no process is left that
 * could write one: each rank has answered or exited, all signalled processes have exited, and the
 * command has exited. */

/* Call this for each mark. A save mark is ignored if a rank received the request over the
 * socket. */
bool checkpoint_mark(struct checkpoint *c, const struct mark *mark);
/* Call this at least at every tick while a request is open. */
bool checkpoint_check_file(struct checkpoint *c);
/* Call this for each reaped child. If the child is the command and exited with status 0, the
 * checkpoint is treated as written. */
bool checkpoint_command_exited(struct checkpoint *c, pid_t pid, int status);
bool checkpoint_process_died(struct checkpoint *c, int32_t pid);
/* Starts a program in a new process group. The program's standard output is our standard error.
 * Returns 0 or an errno, as posix_spawn does; *RET is 0 after an error. */
int checkpoint_spawn(char *const argv[], pid_t *ret);
/* Requests that all connected ranks write a checkpoint and then exit by themselves (STOP). Returns
 * the number of ranks. */
int checkpoint_send_stop(struct checkpoint *c, struct mark_receiver *marks);
