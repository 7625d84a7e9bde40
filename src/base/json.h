/* Additions to jansson: strings that may not be UTF-8, and optional numbers. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A JSON string of any bytes. Invalid UTF-8 becomes U+FFFD; NUL becomes \u0000. */
json_t *json_text(const char *s, size_t len);
json_t *json_text0(const char *s); /* of a C string; JSON null if S is NULL */
/* The arguments of a /proc/PID/cmdline, which are separated by NUL, as an array of strings. */
json_t *json_arguments(const char *args, size_t len);
/* For bytes and counts: exact up to 2^63 - 1, clamped beyond. */
json_t *json_u64(uint64_t v);
json_t *json_count(double v); /* a whole number; 0 for negative values and NAN */
/* Nanoseconds as seconds with microsecond precision. */
json_t *json_seconds(uint64_t ns);
/* Wall-clock nanoseconds as local time with its offset, "2026-01-31T12:00:00+0100"; or null. */
json_t *json_local_time(uint64_t wall_ns);
/* Append a compact (INDENT 0) or indented document and a newline to OUT, or write it to FD. 0 or
 * -errno. */
struct buf;
int json_print(struct buf *out, const json_t *doc, int indent);
int json_write(int fd, const json_t *doc, int indent);
/* Parses LEN bytes of untrusted JSON, at most 16 MiB and 64 levels deep; otherwise NULL with an
 * error. */
struct err;
json_t *json_parse(const char *s, size_t len, struct err *err);
/* True if the text has more than about MAX values. A parsed value takes many times the memory of
 * its text, so a text of nothing but brackets could exhaust it. */
bool json_is_crowded(const char *s, size_t len, size_t max);
/* Sets the error "KEY: VALUE WHY", with the value as JSON, truncated. Returns -EINVAL. */
int json_refuse(struct err *err, const char *key, const json_t *value, const char *why);
