/* Answers to a request: exactly one, now or after http_park. */
#pragma once

#include "server/http/http.h"

void http_answer_json(struct http_request *r, unsigned status, json_t *doc); /* takes DOC */
void http_answer_text(struct http_request *r, unsigned status, const char *type, const void *data,
                      size_t len);
void http_answer_gzip(struct http_request *r, const char *type, const char *etag, const void *gz,
                      size_t len); /* of static data: not copied; unpacked where it must be */
/* LEN bytes of FD from OFFSET, as 200 or 206 with Content-Range of TOTAL, where the caller has not
 * said another; FD is taken. */
void http_answer_file(struct http_request *r, unsigned status, const char *type, int fd,
                      uint64_t offset, uint64_t len, uint64_t total);
/* LEN bytes that READ puts at BUF, piece by piece, from POS on; what it cannot have (-1) ends the
 * connection. FREE_USER is called in any case. */
typedef ssize_t http_read_fn(void *user, uint64_t pos, char *buf, size_t max);
void http_answer_stream(struct http_request *r, unsigned status, const char *type, uint64_t len,
                        http_read_fn *read, void *user, void (*free_user)(void *user));
void http_answer_error(struct http_request *r, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Before it; in the place of what would be sent by default (Cache-Control,
 * Content-Security-Policy). VALUE without control characters. */
void http_add_header(struct http_request *r, const char *key, const char *value);
void http_upgrade(struct http_request *r, http_upgrade_fn *fn, void *user);
enum http_rank http_upgraded_rank(const struct http_upgraded *u);
void http_upgraded_close(struct http_upgraded *u);

/* The request waits; it is answered later. GONE is called if the client goes first: after that R is
 * not to be used. */
typedef void http_gone_fn(void *user);
void http_park(struct http_request *r, http_gone_fn *gone, void *user);
