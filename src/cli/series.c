/* `ebb series`: prints the samples of a run for the job server, which does not read recordings
 * itself. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "run/outcome.h"
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

#define AT(member) offsetof(struct series_options, member)
static const struct option_desc series_table[] = {
    OPTION_ROW(0, "from", PARSED, "S", AT(from_ns), .parse = parse_seconds,
               .help = "start of the time range, in seconds since the job's start"),
    OPTION_ROW(
        0, "to", PARSED, "S", AT(to_ns), .parse = parse_seconds,
        .help = "end of the time range, in seconds since the job's start (default: the job's end)"),
    OPTION_ROW(0, "points", INT, "N", AT(points), .fallback = "600", .min = SAMPLES_POINTS_MIN,
               .max = SAMPLES_POINTS_MAX, .help = "maximum number of points per series"),
    OPTION_ROW(0, "id", INT, "N", AT(id), .help = "job id to write into the JSON document"),
    {0},
};

/* Returns the time when the job was started, or 0 if unknown. */
static uint64_t started_wall_ns(const char *path)
{
    struct outcome o;
    AUTO_CLOSE int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)outcome_read_folder(folder, 16 << 20, NULL, &o);
    double s = o.about.started_s;
    outcome_fini(&o);
    return s > 0 && s < 1e10 ? (uint64_t)(s * (double)NS_PER_S) : 0;
}

static int series_exec(const struct cli_call *call, struct err *err)
{
    const struct series_options *o = call->options;
    const char *path = call->argv[0];
    struct run *run = NULL;
    const struct run_settings options =
        samples_options(started_wall_ns(path), o->from_ns, o->to_ns, (uint32_t)o->points);
    int r = run_read(path, &options, NULL, &run, err);
    if (r < 0)
        return r;
    json_t *doc = samples_json(run);
    run_free(run);
    if (doc && o->id)
        json_object_set_new(doc, "id", json_integer(o->id));
    r = cli_print_json_line(doc);
    json_decref(doc);
    return r;
}

const struct cli_command cmd_series = {
    .name = "series",
    .operands = "RUN_DIR",
    .summary = "print samples of a run as JSON, reduced to --points",
    .description =
        "Used by the job server. The output is the document \"Samples\" of docs/reference/api.md.",
    .options = series_table,
    .options_size = sizeof(struct series_options),
    .exec = series_exec,
};
