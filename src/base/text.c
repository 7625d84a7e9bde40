/* Escapes names for a terminal, and formats sizes and times. */
#include "base/text.h"

#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/clock.h"

size_t text_utf8(const char *s, size_t len, uint32_t *ret)
{
    if (len == 0)
        return 0;
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) {
        *ret = p[0];
        return 1;
    }
    /* smallest code point for each encoded length; a smaller one is an overlong encoding */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : p[0] >= 0xC0 ? 2 : 0;
    if (n == 0 || p[0] > 0xF4 || n > len)
        return 0;
    uint32_t c = p[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = (c << 6) | (p[i] & 0x3F);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *ret = c;
    return n;
}

/* True if the character would move the cursor, break the line, or change the text direction. */
static bool is_harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) ||      /* control characters: C0, DEL, C1 */
           c == 0x2028 || c == 0x2029 ||                /* line separator, paragraph separator */
           c == 0x061C || c == 0x200E || c == 0x200F || /* direction marks */
           (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069); /* overrides, isolates */
}

static bool is_between(uint32_t c, uint32_t first, uint32_t last)
{
    return c >= first && c <= last;
}

static size_t char_columns(uint32_t c)
{
    int w = wcwidth((wchar_t)c);
    if (w >= 0)
        return (size_t)w;
    /* without a UTF-8 locale, only the main blocks of combining and zero-width characters have
     * width 0 */
    bool is_combining = is_between(c, 0x0300, 0x036F) || is_between(c, 0x1AB0, 0x1AFF) ||
                        is_between(c, 0x1DC0, 0x1DFF) || is_between(c, 0x200B, 0x200D) ||
                        is_between(c, 0x20D0, 0x20FF) || is_between(c, 0xFE00, 0xFE0F) ||
                        is_between(c, 0xFE20, 0xFE2F);
    return is_combining ? 0 : 1;
}

/* The escaped form of one character or invalid byte. Truncated text contains it completely or not
 * at all. */
struct unit {
    char bytes[16];
    size_t len;
    size_t columns;
};

__attribute__((format(printf, 2, 3))) static void unit_set(struct unit *u, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(u->bytes, sizeof u->bytes, fmt, ap);
    va_end(ap);
    u->len = u->columns = n > 0 ? (size_t)n : 0;
}

/* Escapes the next character or invalid byte of S. LEN must not be 0. Returns the number of bytes
 * consumed. */
static size_t unit_next(const char *s, size_t len, struct unit *u)
{
    uint32_t c = 0;
    size_t n = text_utf8(s, len, &c);
    if (n == 0) {
        unit_set(u, "\\x%02x", (unsigned char)s[0]);
        return 1;
    }
    if (c == '\n')
        unit_set(u, "\\n");
    else if (c == '\t')
        unit_set(u, "\\t");
    else if (c == 0x1B)
        unit_set(u, "\\e");
    else if (c == '\\')
        unit_set(u, "\\\\");
    else if (is_harmful(c))
        unit_set(u, c < 0x80 ? "\\x%02x" : "\\u{%04x}", c);
    else {
        memcpy(u->bytes, s, n);
        u->len = n;
        u->columns = char_columns(c);
    }
    return n;
}

void text_escape(struct buf *out, const char *s, size_t len)
{
    struct unit u;
    for (size_t i = 0; i < len;) {
        i += unit_next(s + i, len - i, &u);
        buf_add(out, u.bytes, u.len);
    }
}

char *text_fit(char *out, size_t out_size, size_t width, const char *s, size_t len)
{
    static const char dots[] = "…";
    const size_t dots_len = sizeof dots - 1;
    if (out_size == 0)
        return out;
    size_t pos = 0, columns = 0;
    size_t cut = 0; /* length of the longest prefix that leaves room for the ellipsis */
    bool has_room_for_dots = width >= 1 && out_size > dots_len;
    struct unit u;
    for (size_t i = 0; i < len;) {
        i += unit_next(s + i, len - i, &u);
        if (columns + u.columns > width || pos + u.len >= out_size) {
            pos = has_room_for_dots ? cut : pos;
            if (has_room_for_dots) {
                memcpy(out + pos, dots, dots_len);
                pos += dots_len;
            }
            break;
        }
        memcpy(out + pos, u.bytes, u.len);
        pos += u.len;
        columns += u.columns;
        if (columns + 1 <= width && pos + dots_len < out_size)
            cut = pos;
    }
    out[pos] = '\0';
    return out;
}

static void add_argument(struct buf *out, const char *arg, size_t len)
{
    /* An argument that begins with a quote is put in quotes too, so that its own quote is not
     * mistaken for an added one. */
    bool is_quoted = len == 0 || arg[0] == '\'' || memchr(arg, ' ', len) != NULL;
    if (!is_quoted) {
        text_escape(out, arg, len);
        return;
    }
    buf_add_byte(out, '\'');
    while (len > 0) {
        const char *quote = memchr(arg, '\'', len);
        size_t n = quote ? (size_t)(quote - arg) : len;
        text_escape(out, arg, n);
        if (quote) {
            buf_add_str(out, "\\'");
            n++;
        }
        arg += n;
        len -= n;
    }
    buf_add_byte(out, '\'');
}

void text_copy(char *to, size_t size, const char *from)
{
    size_t len = from ? strnlen(from, size - 1) : 0;
    /* truncates only between UTF-8 characters */
    while (len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80)
        len--;
    if (len > 0)
        memcpy(to, from, len);
    to[len] = '\0';
}

const char *text_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

void text_command(struct buf *out, const char *args, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = strnlen(args + i, len - i);
        if (i > 0)
            buf_add_byte(out, ' ');
        add_argument(out, args + i, n);
        i += n + 1;
    }
}

static void print_size(char *out, size_t size, const char *sign, uint64_t bytes)
{
    const char *unit = "KMGTPE";
    if (bytes < 1024) {
        snprintf(out, size, "%s%u B", sign, (unsigned)bytes);
        return;
    }
    double v = (double)bytes / 1024;
    for (; unit[1] && v >= 1023.5; unit++)
        v /= 1024;
    int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    double scale = digits == 2 ? 100 : digits == 1 ? 10 : 1;
    /* rounds halves up; printf alone would round them to the even digit */
    snprintf(out, size, "%s%.*f %ciB", sign, digits, floor(v * scale + 0.5) / scale, *unit);
}

char *text_size(char out[TEXT_SIZE_MAX], uint64_t bytes)
{
    print_size(out, TEXT_SIZE_MAX, "", bytes);
    return out;
}

char *text_size_signed(char out[TEXT_SIZE_MAX], int64_t bytes)
{
    uint64_t magnitude = bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes;
    print_size(out, TEXT_SIZE_MAX, bytes < 0 ? "-" : bytes > 0 ? "+" : "", magnitude);
    return out;
}

char *text_about_size(char out[TEXT_SIZE_MAX], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = bytes > 0 ? fmin(bytes, 9e18) : 0;
    size_t unit = 0;
    for (; v >= (unit ? 995 : 1023.5) && unit + 1 < sizeof units / sizeof *units; unit++)
        v /= 1024;
    if (unit && v >= 99.5)
        v = 10 * round(v / 10);
    snprintf(out, TEXT_SIZE_MAX, unit && v < 9.95 ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return out;
}

char *text_about_time(char out[TEXT_TIME_MAX], double s)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    size_t i = 0;
    s = s > 0 ? fmin(s, 1e9) : 0;
    while (i < 3 && s >= 99.5 * units[i].seconds)
        i++;
    double v = s / units[i].seconds;
    snprintf(out, TEXT_TIME_MAX, v >= 9.95 ? "%.0f %s" : "%.2g %s", v, units[i].unit);
    return out;
}

static uint64_t rounded(uint64_t ns, uint64_t unit_ns)
{
    return ns / unit_ns + (ns % unit_ns >= unit_ns - unit_ns / 2);
}

char *text_duration(char out[TEXT_TIME_MAX], uint64_t ns)
{
    /* each branch tests the rounded value, so that 59.97 s becomes "1 min 00 s" and not "60.0 s" */
    uint64_t us = rounded(ns, NS_PER_US);
    uint64_t ms = rounded(ns, NS_PER_MS);
    uint64_t tenths = rounded(ns, NS_PER_S / 10);
    uint64_t s = rounded(ns, NS_PER_S);
    uint64_t min = rounded(ns, 60 * NS_PER_S);
    uint64_t h = rounded(ns, 3600 * NS_PER_S);
    const size_t size = TEXT_TIME_MAX;
    if (ns == 0)
        snprintf(out, size, "0 s");
    else if (ns < 1000)
        snprintf(out, size, "%u ns", (unsigned)ns);
    else if (us < 1000)
        snprintf(out, size, "%u µs", (unsigned)us);
    else if (ms < 1000)
        snprintf(out, size, "%u ms", (unsigned)ms);
    else if (tenths < 600)
        snprintf(out, size, "%u.%u s", (unsigned)tenths / 10, (unsigned)tenths % 10);
    else if (s < 3600)
        snprintf(out, size, "%u min %02u s", (unsigned)s / 60, (unsigned)s % 60);
    else if (min < 24 * 60)
        snprintf(out, size, "%u h %02u min", (unsigned)min / 60, (unsigned)min % 60);
    else
        snprintf(out, size, "%u d %u h", (unsigned)(h / 24), (unsigned)(h % 24));
    return out;
}

char *text_seconds(char out[TEXT_TIME_MAX], double s)
{
    return text_duration(out, s > 0 && s < 1e9 ? (uint64_t)(s * (double)NS_PER_S) : 0);
}

char *text_local_time(char out[TEXT_LOCAL_MAX], uint64_t wall_ns)
{
    time_t t = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, TEXT_LOCAL_MAX, "%Y-%m-%dT%H:%M:%S%z", &tm))
        out[0] = '\0';
    return out;
}

uint64_t text_hash(uint64_t hash, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)s[i]) * UINT64_C(1099511628211);
    return hash;
}
