/* HTTP to the job server over its unix socket: one request, one answer, with a limit on time and on
 * everything that comes back. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

/* What every command of a client has. Must be at the start of its own struct. */
struct client_options {
    const char *socket;
    bool json;
};
#define CLIENT_SOCKET_OPTION                                                                       \
    OPTION_ROW(0, "socket", PATH, "PATH", offsetof(struct client_options, socket),                 \
               .help = "the server's socket (default: $EBB_SERVER, or your own server's)")
#define CLIENT_JSON_OPTION(text)                                                                   \
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct client_options, json), .help = (text))

/* Exit status where there is no server or it refuses. */
enum { CLIENT_FAILED = 2 };

/* Part of an answer's body, as it comes. 0, or anything else to give up. */
typedef int client_body_fn(void *user, const char *data, size_t len);

struct client_request {
    const char *socket; /* as given; NULL: the usual */
    const char *method;
    const char *path;   /* with its query */
    const json_t *body; /* borrowed; NULL: none */
    unsigned wait_s;    /* how long the server may take beyond what it needs */
    /* of a good answer (2xx) that is not JSON; NULL: it must be JSON */
    client_body_fn *fn;
    void *user;
};

struct client_answer {
    unsigned status; /* of HTTP */
    json_t *doc;     /* the caller's; NULL where there is none */
    bool has_offset, has_end;
    uint64_t offset, end;   /* X-Log-Offset, X-Log-End */
    uint64_t retry_after_s; /* Retry-After; 0 where there is none */
};

/* 0 with an answer of 2xx; -ENOENT (no server), -EREMOTEIO (it refused: ret->status is set),
 * -ETIMEDOUT, -EBADMSG… with a sentence. -ECANCELED: FN gave up. */
int client_ask(const struct client_request *q, struct client_answer *ret, struct err *err);
/* The answer alone, from a connected socket; FD stays open. */
int client_receive(int fd, const struct client_request *q, struct client_answer *ret,
                   struct err *err);
void client_answer_fini(struct client_answer *answer); /* accepts a zeroed one */

/* A whole answer of JSON: *RET is the caller's. 0, or the sentence is printed and CLIENT_FAILED is
 * returned. COMMAND begins the sentence. */
int client_json(const char *command, const char *socket, const char *method, const char *path,
                const json_t *body, json_t **ret);

/* The number of a job on a command line. */
int client_parse_id(const char *command, const char *text, int64_t *ret);
/* S for a query, into OUT; false if it does not fit. */
bool client_encode(const char *s, char *out, size_t size);
/* DOC as one line on standard output: the exit status. */
int client_print_json(const json_t *doc);
