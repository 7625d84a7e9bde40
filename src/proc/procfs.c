/* Parsers for the files of /proc and cgroupfs. */
#include "proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/span.h"
#include "proc/read.h"

int proc_root_open(const char *proc_path, const char *cgroup_path, struct proc_root *ret,
                   struct err *err)
{
    int proc_fd = open(proc_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc_fd < 0)
        return err_set(err, -errno, "cannot open %s: %s; is /proc mounted?", proc_path,
                       strerror(errno));
    int cgroup_fd = -1; /* cgroup_fd stays -1 on a machine without cgroups */
    if (cgroup_path)
        cgroup_fd = open(cgroup_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *ret = (struct proc_root){proc_fd, cgroup_fd, (uint64_t)sysconf(_SC_PAGESIZE)};
    return 0;
}

void proc_root_close(struct proc_root *root)
{
    close_fd(&root->proc_fd);
    close_fd(&root->cgroup_fd);
}

/* True if /proc belongs to a parent of our pid namespace. The line "NSpid:" contains one number for
 * each namespace, from the namespace of /proc down to our namespace. Comparing pids is not enough,
 * because a process may have the same pid in both namespaces. */
static bool is_in_deeper_namespace(const struct proc_root *root)
{
    char cursor[4096];
    ssize_t len = io_read_small(root->proc_fd, "self/status", cursor, sizeof cursor);
    const char *line = len > 0 ? strstr(cursor, "\nNSpid:\t") : NULL;
    if (!line)
        return false;
    line += strlen("\nNSpid:\t");
    return line[strspn(line, "0123456789")] == '\t';
}

bool proc_root_is_foreign(const struct proc_root *root)
{
    char self[16] = "", ours[16];
    struct stat st;
    if (fstatat(root->proc_fd, "self", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    /* If our process is not visible in this /proc, the symbolic link "self" exists but cannot be
     * read. */
    ssize_t len = readlinkat(root->proc_fd, "self", self, sizeof self - 1);
    if (len < 0)
        return errno == ENOENT;
    self[len] = '\0';
    snprintf(ours, sizeof ours, "%d", (int)getpid());
    return strcmp(self, ours) != 0 || is_in_deeper_namespace(root);
}

int proc_refuse_thread(const struct proc_root *root, int32_t pid, int32_t tgid, struct err *err)
{
    char name[64];
    ssize_t len = proc_read(root, tgid, "comm", name, sizeof name);
    if (len > 0 && name[len - 1] == '\n')
        name[--len] = '\0';
    return err_set(err, -ESRCH, "%d is a thread of process %d%s%s%s; use --pid %d", pid, tgid,
                   len > 0 ? " (" : "", len > 0 ? name : "", len > 0 ? ")" : "", tgid);
}

/* The unread rest of a text. Every take_* function moves P past the part that it parsed, or returns
 * false and leaves P unchanged. */
struct cursor {
    const char *p;
    const char *end;
};

static struct cursor cursor_of(const char *s, size_t len)
{
    return (struct cursor){s, s + len};
}

static void skip_blanks(struct cursor *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t'))
        t->p++;
}

static bool take_char(struct cursor *t, char c)
{
    if (t->p == t->end || *t->p != c)
        return false;
    t->p++;
    return true;
}

static bool take_u64(struct cursor *t, uint64_t *ret)
{
    const char *p = t->p;
    uint64_t v = 0;
    while (p < t->end && *p >= '0' && *p <= '9') {
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
        p++;
    }
    if (p == t->p)
        return false;
    t->p = p;
    *ret = v;
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static bool take_hex(struct cursor *t, uint64_t *ret)
{
    const char *p = t->p;
    uint64_t v = 0;
    for (int digit; p < t->end && (digit = hex_value(*p)) >= 0; p++) {
        if (v >> 60 != 0)
            return false;
        v = v << 4 | (uint64_t)digit;
    }
    if (p == t->p)
        return false;
    t->p = p;
    *ret = v;
    return true;
}

/* Takes a line without its newline. Returns false at the end of the text. */
static bool take_text_line(struct cursor *t, struct cursor *ret)
{
    if (t->p == t->end)
        return false;
    const char *newline = memchr(t->p, '\n', (size_t)(t->end - t->p));
    const char *end = newline ? newline : t->end;
    *ret = (struct cursor){t->p, end};
    t->p = newline ? newline + 1 : t->end;
    return true;
}

/* Takes KEY and the blanks after it. */
static bool take_key(struct cursor *t, const char *key)
{
    size_t len = strlen(key);
    if ((size_t)(t->end - t->p) < len || memcmp(t->p, key, len) != 0)
        return false;
    t->p += len;
    skip_blanks(t);
    return true;
}

/* Takes a number such as "  123 kB" and returns it in bytes. */
static bool take_kib(struct cursor *t, uint64_t *ret_bytes)
{
    uint64_t kib;
    skip_blanks(t);
    if (!take_u64(t, &kib) || !take_key(t, " kB") || kib > UINT64_MAX / 1024)
        return false;
    *ret_bytes = kib * 1024;
    return true;
}

static bool take_u32(struct cursor *t, uint32_t max, uint32_t *ret)
{
    struct cursor probe = *t;
    uint64_t v;
    if (!take_u64(&probe, &v) || v > max)
        return false;
    *t = probe;
    *ret = (uint32_t)v;
    return true;
}

static bool take_pid(struct cursor *t, int32_t *ret)
{
    uint32_t v;
    bool ok = take_u32(t, INT32_MAX, &v);
    if (ok)
        *ret = (int32_t)v;
    return ok;
}

/* Takes one blank and one number from /proc/PID/stat. Negative numbers (tpgid, nice) are read as 0,
 * because they are not used. */
static bool take_stat_field(struct cursor *t, uint64_t *ret)
{
    if (!take_char(t, ' '))
        return false;
    bool negative = take_char(t, '-');
    if (!take_u64(t, ret))
        return false;
    if (negative)
        *ret = 0;
    return true;
}

/* Numbers of the fields that follow the name in /proc/PID/stat, as in proc(5). */
enum {
    STAT_STATE = 3,
    STAT_PPID,
    STAT_PGRP,
    STAT_MINOR_FAULTS = 10,
    STAT_THREADS = 20,
    STAT_START = 22,
    STAT_VSIZE,
    STAT_RSS,
    STAT_STACK = 28
};

int proc_stat_parse(const char *s, size_t len, struct proc_stat *ret)
{
    const char *open = memchr(s, '(', len);
    const char *close = memrchr(s, ')', len); /* the name may contain any number of ')' */
    if (!open || !close || close < open)
        return -EBADMSG;
    struct cursor t = {close + 1, s + len};
    if (t.end - t.p < 2 || *t.p != ' ')
        return -EBADMSG;
    char state = t.p[1];
    t.p += 2;
    uint64_t field[STAT_STACK + 1];
    for (int i = STAT_PPID; i <= STAT_STACK; i++)
        if (!take_stat_field(&t, &field[i]))
            return -EBADMSG;
    if (field[STAT_PPID] > INT32_MAX || field[STAT_PGRP] > INT32_MAX ||
        field[STAT_THREADS] > UINT32_MAX)
        return -EBADMSG;
    size_t comm_len = (size_t)(close - open - 1);
    if (comm_len > sizeof ret->comm - 1)
        comm_len = sizeof ret->comm - 1;
    *ret = (struct proc_stat){
        .ppid = (int32_t)field[STAT_PPID],
        .pgrp = (int32_t)field[STAT_PGRP],
        .state = state,
        .minor_faults = field[STAT_MINOR_FAULTS],
        .threads = (uint32_t)field[STAT_THREADS],
        .start_ticks = field[STAT_START],
        .size_bytes = field[STAT_VSIZE],
        .rss_pages = field[STAT_RSS],
        .start_stack = field[STAT_STACK],
        .comm_len = (uint16_t)comm_len,
    };
    memcpy(ret->comm, open + 1, comm_len);
    return 0;
}

int proc_statm_parse(const char *s, size_t len, struct proc_statm *ret)
{
    struct cursor t = cursor_of(s, len);
    struct proc_statm v;
    if (!take_u64(&t, &v.size_pages) || !take_char(&t, ' ') || !take_u64(&t, &v.rss_pages) ||
        !take_char(&t, ' ') || !take_u64(&t, &v.shared_pages))
        return -EBADMSG;
    *ret = v;
    return 0;
}

static int status_line(struct cursor line, struct proc_status *v)
{
    const struct {
        const char *key;
        uint32_t bit;
        uint64_t *bytes;
    } sizes[] = {
        {"VmHWM:", STATUS_HWM, &v->hwm_bytes},     {"RssAnon:", STATUS_ANON, &v->anon_bytes},
        {"RssFile:", STATUS_FILE, &v->file_bytes}, {"RssShmem:", STATUS_SHMEM, &v->shmem_bytes},
        {"VmSwap:", STATUS_SWAP, &v->swap_bytes},  {"VmData:", STATUS_DATA, &v->data_bytes},
    };
    uint32_t bit = 0;
    bool ok = true;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && bit == 0; i++)
        if (take_key(&line, sizes[i].key)) {
            bit = sizes[i].bit;
            ok = take_kib(&line, sizes[i].bytes);
        }
    if (bit != 0)
        ; /* the size in this line was already parsed by the loop above */
    else if (take_key(&line, "Uid:"))
        bit = STATUS_UID, ok = take_u32(&line, UINT32_MAX, &v->uid);
    else if (take_key(&line, "Tgid:"))
        bit = STATUS_TGID, ok = take_pid(&line, &v->tgid);
    v->has |= bit;
    return ok ? 0 : -EBADMSG;
}

int proc_status_parse(const char *s, size_t len, struct proc_status *ret)
{
    struct cursor t = cursor_of(s, len), line;
    struct proc_status v = {0};
    while (take_text_line(&t, &line))
        /* most lines are skipped after checking only the first letter */
        if (line.p < line.end && strchr("VRUT", *line.p) && status_line(line, &v) < 0)
            return -EBADMSG;
    if (v.has == 0)
        return -EBADMSG;
    *ret = v;
    return 0;
}

int proc_meminfo_parse(const char *s, size_t len, struct proc_meminfo *ret)
{
    struct proc_meminfo v = {0};
    const struct {
        const char *key;
        uint64_t *bytes;
    } lines[] = {
        {"MemTotal:", &v.total_bytes},       {"MemAvailable:", &v.available_bytes},
        {"SwapTotal:", &v.swap_total_bytes}, {"SwapFree:", &v.swap_free_bytes},
        {"AnonPages:", &v.anon_bytes},       {"Mapped:", &v.mapped_bytes},
        {"Shmem:", &v.shmem_bytes},
    };
    enum { COUNT = sizeof lines / sizeof lines[0] };
    unsigned seen = 0;
    struct cursor t = cursor_of(s, len), line;
    while (seen != (1u << COUNT) - 1 && take_text_line(&t, &line))
        for (size_t i = 0; i < COUNT; i++)
            if (take_key(&line, lines[i].key)) {
                if (!take_kib(&line, lines[i].bytes))
                    return -EBADMSG;
                seen |= 1u << i;
                break;
            }
    if ((seen & 3u) != 3u)
        return -EBADMSG;
    *ret = v;
    return 0;
}

/* Takes a number such as "12.34" and returns it multiplied by 100: 1234. */
static bool take_hundredths(struct cursor *t, uint32_t *ret)
{
    uint64_t whole, part;
    if (!take_u64(t, &whole) || whole > 100000 || !take_char(t, '.'))
        return false;
    const char *digits = t->p;
    if (!take_u64(t, &part) || t->p - digits != 2)
        return false;
    *ret = (uint32_t)(whole * 100 + part);
    return true;
}

int proc_psi_parse(const char *s, size_t len, struct proc_psi *ret)
{
    struct cursor t = cursor_of(s, len), line;
    struct proc_psi v = {0};
    bool has_some = false, ok = true;
    while (ok && take_text_line(&t, &line)) {
        if (take_key(&line, "some avg10="))
            ok = has_some = take_hundredths(&line, &v.some_avg10_permyriad);
        else if (take_key(&line, "full avg10="))
            ok = v.has_full = take_hundredths(&line, &v.full_avg10_permyriad);
        else
            ok = false;
    }
    if (!ok || !has_some)
        return -EBADMSG;
    *ret = v;
    return 0;
}

int proc_smaps_rollup_parse(const char *s, size_t len, uint64_t *ret_pss_bytes)
{
    struct cursor t = cursor_of(s, len), line;
    while (take_text_line(&t, &line))
        if (take_key(&line, "Pss:"))
            return take_kib(&line, ret_pss_bytes) ? 0 : -EBADMSG;
    return -EBADMSG;
}

static bool take_flag(struct cursor *t, char set, char clear, bool *ret)
{
    if (take_char(t, set))
        *ret = true;
    else if (take_char(t, clear))
        *ret = false;
    else
        return false;
    return true;
}

static bool take_map(struct cursor *t, struct proc_map *ret)
{
    uint64_t ignored;
    bool private;
    struct proc_map v = {0};
    if (!take_hex(t, &v.start) || !take_char(t, '-') || !take_hex(t, &v.end) ||
        !take_char(t, ' ') || v.end < v.start)
        return false;
    if (!take_flag(t, 'r', '-', &v.readable) || !take_flag(t, 'w', '-', &v.writable) ||
        !take_flag(t, 'x', '-', &v.executable) || !take_flag(t, 'p', 's', &private))
        return false;
    v.shared = !private;
    if (!take_char(t, ' ') || !take_hex(t, &ignored) || !take_char(t, ' ') || /* offset */
        !take_hex(t, &v.dev_major) || !take_char(t, ':') || !take_hex(t, &v.dev_minor) ||
        !take_char(t, ' ') || !take_u64(t, &v.inode))
        return false;
    skip_blanks(t);
    v.path = t->p;
    v.path_len = (size_t)(t->end - t->p);
    *ret = v;
    return true;
}

int proc_maps_next(const char **s, const char *end, struct proc_map *ret)
{
    struct cursor t = {*s, end}, line;
    if (!take_text_line(&t, &line))
        return 0;
    if (!take_map(&line, ret))
        return -EBADMSG;
    *s = t.p;
    return 1;
}

size_t proc_pids_parse(const char *s, size_t len, int32_t *ret, size_t max)
{
    struct cursor t = cursor_of(s, len);
    size_t n = 0;
    while (n < max) {
        while (t.p < t.end && (*t.p == ' ' || *t.p == '\n'))
            t.p++;
        if (!take_pid(&t, &ret[n]) || ret[n] == 0)
            break;
        n++;
    }
    return n;
}

const char *proc_environ_find(const char *s, size_t len, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name), at = 0;
    while (at < len) {
        const char *entry = s + at;
        size_t n = strnlen(entry, len - at);
        if (n > name_len + 1 && memcmp(entry, name, name_len) == 0 && entry[name_len] == '=') {
            *ret_len = n - name_len - 1;
            return entry + name_len + 1;
        }
        at += n + 1;
    }
    return NULL;
}

int proc_cgroup_number_parse(const char *s, size_t len, bool *ret_unlimited, uint64_t *ret)
{
    struct cursor t = cursor_of(s, len);
    uint64_t v = 0;
    bool unlimited = take_key(&t, "max");
    if (!unlimited && !take_u64(&t, &v))
        return -EBADMSG;
    take_char(&t, '\n');
    if (t.p != t.end)
        return -EBADMSG;
    *ret_unlimited = unlimited || v >= UINT64_C(1) << 62;
    *ret = v;
    return 0;
}

int proc_keyed_parse(const char *s, size_t len, const char *key, uint64_t *ret)
{
    struct cursor t = cursor_of(s, len), line;
    size_t key_len = strlen(key);
    while (take_text_line(&t, &line)) {
        if ((size_t)(line.end - line.p) <= key_len || line.p[key_len] != ' ' ||
            memcmp(line.p, key, key_len) != 0)
            continue;
        line.p += key_len + 1;
        uint64_t v;
        if (!take_u64(&line, &v) || line.p != line.end)
            return -EBADMSG;
        *ret = v;
        return 0;
    }
    return -ENOENT;
}

/* Takes the next field, which ends at SEP. Returns an empty span for a missing field. */
static struct span take_field(struct cursor *t, char sep)
{
    const char *stop = memchr(t->p, sep, (size_t)(t->end - t->p));
    struct span field = {t->p, (size_t)((stop ? stop : t->end) - t->p)};
    t->p = stop ? stop + 1 : t->end;
    return field;
}

/* True if WORD is one of the comma-separated words in T. */
static bool list_has_word(struct cursor t, const char *word)
{
    while (t.p < t.end)
        if (span_is(take_field(&t, ','), word))
            return true;
    return false;
}

static int copy_path(struct span path, char *ret, size_t size)
{
    if (path.len >= size)
        return -ENAMETOOLONG;
    memcpy(ret, path.p, path.len);
    ret[path.len] = '\0';
    return 0;
}

int proc_cgroup_parse(const char *s, size_t len, bool v2, char *ret, size_t size)
{
    struct cursor t = cursor_of(s, len), line;
    while (take_text_line(&t, &line)) {
        struct span id = take_field(&line, ':'), controllers = take_field(&line, ':');
        if (line.p == line.end ||
            *line.p != '/') /* the rest of the line is the path, which may contain colons */
            continue;
        if (v2 ? span_is(id, "0") && controllers.len == 0
               : list_has_word(cursor_of(controllers.p, controllers.len), "memory"))
            return copy_path((struct span){line.p, (size_t)(line.end - line.p)}, ret, size);
    }
    return -ENOENT;
}

/* Finds the root of a cgroup mount. The lines of /proc/self/mountinfo look like this:
 * 36 35 0:32 /docker/ab /sys/fs/cgroup/memory rw,relatime master:9 - cgroup cgroup rw,memory */
int proc_mount_parse(const char *s, size_t len, bool v2, char *ret, size_t size)
{
    struct cursor t = cursor_of(s, len), line;
    while (take_text_line(&t, &line)) {
        struct span field[5];
        for (size_t i = 0; i < 5; i++)
            field[i] = take_field(&line, ' ');
        const char *dash = memmem(line.p, (size_t)(line.end - line.p), " - ", 3);
        if (!dash || field[3].len == 0 || !span_begins(field[4], "/sys/fs/cgroup"))
            continue;
        line.p = dash + 3;
        struct span type = take_field(&line, ' ');
        take_field(&line, ' '); /* the source */
        if (v2 ? span_is(type, "cgroup2")
               : span_is(type, "cgroup") && list_has_word(line, "memory"))
            return copy_path(field[3], ret, size);
    }
    return -ENOENT;
}

int proc_rlimit_parse(const char *s, size_t len, const char *name, bool *ret_unlimited,
                      uint64_t *ret)
{
    struct cursor t = cursor_of(s, len), line;
    while (take_text_line(&t, &line)) {
        uint64_t v;
        const char *at = line.p + strlen(name);
        if (!take_key(&line, name) || line.p == at)
            continue;
        bool unlimited = take_key(&line, "unlimited");
        if (!unlimited && (!take_u64(&line, &v) || (line.p < line.end && *line.p != ' ')))
            return -EBADMSG;
        *ret_unlimited = unlimited;
        if (!unlimited)
            *ret = v;
        return 0;
    }
    return -ENOENT;
}
