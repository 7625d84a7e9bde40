/* Asking the supervisor or the processes of a run: our own socket beside theirs, for the answer. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/err.h"

/* A datagram socket "MARKS.WHAT-PID" beside the run's own, MARKS: its fd, or -errno. Whoever may be
 * asked may answer there; it is to be unlinked by the caller. */
int ask_bind(const char *marks, const char *what, struct sockaddr_un *ret);
/* The supervisor's answer to QUERY ("KIND=query\nNAME=…\n", REPLY is added): its JSON, or NULL with
 * a sentence where none came within TIMEOUT_NS. */
json_t *ask_supervisor(const char *marks, const char *query, uint64_t timeout_ns, struct err *err);
