/* Where marks arrive and from where requests go out: one datagram socket of a job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"

struct err;
struct loop;
struct mark_receiver;

/* Called on the loop for each good mark, acknowledgements and hellos included. The mark's text is
 * valid during the call. It may ask and forget peers, but not free the receiver. */
typedef void mark_fn(void *user, const struct mark *mark);

/* Makes a private folder (0700) under $XDG_RUNTIME_DIR, $TMPDIR or /tmp, the first that can be
 * written to and is short enough for a socket address, with the socket in it. */
int mark_receiver_new(struct loop *loop, mark_fn *fn, void *user, struct mark_receiver **ret,
                      struct err *err);
/* Removes the folder with all that the job put into it, and those beside it whose ebb was killed
 * before it could do so. NULL is fine. */
void mark_receiver_free(struct mark_receiver *r);
/* For a process that outlives the receiver. In a folder not marked as ebb's own only sockets and
 * links are removed. */
void mark_folder_remove(const char *folder);
/* Removes it if it is marked as ebb's own and nobody listens there any more. */
void mark_folder_remove_abandoned(const char *folder);
const char *mark_receiver_path(const struct mark_receiver *r); /* for EBB_SOCKET */
/* The folder alone, so that whoever outlives us can remove it. */
const char *mark_receiver_folder(const struct mark_receiver *r);

struct mark_receiver_stats {
    uint64_t received;
    uint64_t bad; /* dropped: not a mark, too long, or of another user (unless we are root) */
    uint64_t first_ns, last_ns; /* of the good ones; 0 while there are none */
};
void mark_receiver_stats(const struct mark_receiver *r, struct mark_receiver_stats *ret);

/* A process that said hello with a usable REPLY (absolute, short enough, not our own socket) and
 * can be asked. The same process saying it again replaces what it said. Beyond the maximum a
 * hello is still a mark, but makes no peer. */
enum { MARK_PEERS_MAX = 1024 };
struct mark_peer {
    int32_t pid;    /* 0: the kernel could not tell (another pid namespace) */
    int64_t rank;   /* -1: did not say */
    bool is_worker; /* ROLE=worker: never asked */
    char reply[108];
};
size_t mark_receiver_peers(const struct mark_receiver *r, const struct mark_peer **ret);

/* Sends "WHAT=ID\n" (CHECKPOINT, CENSUS, STOP) to every rank that said hello. Returns how many got
 * it. A peer whose socket is gone is forgotten; one whose queue is full is kept, not counted.
 * Never blocks, never allocates. */
int mark_receiver_request(struct mark_receiver *r, const char *what, uint64_t id);
