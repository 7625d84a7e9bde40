/* `ebb run` as one of several ranks on a node. Each `ebb run` stays the parent of its own command,
 * so that output, signals and exit status are the same as without ebb. All ranks of a node connect
 * to one supervisor, which the first rank starts. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "supervise/rank.h"

struct run_options;

struct run_rank {
    const struct run_options *options;
    const struct rank_place *place;
    const char *path; /* path of the command's program */
    char **argv;
    /* Starts the supervisor of this node, which accepts ranks on LISTEN_FD. Returns 0, or prints an
     * error and returns an exit status. */
    int (*start)(void *user, int listen_fd);
    void *user;
};

/* Runs the command. Returns the exit status; if a signal ended the command, this process ends by
 * the same signal instead. */
int run_rank(const struct run_rank *q);

/* Ends a rank: writes torchrun's error file and, in the last rank of the first node, prints the
 * summary of all nodes. BYE is the last message of the node's supervisor; NULL if there is none.
 * HAS_FAILED means that the rank has failed, so its end must not be delayed for long. */
void run_rank_end(const struct run_options *o, const struct rank_place *place, const json_t *bye,
                  bool has_failed);
