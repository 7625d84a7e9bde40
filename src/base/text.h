/* Text for terminals: escapes names, formats sizes and times. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Decodes the UTF-8 character at S. Returns its length, 1 to 4, or 0 if LEN is 0 or the bytes are
 * not strict UTF-8 (overlong, surrogate, above U+10FFFF, truncated). */
size_t text_utf8(const char *s, size_t len, uint32_t *ret);

/* Appends the LEN bytes of S, escaped so that they cannot control a terminal. Control characters,
 * DEL, C1 controls, bidirectional overrides, line and paragraph separators and bytes that are not
 * UTF-8 become \n, \t, \e, \xNN or \u{NNNN}; a backslash is doubled. Everything else is
 * unchanged. */
void text_escape(struct buf *out, const char *s, size_t len);

/* Like text_escape, but writes into a fixed-size array. Text wider than WIDTH columns is truncated
 * between characters and ends in "…". The width of combining and wide characters comes from wcwidth
 * in the C.UTF-8 locale. If that locale cannot be loaded, every character is treated as one column
 * wide. OUT is always NUL-terminated. Returns OUT. */
char *text_fit(char *out, size_t out_size, size_t width, const char *s, size_t len);

/* Copies FROM (NULL is treated as "") into SIZE bytes, truncated between UTF-8 characters. */
void text_copy(char *to, size_t size, const char *from);
/* Returns the part of PATH after the last "/", or all of PATH if it ends in "/". */
const char *text_base_name(const char *path);

/* Appends the content of /proc/PID/cmdline (arguments separated by NUL) as one line. Each argument
 * is escaped, and is quoted if it is empty or contains spaces. */
void text_command(struct buf *out, const char *args, size_t len);

enum { TEXT_SIZE_MAX = 24, TEXT_TIME_MAX = 32 };
/* Formats a size with three significant digits in binary units: "0 B", "312 KiB", "1.24 GiB".
 * Returns OUT. */
char *text_size(char out[TEXT_SIZE_MAX], uint64_t bytes);
/* Like text_size, with an explicit sign: "+98.0 MiB", "-3 B", "0 B". */
char *text_size_signed(char out[TEXT_SIZE_MAX], int64_t bytes);
/* Like text_size, but with two significant digits, for use in sentences: "312 B", "9.0 MiB", "580
 * MiB", "24 GiB". A negative size or NaN is written as 0. */
char *text_about_size(char out[TEXT_SIZE_MAX], double bytes);
/* Formats a duration with two significant digits: "0.4 s", "45 s", "11 min", "5.2 h", "12 d". */
char *text_about_time(char out[TEXT_TIME_MAX], double s);
/* Formats a duration: "0 s", "25 ns", "310 µs", "480 ms", "12.4 s", "3 min 05 s", "2 h 10 min", "3
 * d 4 h". */
char *text_duration(char out[TEXT_TIME_MAX], uint64_t ns);
/* Like text_duration, for seconds that another program wrote. Negative values, NaN and durations
 * over thirty years are written as 0. */
char *text_seconds(char out[TEXT_TIME_MAX], double s);
/* Formats a local time: "2026-01-31T12:00:00+0100", or "" if the time is invalid. */
enum { TEXT_LOCAL_MAX = 64 };
char *text_local_time(char out[TEXT_LOCAL_MAX], uint64_t wall_ns);

#define TEXT_HASH_EMPTY UINT64_C(14695981039346656037)
/* Adds the LEN bytes of S to HASH, the FNV-1a hash of the preceding bytes. The algorithm must never
 * change, because databases store its results. */
uint64_t text_hash(uint64_t hash, const char *s, size_t len);
