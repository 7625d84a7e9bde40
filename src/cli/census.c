/* `ebb census`: live tensors and objects of a run's processes, counted by the processes. */
#include "cli/census.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/run_target.h"
#include "present/census.h"
#include "present/document.h"

enum { CENSUS_MAX = 16 << 20, KEPT_MAX = 4096 };

struct census_options {
    uint64_t timeout_ns;
    int64_t top;
    bool json;
};

/* ---- censuses that are kept ---- */

/* NNNN-PID-STEP.json */
struct kept {
    int64_t number, pid;
    char name[NAME_MAX + 1];
};

static bool kept_parse(const char *name, struct kept *ret)
{
    const char *dash = strchr(name, '-'), *second = dash ? strchr(dash + 1, '-') : NULL;
    size_t len = strlen(name);
    if (!second || len < 5 || len > NAME_MAX || strcmp(name + len - 5, ".json") != 0 ||
        number_parse_i64(name, (size_t)(dash - name), &ret->number) < 0 ||
        number_parse_i64(dash + 1, (size_t)(second - dash - 1), &ret->pid) < 0)
        return false;
    memcpy(ret->name, name, len + 1);
    return true;
}

static int census_by_number(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Those in FOLDER, the oldest first; NULL: none. */
static struct kept *kept_list(const char *folder, size_t *ret_count)
{
    struct kept *list = NULL, one;
    size_t count = 0, cap = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *d; dir && count < KEPT_MAX && (d = readdir(dir));) {
        if (!kept_parse(d->d_name, &one))
            continue;
        if (!ARRAY_ROOM(list, count, cap))
            break;
        list[count++] = one;
    }
    if (dir)
        closedir(dir);
    if (count > 1)
        qsort(list, count, sizeof *list, census_by_number);
    *ret_count = count;
    return list;
}

static json_t *census_load(const char *path, struct err *err)
{
    struct buf text = {0};
    int r = io_read_all(AT_FDCWD, path, CENSUS_MAX, &text);
    json_t *doc = NULL;
    if (r < 0)
        err_set(err, r, "cannot read %s: %s", path, strerror(-r));
    else
        doc = json_parse(buf_str(&text), text.len, err);
    buf_fini(&text);
    if (doc && !json_is_object(doc)) {
        err_set(err, -EBADMSG, "%s is not a census", path);
        json_decref(doc);
        doc = NULL;
    }
    return doc;
}

/* ---- growth ---- */

/* KIND and name of each row, with its count and bytes. */
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

/* What changed, the most growth first. */
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

/* The one before PATH of the same process, in the same folder; NULL if there is none. */
static json_t *load_before(const char *path, char ret_path[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct kept own;
    size_t count, best = SIZE_MAX;
    json_t *doc = NULL;
    if (!slash || !kept_parse(slash + 1, &own) ||
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path) >= (int)sizeof folder)
        return NULL;
    struct kept *list = kept_list(folder, &count);
    for (size_t i = 0; i < count; i++)
        if (list[i].pid == own.pid && list[i].number < own.number)
            best = i;
    if (best < count && snprintf(ret_path, PATH_MAX, "%s/%s", folder, list[best].name) < PATH_MAX)
        doc = census_load(ret_path, NULL);
    free(list);
    return doc;
}

/* Puts the census at PATH into ONE, and what grew since the one before. */
static void add_census(json_t *one, const char *path)
{
    struct err err = {{0}};
    char before_path[PATH_MAX];
    json_t *now = census_load(path, &err);
    if (!now) {
        json_object_set_new(one, "error", json_text0(err.text));
        return;
    }
    json_t *before = load_before(path, before_path);
    json_object_set_new(one, "since",
                        before ? json_pack("{s:o,s:O?}", "path", json_text0(before_path), "step",
                                           json_object_get(before, "step"))
                               : json_null());
    json_object_set_new(one, "growth", before ? growth_json(before, now) : json_array());
    json_object_set_new(one, "census", now);
    json_decref(before);
}

/* ---- a run that listens ---- */

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

static void add_kept(const char *folder, json_t *processes)
{
    size_t count;
    struct kept *list = kept_list(folder, &count);
    for (size_t i = 0; i < count; i++) {
        bool is_last = true;
        char path[PATH_MAX];
        for (size_t k = i + 1; k < count && is_last; k++)
            is_last = list[k].pid != list[i].pid;
        if (!is_last ||
            snprintf(path, sizeof path, "%s/%s", folder, list[i].name) >= (int)sizeof path)
            continue;
        json_t *one = json_pack("{s:I,s:o,s:n}", "pid", (json_int_t)list[i].pid, "path",
                                json_text0(path), "error");
        add_census(one, path);
        json_array_append_new(processes, one);
    }
    free(list);
}

static int census_of_ended(const char *folder, json_t *processes, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/run.json", folder) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s is too long a path", folder);
    if (access(path, F_OK) < 0)
        return err_set(err, -ENOENT, "%s is not a run folder: there is no run.json", folder);
    memcpy(strrchr(path, '/'), "/census", sizeof "/census"); /* one byte shorter than run.json */
    add_kept(path, processes);
    if (json_array_size(processes) > 0)
        return 0;
    return err_set(err, -ENOENT,
                   "the run in %s has ended and kept no census; EBB_CENSUS_EVERY=100 before `ebb "
                   "run` keeps one every 100 steps, and `ebb census` takes one while it runs",
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
    return err_set(err, -ENOENT,
                   "no process takes requests yet in the run at %s: none has reported a step or "
                   "imported what is hooked; ebb.step(n) in its loop makes it take them",
                   run->folder[0] ? run->folder : run->marks);
}

/* False: every process that was asked gave an error. */
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

static int census_exec(const struct cli_call *call)
{
    const struct census_options *o = call->options;
    struct run_target run;
    struct err err = {{0}};
    struct doc doc = {0};
    json_t *processes = json_array();
    int r = run_target_find(call->argv[0], &run, &err);
    if (r == 0)
        r = census_take(&run, o, processes, &err);
    if (r < 0) {
        json_decref(processes);
        return cli_failf(2, "census: %s", err.text);
    }
    AUTO_FREE char *folder = realpath(run.folder, NULL);
    if (!o->json)
        census_doc(&doc, processes, (size_t)o->top);
    int status = o->json ? cli_print_json(json_pack("{s:o,s:O}", "run", json_text0(folder),
                                                    "processes", processes))
                         : cli_print_doc(&doc);
    if (status == 0 && !has_any(processes))
        status = 2;
    json_decref(processes);
    return status;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "timeout", DURATION, "TIME", offsetof(struct census_options, timeout_ns),
               .fallback = "30s", .min = 100, .help = "how long to wait for answers"),
    OPTION_ROW(0, "top", INT, "N", offsetof(struct census_options, top), .fallback = "10", .min = 1,
               .max = 200, .help = "rows of each table"),
    OPTION_ROW(0, "json", FLAG, NULL, offsetof(struct census_options, json),
               .help = "print one JSON object, with all rows"),
    {0},
};

const struct cli_command cmd_census = {
    .name = "census",
    .operands = "RUN_DIR|PID",
    .summary = "live tensors and Python objects of a job, and what grew",
    .description =
        "Asks the Python processes of a run to count what is alive in them: tensors by device, "
        "type and shape, objects by type, and what keeps the largest alive. They count at the end "
        "of a "
        "step, or after two seconds without one in a thread of their own; nothing is attached to "
        "them. Each census is kept in the run folder, and the next one shows what grew since.\n\n"
        "Of a run that has ended, the last censuses kept are shown. EBB_CENSUS_EVERY=N before `ebb "
        "run` keeps one every N steps.\n\n"
        "The status is 2 where there is nothing to show, or no process answered.",
    .examples = "ebb census ebb-runs/latest\n"
                "ebb census 4711 --top 20\n",
    .options = options_table,
    .options_size = sizeof(struct census_options),
    .usage_status = 2,
    .exec = census_exec,
};
