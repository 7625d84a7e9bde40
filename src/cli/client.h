/* HTTP requests to the job server over its unix socket: one request and one answer, with limits on
 * the duration and the size of the answer. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

/* Options of every client command. They must be the first member of the command's own struct. */
struct client_options {
    const char *socket;
    bool json;
};
#define CLIENT_SOCKET_OPTION                                                                       \
    OPTION_ROW(0, "socket", PATH, "PATH", offsetof(struct client_options, socket),                 \
               .help = "the server's socket (default: $EBB_SERVER, or your own server's)")
#define CLIENT_JSON_OPTION(text)                                                                   \
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct client_options, json), .help = (text))

/* Called with each part of an answer's body when it arrives. Returns 0; anything else cancels
 * the request. */
typedef int client_body_fn(void *user, const char *data, size_t len);

struct client_request {
    const char *socket; /* value of --socket, or NULL for the default socket */
    const char *method;
    const char *path;   /* path of the URL including the query */
    const json_t *body; /* body of the request, borrowed, or NULL */
    /* additional time limit for the answer to a long poll, in seconds */
    unsigned wait_s;
    /* receives the body of a successful answer (2xx), which need not be JSON; if NULL, the body
     * must be JSON */
    client_body_fn *fn;
    void *user;
};

struct client_answer {
    unsigned status; /* HTTP status */
    json_t *doc;     /* owned by the caller; NULL if the answer has no document */
    bool has_offset, has_end;
    uint64_t offset, end;   /* X-Log-Offset, X-Log-End */
    uint64_t retry_after_s; /* Retry-After; 0: missing */
};

/* Sends a request. Returns 0 if the status of the answer is 2xx, and -ECANCELED if FN cancelled the
 * request. All other results come with an error message: -ENOENT if there is no server, -EREMOTEIO
 * if the server refused the request (ret->status is set), or another -errno such as -ETIMEDOUT or
 * -EBADMSG. */
int client_ask(const struct client_request *q, struct client_answer *ret, struct err *err);
/* Reads an answer from the connected socket FD, without sending a request. FD stays open. */
int client_receive(int fd, const struct client_request *q, struct client_answer *ret,
                   struct err *err);
/* Frees the answer, which may be a zeroed struct. */
void client_answer_fini(struct client_answer *answer);

/* Requests a JSON document, which the caller owns. *RET is NULL after an error. */
int client_json(const char *socket, const char *method, const char *path, const json_t *body,
                json_t **ret, struct err *err);

/* Parses a job id on a command line. */
int client_parse_id(const char *text, int64_t *ret, struct err *err);
/* Finds the folder in which `ebb serve` keeps its state and its socket: GIVEN, else $EBB_STATE_DIR,
 * else $XDG_STATE_HOME/ebb (usually ~/.local/state/ebb). The path is absolute. Returns 0, or -errno
 * with an error. */
int client_state_dir(const char *given, char ret[PATH_MAX], struct err *err);
/* Encodes S for a URL query into OUT. Returns false if it does not fit. */
bool client_encode(const char *s, char *out, size_t size);
