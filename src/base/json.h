/* Additions to jansson: strings from arbitrary bytes, numbers, times, and limits for untrusted
 * input. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Converts arbitrary bytes to a JSON string. Invalid UTF-8 becomes U+FFFD, and NUL becomes
 * \u0000. */
json_t *json_text(const char *s, size_t len);
json_t *json_text0(const char *s); /* like json_text, but for a C string; JSON null if S is NULL */
/* Converts the content of /proc/PID/cmdline (arguments separated by NUL) to an array of strings. */
json_t *json_arguments(const char *args, size_t len);
/* A JSON integer for byte and item counts: exact up to 2^63 - 1, clamped above that. */
json_t *json_u64(uint64_t v);
json_t *json_count(double v); /* V as a JSON integer; 0 if V is negative or NaN */
/* Converts nanoseconds to seconds with microsecond precision. */
json_t *json_seconds(uint64_t ns);
/* Formats a wall-clock time as local time with its UTC offset, "2026-01-31T12:00:00+0100". JSON
 * null if the time is invalid. */
json_t *json_local_time(uint64_t wall_ns);
/* Both functions write a document and a newline, on a single line if INDENT is 0. json_print
 * appends to OUT, json_write writes to FD. Both return 0 or -errno. */
struct buf;
int json_print(struct buf *out, const json_t *doc, int indent);
int json_write(int fd, const json_t *doc, int indent);
/* Parses LEN bytes of untrusted JSON. Returns NULL and sets ERR if the text is invalid, larger than
 * 16 MiB or nested more than 64 levels deep. */
struct err;
json_t *json_parse(const char *s, size_t len, struct err *err);
/* True if the JSON text has more than about MAX values. Parsed values need far more memory than
 * their text, so a short text with many values could exhaust memory. */
bool json_is_crowded(const char *s, size_t len, size_t max);
/* Sets the error message "KEY: VALUE WHY", where VALUE is JSON, truncated if long. Returns
 * -EINVAL. */
int json_refuse(struct err *err, const char *key, const json_t *value, const char *why);
