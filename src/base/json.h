/* What jansson leaves to its callers: strings that may not be UTF-8, and numbers that may be
 * absent. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD; NUL becomes \u0000. */
json_t *json_text(const char *s, size_t len);
json_t *json_text0(const char *s); /* of a C string; JSON null for NULL */
/* The arguments in a /proc/PID/cmdline, NUL between them, as strings. */
json_t *json_arguments(const char *args, size_t len);
/* Bytes and counts: exact up to 2^63 - 1, clamped beyond. */
json_t *json_u64(uint64_t v);
json_t *json_count(double v); /* whole; 0 for what is negative or no number */
/* Seconds with microseconds from nanoseconds. */
json_t *json_seconds(uint64_t ns);
/* Wall-clock nanoseconds as local time with its offset, "2026-01-31T12:00:00+0100"; or null. */
json_t *json_local_time(uint64_t wall_ns);
/* One compact (INDENT 0) or indented document and a newline, appended to OUT or written to FD:
 * 0 or -errno. */
struct buf;
int json_print(struct buf *out, const json_t *doc, int indent);
int json_write(int fd, const json_t *doc, int indent);
/* Parses LEN bytes of untrusted JSON: at most 16 MiB and depth 64 (NULL otherwise, sentence in
 * err). */
struct err;
json_t *json_parse(const char *s, size_t len, struct err *err);
/* Whether the text has more than about MAX values. One takes many times its text in memory: what
 * is nothing but brackets would take all of it. */
bool json_is_crowded(const char *s, size_t len, size_t max);
/* -EINVAL with the sentence "KEY: VALUE WHY": the value as JSON, cut. */
int json_refuse(struct err *err, const char *key, const json_t *value, const char *why);
