/* `ebb series`: the samples of a run for the job server, which does not read recordings itself. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "run/samples.h"

struct series_options {
    uint64_t from_ns, to_ns;
    int64_t points, id;
};

static int parse_seconds(const char *what, const char *text, void *at, struct err *err)
{
    char *end;
    double s = strtod(text, &end);
    if (*end || !(s >= 0 && s <= 1e9))
        return err_set(err, -EINVAL, "%s: \"%.100s\" is not a number of seconds", what, text);
    *(uint64_t *)at = (uint64_t)(s * (double)NS_PER_S);
    return 0;
}

static const struct option_desc series_table[] = {
    OPTION_ROW(0, "from", PARSED, "S", offsetof(struct series_options, from_ns),
               .parse = parse_seconds, .help = "from so many seconds after the job's start"),
    OPTION_ROW(0, "to", PARSED, "S", offsetof(struct series_options, to_ns), .parse = parse_seconds,
               .help = "up to so many (default: to the end)"),
    OPTION_ROW(0, "points", INT, "N", offsetof(struct series_options, points), .fallback = "600",
               .min = SAMPLES_POINTS_MIN, .max = SAMPLES_POINTS_MAX,
               .help = "at most this many points of each series"),
    OPTION_ROW(0, "id", INT, "N", offsetof(struct series_options, id),
               .help = "the job's number, for the document"),
    {0},
};

/* 0: not known. */
static uint64_t started_wall_ns(const char *path)
{
    struct buf text = {0};
    struct err err;
    AUTO_CLOSE int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        io_read_all(folder, "run.json", 16 << 20, &text);
    json_t *doc = text.len ? json_parse(text.data, text.len, &err) : NULL;
    const json_t *v = json_object_get(doc, "started_s");
    double s = json_is_number(v) ? json_number_value(v) : 0;
    json_decref(doc);
    buf_fini(&text);
    return s > 0 && s < 1e10 ? (uint64_t)(s * (double)NS_PER_S) : 0;
}

static int print(const json_t *doc)
{
    struct buf text = {0};
    int status = 2;
    if (json_print(&text, doc, 0) == 0)
        status = cli_print(&text);
    buf_fini(&text);
    return status;
}

static int series_exec(const struct cli_call *call)
{
    const struct series_options *o = call->options;
    const char *path = call->argv[0];
    struct run *run = NULL;
    struct err err = {""};
    const struct run_settings options =
        samples_options(started_wall_ns(path), o->from_ns, o->to_ns, (uint32_t)o->points);
    if (run_read(path, &options, NULL, &run, &err) < 0)
        return cli_failf(2, "series: %s", err.text);
    json_t *doc = samples_json(run);
    run_free(run);
    if (!doc)
        return cli_failf(2, "series: out of memory");
    if (o->id)
        json_object_set_new(doc, "id", json_integer(o->id));
    int status = print(doc);
    json_decref(doc);
    return status;
}

const struct cli_command cmd_series = {
    .name = "series",
    .operands = "RUN_DIR",
    .summary = "the samples of a run, thinned, as JSON",
    .description = "For the job server: the document \"Samples\" of docs/api.md.",
    .options = series_table,
    .options_size = sizeof(struct series_options),
    .usage_status = 2,
    .exec = series_exec,
};
