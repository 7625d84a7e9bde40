/* `ebb census`: asks the Python processes of a run to count their live tensors and objects, and
 * prints the counts. Each process receives the request on its own socket. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/run_target.h"
#include "mark/mark.h"
#include "present/census.h"
#include "present/document.h"
#include "trace/census.h"

/* ---- requests ---- */

enum { ASKED_MAX = 256, POLL_MS = 500, SEND_WAIT_MS = 2000 };

struct asked {
    int32_t pid;
    bool is_done;
    struct sockaddr_un address;
};

struct asking {
    struct asked asked[ASKED_MAX];
    size_t count, waiting;
    struct sockaddr_un own;
    uint64_t id;
    json_t *answers;
};

/* Parses the pid in "marks.4711", the name of the socket of process 4711. The run's own socket is
 * named "marks". */
static bool pid_of_name(const char *name, const char *marks, int32_t *ret)
{
    size_t len = strlen(marks);
    int64_t pid;
    if (strncmp(name, marks, len) != 0 || name[len] != '.' ||
        number_parse_i64(name + len + 1, strlen(name + len + 1), &pid) < 0 || pid <= 0 ||
        pid > INT32_MAX)
        return false;
    *ret = (int32_t)pid;
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static int find_listeners(struct asking *a, const char *marks, int32_t only_pid)
{
    const char *slash = strrchr(marks, '/');
    char folder[PATH_MAX];
    int32_t pid;
    if (!slash ||
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - marks), marks) >= (int)sizeof folder)
        return -EINVAL;
    DIR *dir = opendir(folder);
    if (!dir)
        return -errno;
    for (const struct dirent *d; (d = readdir(dir)) && a->count < ASKED_MAX;) {
        struct asked *one = &a->asked[a->count];
        if (!pid_of_name(d->d_name, slash + 1, &pid) || (only_pid && pid != only_pid))
            continue;
        *one = (struct asked){.pid = pid, .address = {.sun_family = AF_UNIX}};
        if (snprintf(one->address.sun_path, sizeof one->address.sun_path, "%s/%s", folder,
                     d->d_name) < (int)sizeof one->address.sun_path)
            a->count++;
    }
    closedir(dir);
    qsort(a->asked, a->count, sizeof *a->asked, by_pid);
    return 0;
}

static void census_take_answer(struct asking *a, struct asked *one, const char *path,
                               size_t path_len, const char *error)
{
    if (one->is_done)
        return;
    one->is_done = true;
    a->waiting--;
    json_array_append_new(a->answers, json_pack("{s:i,s:o,s:o}", "pid", (int)one->pid, "path",
                                                path ? json_text(path, path_len) : json_null(),
                                                "error", json_text0(error)));
}

static void ask_all(struct asking *a)
{
    char text[192];
    size_t len = (size_t)snprintf(text, sizeof text, "CENSUS=%" PRIu64 "\nREPLY=%s\n", a->id,
                                  a->own.sun_path);
    size_t kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        int r = mark_send(a->asked[i].address.sun_path, text, len, SEND_WAIT_MS);
        if (r == -ECONNREFUSED || r == -ENOENT) /* the process that bound the socket has exited */
            continue;
        a->asked[kept] = a->asked[i];
        a->waiting++;
        if (r < 0)
            census_take_answer(
                a, &a->asked[kept], NULL, 0,
                r == -EAGAIN
                    ? "the process does not read requests: it is stopped by a signal, or too busy"
                    : strerror(-r));
        kept++;
    }
    a->count = kept;
}

static struct asked *census_find_asked(struct asking *a, int64_t pid)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->asked[i].pid == pid)
            return &a->asked[i];
    return NULL;
}

static void census_receive(struct asking *a, int fd)
{
    char text[MARK_TEXT_MAX], id[24];
    ssize_t n;
    snprintf(id, sizeof id, "%" PRIu64, a->id);
    while ((n = recv(fd, text, sizeof text, 0)) >= 0) {
        struct mark m;
        size_t len;
        int64_t pid;
        if (mark_parse(text, (size_t)n, &m) < 0 || m.kind != MARK_ACK || !mark_is(&m, "ID", id))
            continue;
        const char *value = mark_get(&m, "PID", &len);
        struct asked *one =
            value && number_parse_i64(value, len, &pid) == 0 ? census_find_asked(a, pid) : NULL;
        const char *path = mark_get(&m, "PATH", &len);
        if (one && mark_is(&m, "STATUS", "done") && path)
            census_take_answer(a, one, path, len, NULL);
        else if (one && mark_is(&m, "STATUS", "failed"))
            census_take_answer(a, one, NULL, 0,
                               "the census failed, or its file could not be written");
    }
}

/* True if no process has the socket open any more. The kernel then refuses a connection. */
static bool has_gone(const struct asked *one)
{
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 &&
           connect(fd, (const struct sockaddr *)&one->address, sizeof one->address) < 0 &&
           (errno == ECONNREFUSED || errno == ENOENT);
}

static void wait_for_all(struct asking *a, int fd, uint64_t timeout_ns)
{
    uint64_t until_ns = clock_mono_ns() + timeout_ns;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (a->waiting > 0 && clock_mono_ns() < until_ns) {
        uint64_t left_ms = (until_ns - clock_mono_ns()) / NS_PER_MS + 1;
        if (poll(&p, 1, left_ms < POLL_MS ? (int)left_ms : POLL_MS) > 0)
            census_receive(a, fd);
        for (size_t i = 0; i < a->count; i++)
            if (!a->asked[i].is_done && has_gone(&a->asked[i]))
                census_take_answer(a, &a->asked[i], NULL, 0,
                                   "the process exited before it "
                                   "answered");
    }
    for (size_t i = 0; i < a->count; i++)
        census_take_answer(a, &a->asked[i], NULL, 0,
                           "no answer in time; the process may be busy in one long call (--timeout "
                           "sets a longer wait)");
}

/* Requests a census from every process that has a socket next to MARKS, the run's own socket, and
 * waits for the answers. If ONLY_PID is not 0, requests it from that process only. Returns a list
 * with one object per process: `pid`, and either the `path` of its census or `error`. The list is
 * empty if no process accepts requests. Returns NULL and an error if no request could be sent. */
static json_t *census_ask(const char *marks, int32_t only_pid, uint64_t timeout_ns, struct err *err)
{
    struct asking *a = calloc(1, sizeof *a);
    int r = a ? find_listeners(a, marks, only_pid) : -ENOMEM;
    AUTO_CLOSE int fd = -1;
    json_t *answers = r == 0 ? json_array() : NULL;
    if (r == 0 && a->count > 0) {
        fd = run_target_bind(marks, "census", &a->own);
        r = fd < 0 ? fd : 0;
    }
    if (r == 0 && a->count > 0) {
        a->answers = answers;
        a->id = clock_wall_ns();
        ask_all(a);
        wait_for_all(a, fd, timeout_ns);
        (void)unlink(a->own.sun_path);
    }
    free(a);
    if (r == 0)
        return answers;
    json_decref(answers);
    err_set(err, r, "cannot send a request to the run at %s: %s", marks, strerror(-r));
    return NULL;
}

struct census_options {
    uint64_t timeout_ns;
    int64_t top;
    bool json;
};

/* ---- growth ---- */

/* Returns an object that has each row of CENSUS under the key "KIND NAME". */
static json_t *index_of(const json_t *census)
{
    json_t *table = json_object(), *row;
    size_t i;
    for (int is_object = 0; is_object < 2; is_object++)
        json_array_foreach(json_object_get(census, is_object ? "objects" : "tensors"), i, row)
        {
            const char *type = json_string_value(json_object_get(row, "type"));
            AUTO_FREE char *tensor = is_object ? NULL : census_tensor_name(row);
            const char *name = is_object ? type : tensor;
            struct buf key = {0};
            buf_printf(&key, "%s %s", is_object ? "object" : "tensor", name ? name : "?");
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

/* Returns true if at least one process answered with a census. */
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

#define AT(member) offsetof(struct census_options, member)
static const struct option_desc options_table[] = {
    OPTION_ROW(0, "timeout", DURATION, "TIME", AT(timeout_ns), .fallback = "30s", .min = 100,
               .help = "how long to wait for the processes to answer"),
    OPTION_ROW(0, "top", INT, "N", AT(top), .fallback = "10", .min = 1, .max = 200,
               .help = "maximum number of rows per table"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(json), .help = "print one JSON object, with all rows"),
    {0},
};

const struct cli_command cmd_census = {
    .name = "census",
    .operands = "[RUN_DIR|PID]",
    .summary = "live tensors and Python objects of a job, and their growth",
    .description =
        "Asks the Python processes of a run to count their live tensors by device, type and "
        "shape, and their live objects by type, and to find out what keeps the largest ones "
        "alive. The processes do this at the end of a step, or in a thread of their own if no "
        "step ends within two seconds; ebb does not attach to them. Each census is stored in "
        "the run folder, and the next one shows the growth since then.\n"
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
