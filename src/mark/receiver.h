/* The datagram socket on which ebb receives a job's marks and from which it sends requests to the
 * job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

struct err;
struct loop;
struct mark_receiver;

/* Called from the event loop for each valid mark, including acknowledgements and hellos. The mark's
 * text is valid only during the call. The callback may send requests, but must not free the
 * receiver. */
typedef void mark_fn(void *user, const struct mark *mark);

/* Creates a private folder (0700) and the socket in it. The folder's parent is the first of
 * $XDG_RUNTIME_DIR, $TMPDIR and /tmp that is writable and short enough for a socket address. */
int mark_receiver_new(struct loop *loop, mark_fn *fn, void *user, struct mark_receiver **ret,
                      struct err *err);
/* Removes the folder with all files of the job in it, and the folders beside it that a killed ebb
 * left behind. R may be NULL. */
void mark_receiver_free(struct mark_receiver *r);
/* Removes FOLDER. Called by a process that outlives the receiver. If ebb did not create the folder,
 * only sockets and symbolic links in it are removed. */
void mark_folder_remove(const char *folder);
/* Removes FOLDER if ebb created it and no process listens there any more. */
void mark_folder_remove_abandoned(const char *folder);
const char *mark_receiver_path(const struct mark_receiver *r); /* for EBB_SOCKET */
/* Path of the folder, for a process that outlives the receiver and removes it. */
const char *mark_receiver_folder(const struct mark_receiver *r);

struct mark_receiver_stats {
    uint64_t received;
    /* marks dropped because they were invalid, too long, or from another user (unless we are
     * root) */
    uint64_t bad;
};
void mark_receiver_stats(const struct mark_receiver *r, struct mark_receiver_stats *ret);

/* A process that can receive requests. It sent a hello with a usable REPLY: an absolute path that
 * is short enough and is not our own socket. A second hello of the same process replaces the first.
 * If there are already MARK_PEERS_MAX peers, a hello is still recorded as a mark but adds no
 * peer. */
enum { MARK_PEERS_MAX = 1024 };
struct mark_peer {
    int32_t pid;    /* pid of the sender; 0 if it is in another pid namespace */
    int64_t rank;   /* -1: not sent */
    bool is_worker; /* the hello had ROLE=worker, so the process receives no requests */
    char reply[108];
};
size_t mark_receiver_peers(const struct mark_receiver *r, const struct mark_peer **ret);
void mark_receiver_died(struct mark_receiver *r, int32_t pid); /* removes the peer PID */

/* Sends "WHAT=ID\n" (WHAT is CHECKPOINT, CENSUS or STOP) to every rank that sent a hello. Returns
 * the number of ranks reached. A peer whose socket no longer exists is removed; a peer whose queue
 * is full is kept but not counted. Never blocks, never allocates. */
int mark_receiver_request(struct mark_receiver *r, const char *what, uint64_t id);
