/* Fuzzes all exports of an arbitrary recording: tables, JSON lines, samples for the web page,
 * report data. The input has the format of fuzz_trace_reader; its last byte selects the export. */
#include <stdio.h>

#include "base/err.h"
#include "run/samples.h"
#include "trace/export.h"
#include "trace/reader.h"
#include "trace_input.h"
#include "present/report_private.h"

static void view(unsigned which, struct trace_reader *r, int fd)
{
    static char discarded[1 << 16];
    struct err err = {""};
    json_t *doc = NULL;
    if (which % 4 < 2) {
        struct run *run = NULL;
        const struct run_settings samples = samples_options(0, 0, 0, SAMPLES_POINTS_MIN);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (run_read(path, which % 4 ? &run_settings_read : &samples, NULL, &run, &err) == 0)
            doc = which % 4 ? report_data(run, which & 4) : samples_json(run);
        run_free(run);
    } else {
        FILE *out = fopen("/dev/null", "w");
        if (!out)
            abort();
        setvbuf(out, discarded, _IOFBF, sizeof discarded);
        if (which % 4 == 2)
            export_csv(r, out, &err);
        else
            export_jsonl(r, out, &err);
        fclose(out);
    }
    json_decref(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_reader *r;
    int fd = size < 2 ? -1 : trace_input_fd(data, size - 1);
    if (fd < 0 || trace_reader_open_fd(fd, &r, NULL) < 0)
        return 0;
    view(data[size - 1], r, fd);
    trace_reader_free(r);
    return 0;
}
