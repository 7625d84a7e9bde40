/* Text for people: names made harmless, sizes and times in words. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Decodes the UTF-8 character at S: its length, 1 to 4, or 0 where LEN is 0 or the bytes are not
 * strict UTF-8 (overlong, surrogate, above U+10FFFF, cut short). */
size_t text_utf8(const char *s, size_t len, uint32_t *ret);

/* Appends the LEN bytes of S so that no terminal can be driven by them: control characters, DEL,
 * C1 controls, bidirectional overrides, line and paragraph separators and bytes that are not
 * UTF-8 become \n, \t, \e or \xNN / \u{NNNN}; a backslash is doubled. The rest is kept. */
void text_escape(struct buf *out, const char *s, size_t len);

/* The same, into a fixed array, cut at a character boundary with "…" if it does not fit in
 * WIDTH columns (combining and wide characters counted by wcwidth of the C.UTF-8 locale, or one
 * each where that is not loaded). OUT always ends in NUL. Returns OUT. */
char *text_fit(char *out, size_t out_size, size_t width, const char *s, size_t len);

/* Arguments as in /proc/PID/cmdline (NUL between them) on one line: each escaped, quoted where
 * it holds spaces or is empty. */
void text_command(struct buf *out, const char *args, size_t len);

enum { TEXT_SIZE_MAX = 24, TEXT_TIME_MAX = 32 };
/* "0 B", "312 KiB", "1.24 GiB": three significant digits, binary units. Returns OUT. */
char *text_size(char out[TEXT_SIZE_MAX], uint64_t bytes);
/* The same with an explicit sign: "+98.0 MiB", "-3 B", "0 B". */
char *text_size_signed(char out[TEXT_SIZE_MAX], int64_t bytes);
/* "0 s", "25 ns", "310 µs", "480 ms", "12.4 s", "3 min 05 s", "2 h 10 min", "3 d 4 h". */
char *text_duration(char out[TEXT_TIME_MAX], uint64_t ns);
/* The same of seconds that others may have written: 0 where they are negative, no number, or more
 * than thirty years. */
char *text_seconds(char out[TEXT_TIME_MAX], double s);
/* "2026-01-31T12:00:00+0100"; "" where there is no such time. */
enum { TEXT_LOCAL_MAX = 64 };
char *text_local_time(char out[TEXT_LOCAL_MAX], uint64_t wall_ns);
