/* Ensures that at most one ebb is attached to a process. The attached ebb listens on an abstract
 * socket whose name contains the pid and start time of the process. Other commands reach that ebb
 * through this socket, which disappears when the ebb exits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct attach_target;
struct claim;
struct err;
struct loop;

enum { CLAIM_TEXT_MAX = 8192 };

/* Called when another command of the same user, or of root, asks to detach. */
typedef void claim_detach_fn(void *user);

/* Claims the process T. INFO is sent to other ebb processes that query the claim. Returns 0,
 * -EEXIST if another ebb is attached to the process, or -errno. ERR describes the error. */
int claim_new(struct loop *loop, const struct attach_target *t, const char *info,
              claim_detach_fn *fn, void *user, struct claim **ret, struct err *err);
/* answers the commands that are waiting for the detach, and frees C, which may be NULL */
void claim_free(struct claim *c);

enum claim_request { CLAIM_INFO, CLAIM_DETACH };
/* Sends REQUEST to the ebb that is attached to process PID, which started at START_TICKS.
 * CLAIM_DETACH returns only after that ebb has detached. Returns 0, -ENOENT if no ebb is attached
 * to the process, -EPERM if that ebb belongs to another user, or -ETIMEDOUT if it did not answer
 * within WAIT_NS. */
int claim_ask(int32_t pid, uint64_t start_ticks, enum claim_request request, uint64_t wait_ns,
              char ret[CLAIM_TEXT_MAX]);
