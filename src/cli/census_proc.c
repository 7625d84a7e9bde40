/* What /proc tells of a process from outside: memory by kind, mappings, threads, open files, and
 * the command that would start it under ebb. */
#include "cli/census.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "proc/procfs.h"

enum { FILE_MAX = 64 << 20, MAPPINGS_MAX = 12 };

static int read_file(const struct proc_root *root, int32_t pid, const char *name, struct buf *ret)
{
    char path[64];
    snprintf(path, sizeof path, "%d/%s", (int)pid, name);
    return io_read_all(root->proc_fd, path, FILE_MAX, ret);
}

static bool is_name(const char *s, size_t len, const char *begin)
{
    size_t n = strlen(begin);
    return len >= n && memcmp(s, begin, n) == 0;
}

/* ---- mappings ---- */

/* Files are told apart, the rest is of a few kinds. */
static json_t *kind_of_mapping(const struct proc_map *m)
{
    const char *p = m->path;
    size_t len = m->path_len;
    if (is_name(p, len, "[heap]"))
        return json_string("heap (brk)");
    if (is_name(p, len, "[stack"))
        return json_string("stack");
    if (is_name(p, len, "/dev/shm/") || is_name(p, len, "/memfd:") || is_name(p, len, "/SYSV") ||
        is_name(p, len, "/dev/zero"))
        return json_string("shared memory");
    if (len == 0 || is_name(p, len, "[anon"))
        return json_string(m->shared ? "shared memory" : "anonymous");
    if (p[0] == '[')
        return json_string("the kernel's");
    return json_text(p, len);
}

static void add_to(json_t *table, const char *key, uint64_t bytes)
{
    json_t *row = json_object_get(table, key);
    if (!row) {
        row = json_pack("{s:s,s:i,s:i}", "what", key, "count", 0, "bytes", 0);
        json_object_set_new(table, key, row);
    }
    json_integer_set(json_object_get(row, "count"),
                     json_integer_value(json_object_get(row, "count")) + 1);
    json_integer_set(json_object_get(row, "bytes"),
                     json_integer_value(json_object_get(row, "bytes")) + (json_int_t)bytes);
}

static int by_bytes(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "bytes"));
    json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "bytes"));
    return (x < y) - (x > y);
}

/* The rows of TABLE, the largest first; those beyond the maximum as one. */
static json_t *sorted(json_t *table)
{
    size_t n = json_object_size(table), i = 0;
    json_t **rows = calloc(n + 1, sizeof(json_t *)), *list = json_array(), *row;
    json_int_t count = 0, bytes = 0;
    const char *key;
    json_object_foreach(table, key, row)
    {
        if (rows)
            rows[i++] = row;
    }
    if (i > 0)
        qsort(rows, i, sizeof(json_t *), by_bytes);
    for (size_t k = 0; k < i; k++) {
        if (k < MAPPINGS_MAX) {
            json_array_append(list, rows[k]);
            continue;
        }
        count += json_integer_value(json_object_get(rows[k], "count"));
        bytes += json_integer_value(json_object_get(rows[k], "bytes"));
    }
    if (count)
        json_array_append_new(
            list, json_pack("{s:s,s:I,s:I}", "what", "others", "count", count, "bytes", bytes));
    free(rows);
    return list;
}

static json_t *mappings_json(const struct proc_root *root, int32_t pid)
{
    struct buf text = {0};
    struct proc_map m;
    if (read_file(root, pid, "maps", &text) < 0) {
        buf_fini(&text);
        return json_null();
    }
    json_t *table = json_object();
    const char *at = text.data, *end = text.data + text.len;
    while (at && proc_maps_next(&at, end, &m) > 0) {
        json_t *kind = kind_of_mapping(&m);
        if (json_string_value(kind))
            add_to(table, json_string_value(kind), m.end - m.start);
        json_decref(kind);
    }
    json_t *list = sorted(table);
    json_decref(table);
    buf_fini(&text);
    return list;
}

/* ---- open files ---- */

static const char *kind_of_file(const char *to)
{
    static const struct {
        const char *begin, *kind;
    } kinds[] = {{"socket:", "socket"},
                 {"pipe:", "pipe"},
                 {"anon_inode:", "kernel object"},
                 {"/memfd:", "shared memory"},
                 {"/dev/shm/", "shared memory"},
                 {"/dev/nvidia", "gpu"},
                 {"/dev/", "device"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_name(to, strlen(to), kinds[i].begin))
            return kinds[i].kind;
    return "file";
}

static json_t *files_json(const struct proc_root *root, int32_t pid)
{
    char path[64], to[PATH_MAX];
    snprintf(path, sizeof path, "%d/fd", (int)pid);
    int fd = openat(root->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return json_null();
    }
    json_t *table = json_object();
    for (const struct dirent *d; (d = readdir(dir));) {
        ssize_t n = readlinkat(fd, d->d_name, to, sizeof to - 1);
        if (n < 0)
            continue;
        to[n] = '\0';
        const char *kind = kind_of_file(to);
        json_int_t count = json_integer_value(json_object_get(table, kind));
        json_object_set_new(table, kind, json_integer(count + 1));
    }
    closedir(dir);
    return table;
}

/* ---- the process ---- */

static json_t *bytes_if(const struct proc_status *s, enum proc_status_bit bit, uint64_t bytes)
{
    return s->has & (uint32_t)bit ? json_u64(bytes) : json_null();
}

static json_t *command_json(const struct proc_root *root, int32_t pid)
{
    struct buf args = {0}, text = {0};
    json_t *o = NULL;
    if (read_file(root, pid, "cmdline", &args) == 0 && args.len > 0) {
        text_command(&text, args.data, args.len);
        o = json_text(buf_str(&text), text.len);
    }
    buf_fini(&args);
    buf_fini(&text);
    return o ? o : json_null();
}

json_t *census_process_json(const struct proc_root *root, int32_t pid, struct err *err)
{
    struct buf text = {0};
    struct proc_stat stat = {0};
    struct proc_status status = {0};
    int r = read_file(root, pid, "stat", &text);
    if (r == 0)
        r = proc_stat_parse(text.data, text.len, &stat);
    buf_clear(&text);
    if (r == 0 && read_file(root, pid, "status", &text) == 0)
        (void)proc_status_parse(text.data, text.len, &status);
    buf_fini(&text);
    if (r < 0) {
        err_set(err, r, "there is no process %d", (int)pid);
        return NULL;
    }
    if ((status.has & STATUS_TGID) && status.tgid != pid) {
        (void)proc_refuse_thread(root, pid, status.tgid, err);
        return NULL;
    }
    json_t *o = json_pack("{s:i,s:o,s:o,s:o,s:i}", "pid", (int)pid, "name",
                          json_text(stat.comm, stat.comm_len), "command", command_json(root, pid),
                          "rss_bytes", json_u64(stat.rss_pages * root->page_bytes), "threads",
                          (int)stat.threads);
    json_object_set_new(o, "anon_bytes", bytes_if(&status, STATUS_ANON, status.anon_bytes));
    json_object_set_new(o, "file_bytes", bytes_if(&status, STATUS_FILE, status.file_bytes));
    json_object_set_new(o, "shmem_bytes", bytes_if(&status, STATUS_SHMEM, status.shmem_bytes));
    json_object_set_new(o, "swap_bytes", bytes_if(&status, STATUS_SWAP, status.swap_bytes));
    json_object_set_new(o, "peak_bytes", bytes_if(&status, STATUS_HWM, status.hwm_bytes));
    json_object_set_new(o, "mappings", mappings_json(root, pid));
    json_object_set_new(o, "fds", files_json(root, pid));
    return o;
}

char *census_environment(const struct proc_root *root, int32_t pid, const char *name,
                         int *ret_error)
{
    struct buf text = {0};
    size_t len;
    *ret_error = read_file(root, pid, "environ", &text);
    const char *value =
        *ret_error == 0 ? proc_environ_find(buf_str(&text), text.len, name, &len) : NULL;
    char *found = value ? strndup(value, len) : NULL;
    buf_fini(&text);
    return found;
}

/* ---- those below it ---- */

enum { BELOW_MAX = 32768 };

struct kin {
    int32_t pid, ppid;
    bool is_below;
};

static size_t list_kin(const struct proc_root *root, struct kin *ret)
{
    AUTO_CLOSE int copy = fcntl(root->proc_fd, F_DUPFD_CLOEXEC, 3);
    int fd = copy >= 0 ? openat(copy, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct proc_stat stat;
    size_t n = 0;
    for (const struct dirent *d; dir && n < BELOW_MAX && (d = readdir(dir));) {
        char path[32], text[1024];
        int64_t pid;
        if (number_parse_i64(d->d_name, strlen(d->d_name), &pid) < 0 || pid > INT32_MAX)
            continue;
        snprintf(path, sizeof path, "%d/stat", (int)pid);
        ssize_t len = io_read_small(fd, path, text, sizeof text);
        if (len > 0 && proc_stat_parse(text, (size_t)len, &stat) == 0)
            ret[n++] = (struct kin){.pid = (int32_t)pid, .ppid = stat.ppid};
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return n;
}

static bool is_below(const struct kin *all, size_t n, int32_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].pid == pid)
            return all[i].is_below;
    return false;
}

int32_t census_find_below(const struct proc_root *root, int32_t pid)
{
    AUTO_FREE struct kin *all = calloc(BELOW_MAX, sizeof *all);
    size_t n = all ? list_kin(root, all) : 0;
    for (bool is_more = true; is_more;) {
        is_more = false;
        for (size_t i = 0; i < n; i++) {
            if (all[i].is_below || (all[i].ppid != pid && !is_below(all, n, all[i].ppid)))
                continue;
            int error;
            AUTO_FREE char *marks = census_environment(root, all[i].pid, "EBB_SOCKET", &error);
            if (marks)
                return all[i].pid;
            all[i].is_below = is_more = true;
        }
    }
    return 0;
}

/* ---- the command ---- */

static bool is_plain(const char *s)
{
    return *s && s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                             "%+,-./:=@_")] == '\0';
}

/* Harmless on a terminal, all of it. */
static bool is_printable(const char *s)
{
    struct buf escaped = {0};
    text_escape(&escaped, s, strlen(s));
    bool is_same = strcmp(buf_str(&escaped), s) == 0;
    buf_fini(&escaped);
    return is_same;
}

static void add_quoted(struct buf *out, const char *s)
{
    if (is_plain(s)) {
        buf_add_str(out, s);
        return;
    }
    bool is_ansi = !is_printable(s);
    buf_add_str(out, is_ansi ? "$'" : "'");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (is_ansi && (c < 0x20 || c >= 0x7f))
            buf_printf(out, "\\x%02x", c);
        else if (is_ansi && (c == '\\' || c == '\''))
            buf_printf(out, "\\%c", c);
        else if (c == '\'')
            buf_add_str(out, "'\\''");
        else
            buf_add_byte(out, c);
    }
    buf_add_byte(out, '\'');
}

bool census_start_line(const struct proc_root *root, int32_t pid, struct buf *ret)
{
    struct buf args = {0};
    char path[64], cwd[PATH_MAX], own[PATH_MAX];
    bool has = read_file(root, pid, "cmdline", &args) == 0 && args.len > 0;
    snprintf(path, sizeof path, "%d/cwd", (int)pid);
    ssize_t n = readlinkat(root->proc_fd, path, cwd, sizeof cwd - 1);
    if (has && n > 0) {
        cwd[n] = '\0';
        if (!getcwd(own, sizeof own) || strcmp(own, cwd) != 0) {
            buf_add_str(ret, "cd ");
            add_quoted(ret, cwd);
            buf_add_str(ret, " && ");
        }
    }
    if (has) {
        const char *s = buf_str(&args), *end = s + args.len;
        buf_add_str(ret, "ebb run --");
        for (; s < end; s += strlen(s) + 1) {
            buf_add_byte(ret, ' ');
            add_quoted(ret, s);
        }
    }
    buf_fini(&args);
    return has;
}
