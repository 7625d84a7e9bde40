/* Fuzzes the parsers of CSV tables and of marks as JSON lines. The first byte selects the parser.
 * */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "target.h"
#include "trace/csv.h"

static int on_row(void *user, const struct csv_row *row)
{
    (void)user;
    if (row->value_bytes > UINT64_C(1) << 57 || (row->has_step && row->step < 0))
        abort();
    return 0;
}

static int on_mark(void *user, double t_s, const struct mark *mark)
{
    struct mark again;

    (void)user;
    (void)t_s;
    if (mark_parse(mark->text, mark->len, &again) < 0 || again.kind != mark->kind)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct csv_options by_step = {.step_column = "iter", .group = "run"};
    struct err err;
    FILE *in;

    if (size < 2)
        return 0;
    in = fmemopen((void *)(uintptr_t)(data + 1), size - 1, "r");
    if (!in)
        return 0;
    if (data[0] % 3 == 0)
        csv_read_marks_stream(in, "fuzz", on_mark, NULL, &err);
    else
        csv_read_stream(in, "fuzz", data[0] % 3 == 1 ? NULL : &by_step, on_row, NULL, &err);
    fclose(in);
    return 0;
}
