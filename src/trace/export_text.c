/* Fast numbers for millions of lines, and buffered writing. */
#include "trace/export_text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"

enum { WRITE_BYTES = 64 * 1024 };

void export_add_u64(struct buf *out, uint64_t v)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    buf_add(out, digits + at, sizeof(digits) - at);
}

void export_add_i64(struct buf *out, int64_t v)
{
    if (v < 0)
        buf_add_byte(out, '-');
    export_add_u64(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns)
{
    uint64_t ns = t_ns >= start_ns ? t_ns - start_ns : start_ns - t_ns;
    uint64_t us = ns / NS_PER_US + (ns % NS_PER_US >= NS_PER_US / 2);
    char decimals[7] = ".000000";

    if (t_ns < start_ns && us > 0)
        buf_add_byte(out, '-');
    export_add_u64(out, us / 1000000);
    for (size_t at = sizeof(decimals), left = us % 1000000; left > 0; left /= 10)
        decimals[--at] = (char)('0' + left % 10);
    buf_add(out, decimals, sizeof(decimals));
}

void export_add_double(struct buf *out, double v)
{
    char s[40];
    double again = 0;

    if (!isfinite(v))
        v = 0;
    for (int digits = 15; digits <= 17; digits++) {
        char *point;

        snprintf(s, sizeof(s), "%.*g", digits, v);
        point = strpbrk(s, ","); /* the locale of a terminal program may have one */
        if (point)
            *point = '.';
        if (number_parse_double(s, strlen(s), &again) == 0 && !(again < v) && !(again > v))
            break;
    }
    buf_add_str(out, s);
}

int export_write(struct export *e, bool now)
{
    if (e->buf.failed)
        return -ENOMEM;
    if (e->buf.len < WRITE_BYTES && !now)
        return 0;
    errno = 0;
    if (fwrite(e->buf.data, 1, e->buf.len, e->out) != e->buf.len)
        return errno > 0 ? -errno : -EIO;
    buf_clear(&e->buf);
    return 0;
}

int export_finish(struct export *e, int code, struct err *err)
{
    if (code >= 0)
        code = export_write(e, true);
    if (code >= 0) {
        errno = 0;
        if (fflush(e->out) != 0)
            code = errno > 0 ? -errno : -EIO;
    }
    buf_fini(&e->buf);
    if (code == -ENOMEM)
        return err_set(err, code, "no memory to export the recording");
    return code < 0 ? err_set(err, code, "cannot write the export: %s", strerror(-code)) : 0;
}
