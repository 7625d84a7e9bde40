/* `ebb census`: lists live tensors and objects of a run's processes, counted by the processes
 * themselves. */
#include "cli/census.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/run_target.h"
#include "present/census.h"
#include "trace/census.h"
#include "present/document.h"

struct census_options {
    uint64_t timeout_ns;
    int64_t top;
    bool json;
};

/* ---- growth ---- */

/* Returns a map from "KIND NAME" of each row to the row. */
static json_t *index_of(const json_t *census)
{
    json_t *table = json_object(), *row;
    size_t i;
    json_array_foreach(json_object_get(census, "tensors"), i, row)
    {
        char *name = census_tensor_name(row);
        struct buf key = {0};
        buf_printf(&key, "tensor %s", name ? name : "");
        json_object_set(table, buf_str(&key), row);
        buf_fini(&key);
        free(name);
    }
    json_array_foreach(json_object_get(census, "objects"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "type"));
        struct buf key = {0};
        buf_printf(&key, "object %s", name ? name : "?");
        json_object_set(table, buf_str(&key), row);
        buf_fini(&key);
    }
    return table;
}

static json_int_t integer(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void add_growth(json_t *list, const char *key, const json_t *now, const json_t *before)
{
    json_int_t count = integer(now, "count") - integer(before, "count");
    json_int_t bytes = integer(now, "bytes") - integer(before, "bytes");
    if (count == 0 && bytes == 0)
        return;
    json_array_append_new(list, json_pack("{s:s%,s:s,s:I,s:I}", "kind", key, (size_t)6, "name",
                                          key + 7, "count", count, "bytes", bytes));
}

static int census_by_growth(const void *a, const void *b)
{
    json_int_t x = integer(*(json_t *const *)a, "bytes"), y = integer(*(json_t *const *)b, "bytes");
    json_int_t n = integer(*(json_t *const *)a, "count"), m = integer(*(json_t *const *)b, "count");
    if (x != y)
        return x < y ? 1 : -1;
    return (n < m) - (n > m);
}

/* Returns the rows that changed, largest growth first. */
static json_t *growth_json(const json_t *before, const json_t *now)
{
    json_t *old = index_of(before), *new = index_of(now), *list = json_array(), *row;
    const char *key;
    json_object_foreach(new, key, row) add_growth(list, key, row, json_object_get(old, key));
    json_object_foreach(old, key, row)
    {
        if (!json_object_get(new, key))
            add_growth(list, key, NULL, row);
    }
    size_t n = json_array_size(list);
    json_t **rows = calloc(n + 1, sizeof(json_t *)), *sorted = json_array();
    for (size_t i = 0; rows && i < n; i++)
        rows[i] = json_array_get(list, i);
    if (rows && n > 1)
        qsort(rows, n, sizeof(json_t *), census_by_growth);
    for (size_t i = 0; rows && i < n; i++)
        json_array_append(sorted, rows[i]);
    free(rows);
    json_decref(list);
    json_decref(old);
    json_decref(new);
    return sorted;
}

/* Reads the census at PATH into ONE, and adds the growth since the previous census of the same
 * process. */
static void add_census(json_t *one, const char *path)
{
    struct err err = {""};
    json_t *now = census_file_read(path, &err), *before = NULL;
    if (!now) {
        json_object_set_new(one, "error", json_text0(err.text));
        return;
    }
    const char *slash = strrchr(path, '/');
    AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash - path)) : NULL;
    struct census_files files = {0};
    size_t at = 0;
    if (folder)
        census_files_list(folder, (int32_t)integer(one, "pid"), &files);
    while (at < files.count && strcmp(files.v[at].path, path) != 0)
        at++;
    if (at > 0 && at < files.count)
        before = census_file_read(files.v[at - 1].path, NULL);
    json_object_set_new(one, "since",
                        before ? json_pack("{s:o,s:O?}", "path", json_text0(files.v[at - 1].path),
                                           "step", json_object_get(before, "step"))
                               : json_null());
    json_object_set_new(one, "growth", before ? growth_json(before, now) : json_array());
    json_object_set_new(one, "census", now);
    census_files_fini(&files);
    json_decref(before);
}

/* ---- a run whose processes accept requests ---- */

static int ask_run(const char *marks, int32_t only_pid, const struct census_options *o,
                   json_t *processes, struct err *err)
{
    json_t *answers = census_ask(marks, only_pid, o->timeout_ns, err), *one;
    size_t i;
    if (!answers)
        return -EIO;
    json_array_foreach(answers, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        if (path)
            add_census(one, path);
        json_array_append(processes, one);
    }
    json_decref(answers);
    return 0;
}

/* ---- a run that has ended ---- */

/* Adds the last census of each process. */
static void add_kept(const char *folder, json_t *processes)
{
    struct census_files files;
    census_files_list(folder, 0, &files);
    for (size_t i = 0; i < files.count; i++) {
        bool is_last = true;
        for (size_t k = i + 1; k < files.count && is_last; k++)
            is_last = files.v[k].pid != files.v[i].pid;
        if (!is_last)
            continue;
        json_t *one = json_pack("{s:i,s:o,s:n}", "pid", (int)files.v[i].pid, "path",
                                json_text0(files.v[i].path), "error");
        add_census(one, files.v[i].path);
        json_array_append_new(processes, one);
    }
    census_files_fini(&files);
}

static int census_of_ended(const char *folder, json_t *processes, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/run.json", folder) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "path too long: %s", folder);
    if (access(path, F_OK) < 0)
        return err_set(err, -ENOENT, "%s is not a run folder: run.json is missing", folder);
    /* "/run.json" is longer than "/census", so the path fits */
    memcpy(strrchr(path, '/'), "/census", sizeof "/census");
    add_kept(path, processes);
    if (json_array_size(processes) > 0)
        return 0;
    return err_set(err, -ENOENT,
                   "the run in %s has ended and has no census; `ebb census` takes one while a "
                   "job runs, and EBB_CENSUS_EVERY=100 in the environment of `ebb run` takes "
                   "one every 100 steps",
                   folder);
}

static int census_take(const struct run_target *run, const struct census_options *o,
                       json_t *processes, struct err *err)
{
    if (!run->marks[0])
        return census_of_ended(run->folder, processes, err);
    int r = ask_run(run->marks, run->pid, o, processes, err);
    if (r < 0 || json_array_size(processes) > 0)
        return r;
    return err_set(
        err, -ENOENT,
        "no process of the run at %s accepts census requests yet: none has reported a step or "
        "imported a package that ebb hooks, such as torch; call ebb.step(n) in the training loop",
        run->folder[0] ? run->folder : run->marks);
}

/* Returns false if every process answered with an error. */
static bool has_any(const json_t *processes)
{
    const json_t *one;
    size_t i;
    json_array_foreach(processes, i, one)
    {
        if (json_is_object(json_object_get(one, "census")))
            return true;
    }
    return false;
}

static int census_exec(const struct cli_call *call, struct err *err)
{
    const struct census_options *o = call->options;
    struct run_target run;
    struct doc doc = {0};
    json_t *processes = json_array();
    int r = run_target_find(call->argv[0], &run, err);
    if (r == 0)
        r = census_take(&run, o, processes, err);
    if (r == 0 && o->json) {
        AUTO_FREE char *folder = realpath(run.folder, NULL);
        r = cli_print_json(
            json_pack("{s:o,s:O}", "run", json_text0(folder), "processes", processes));
    } else if (r == 0) {
        census_doc(&doc, processes, (size_t)o->top);
        r = cli_print_doc(&doc);
    }
    if (r == 0 && !has_any(processes))
        r = 2;
    json_decref(processes);
    return r;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "timeout", DURATION, "TIME", offsetof(struct census_options, timeout_ns),
               .fallback = "30s", .min = 100,
               .help = "how long to wait for the processes to answer"),
    OPTION_ROW(0, "top", INT, "N", offsetof(struct census_options, top), .fallback = "10", .min = 1,
               .max = 200, .help = "maximum number of rows of each table"),
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct census_options, json),
               .help = "print one JSON object, with all rows"),
    {0},
};

const struct cli_command cmd_census = {
    .name = "census",
    .operands = "[RUN_DIR|PID]",
    .summary = "live tensors and Python objects of a job, and their growth",
    .description =
        "Asks the Python processes of a run to count their live tensors by device, type and "
        "shape, and their live objects by type, and to find out what keeps the largest ones "
        "alive. They count at the end of a step, or in a thread of their own if no step ends "
        "within two seconds; ebb does not attach to them. Each census is stored in the run "
        "folder, and the next one shows the growth since.\n"
        "\n"
        "For a run that has ended, the last stored censuses are shown. EBB_CENSUS_EVERY=N in "
        "the environment of `ebb run` takes one every N steps.\n"
        "\n"
        "The exit status is 2 if there is nothing to show, or no process answered.",
    .examples = "ebb census ebb-runs/latest\n"
                "ebb census 4711 --top 20\n",
    .options = options_table,
    .options_size = sizeof(struct census_options),
    .exec = census_exec,
};
