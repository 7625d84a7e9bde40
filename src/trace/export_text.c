/* Formats the numbers and texts of an export, and writes them through a buffer. */
#include "trace/export_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"

enum { WRITE_BYTES = 64 * 1024 };

void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns)
{
    uint64_t ns = t_ns >= start_ns ? t_ns - start_ns : start_ns - t_ns;
    uint64_t us = ns / NS_PER_US + (ns % NS_PER_US >= NS_PER_US / 2);
    buf_printf(out, "%s%" PRIu64 ".%06" PRIu64, t_ns < start_ns && us > 0 ? "-" : "", us / 1000000,
               us % 1000000);
}

void export_add_double(struct buf *out, double v)
{
    char s[40];
    double again = 0;
    if (!isfinite(v))
        v = 0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        char *point = strpbrk(s, ","); /* replaces the decimal comma that some locales use */
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

int export_finish(struct export *e, int r, struct err *err)
{
    if (r >= 0)
        r = export_write(e, true);
    errno = 0;
    if (r >= 0 && fflush(e->out) != 0)
        r = errno > 0 ? -errno : -EIO;
    buf_fini(&e->buf);
    if (r == -ENOMEM)
        return err_set(err, r, "out of memory while exporting the recording");
    return r < 0 ? err_set(err, r, "cannot write the export: %s", strerror(-r)) : 0;
}
