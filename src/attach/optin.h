/* EBB_ATTACH=1: a process that was started with this variable listens on a socket
 * (python/ebb/_optin.py), and loads or removes ebb's hooks on request. ebb needs no right to trace
 * such a process, and the process is not paused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct attach_target;
struct err;
struct script;

enum { OPTIN_PATH_MAX = 108, OPTIN_ANSWER_MAX = 1024 };

/* Finds the socket of T, in a folder that only the user of T can enter, and checks that T itself
 * listens there. Returns false if T has not opted in. */
bool optin_find(const struct attach_target *t, char ret[OPTIN_PATH_MAX]);
/* Sends a request to load or remove ebb's hooks. The effect in the process is that of a script of
 * script.h. Returns a connection on which the answer arrives, or -errno with a message. Closing the
 * connection before the answer withdraws the request. */
int optin_request_start(const struct attach_target *t, const struct script *s, struct err *err);
int optin_request_stop(const struct attach_target *t, struct err *err);
/* Receives the answer, in the form of a mark. Returns its length; 0 if the connection was closed;
 * or -EAGAIN if the answer has not arrived yet. */
ssize_t optin_answer(int fd, char ret[OPTIN_ANSWER_MAX]);
