/* Answers to requests. Each request is answered exactly once: immediately, or after http_park. */
#pragma once

#include "server/http/http.h"

/* takes ownership of DOC */
void http_answer_json(struct http_request *r, unsigned status, json_t *doc);
void http_answer_text(struct http_request *r, unsigned status, const char *type, const void *data,
                      size_t len);
/* GZ must be static. It is decompressed for clients that do not accept gzip. */
void http_answer_gzip(struct http_request *r, const char *type, const char *etag, const void *gz,
                      size_t len);
/* Sends LEN bytes, which READ writes into BUF piece by piece. If READ returns -1, the connection is
 * closed; if READ returns -EAGAIN, READ is called again after http_stream_go_on. FREE_USER is
 * always called. */
typedef ssize_t http_read_fn(void *user, uint64_t pos, char *buf, size_t max);
void http_stream_go_on(struct http_request *r);
void http_answer_stream(struct http_request *r, unsigned status, const char *type, uint64_t len,
                        http_read_fn *read, void *user, void (*free_user)(void *user));
void http_answer_error(struct http_request *r, unsigned status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a header to the answer. It replaces a default header of the same name. VALUE must not
 * contain control characters. */
void http_add_header(struct http_request *r, const char *key, const char *value);
void http_upgrade(struct http_request *r, http_upgrade_fn *fn, void *user);
enum http_rank http_upgraded_rank(const struct http_upgraded *u);
void http_upgraded_close(struct http_upgraded *u);

/* Announces that the request will be answered later. GONE is called if the client disconnects
 * first; R must not be used after that. LATE, if not NULL, is called after ten seconds without an
 * answer, and must answer. A parked request may be parked again. */
typedef void http_parked_fn(void *user);
void http_park(struct http_request *r, http_parked_fn *gone, http_parked_fn *late, void *user);
