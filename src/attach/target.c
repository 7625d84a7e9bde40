/* Opens the memory of a process, and explains why access is refused. */
#include "attach/target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/number.h"
#include "base/text.h"
#include "proc/read.h"

enum { STATUS_MAX = 16 << 10 };

bool attach_read(int mem_fd, uint64_t address, void *ret, size_t len)
{
    char *at = ret;
    while (len > 0) {
        if (address > INT64_MAX - len)
            return false;
        ssize_t n = pread(mem_fd, at, len, (off_t)address);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        address += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

bool attach_write(int mem_fd, uint64_t address, const void *data, size_t len)
{
    return address <= INT64_MAX - len && pwrite(mem_fd, data, len, (off_t)address) == (ssize_t)len;
}

bool attach_read_word(int mem_fd, uint64_t address, uint64_t *ret)
{
    return attach_read(mem_fd, address, ret, sizeof *ret);
}

bool attach_read_int(int mem_fd, uint64_t address, uint32_t *ret)
{
    return attach_read(mem_fd, address, ret, sizeof *ret);
}

int attach_target_file(const struct attach_target *t, const char *name, size_t max, struct buf *ret)
{
    char path[64];
    snprintf(path, sizeof path, "%d/%s", (int)t->pid, name);
    return io_read_all(t->root->proc_fd, path, max, ret);
}

/* Returns true if the process still runs the program whose memory was opened. After an exec, the
 * process has the same pid and start time, but an attempt to read the memory of the earlier program
 * yields end of file. */
static bool has_memory(const struct attach_target *t)
{
    char byte;
    return t->mem_fd < 0 || pread(t->mem_fd, &byte, sizeof byte, 0) != 0;
}

bool attach_target_lives(const struct attach_target *t)
{
    struct proc_stat stat;
    return proc_read_stat(t->root, t->pid, &stat) == 0 && stat.start_ticks == t->start_ticks &&
           !proc_stat_is_dead(&stat) && has_memory(t);
}

int attach_target_gone(const struct attach_target *t, struct err *err)
{
    return err_set(err, -ESRCH, "process %d (%s) has exited or started another program",
                   (int)t->pid, t->name);
}

bool attach_target_sees(const struct attach_target *t, const char *path)
{
    char theirs[4400];
    struct stat a, b;
    snprintf(theirs, sizeof theirs, "%d/root%s", (int)t->pid, path);
    if (stat(path, &a) < 0)
        return false;
    if (fstatat(t->root->proc_fd, theirs, &b, 0) < 0)
        /* EACCES means that ebb may not enter the root folder of the process. If the process has
         * opted in, return true nevertheless: the process opens the file on its own, and reports an
         * error if the file is missing. */
        return t->optin[0] && errno == EACCES;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* ---- reasons to refuse ---- */

/* Gets the number that follows "KEY:" in the text of /proc/PID/status. */
static bool status_number(const char *status, const char *key, uint64_t *ret)
{
    char text[40];
    snprintf(text, sizeof text, "\n%s:\t", key);
    const char *at = strstr(status, text);
    return at && sscanf(at + strlen(text), "%" SCNu64, ret) == 1;
}

/* Returns the number of seccomp filters. If the kernel does not report their number, returns 1 for
 * a process with filters and 0 for one without. */
static uint64_t filter_count(const char *status)
{
    uint64_t n = 0;
    if (!status_number(status, "Seccomp_filters", &n) && status_number(status, "Seccomp", &n))
        n = n != 0;
    return n;
}

static bool is_other_namespace(const struct attach_target *t, const char *kind)
{
    char ours[64], theirs[64];
    struct stat a, b;
    snprintf(ours, sizeof ours, "self/ns/%s", kind);
    snprintf(theirs, sizeof theirs, "%d/ns/%s", (int)t->pid, kind);
    return fstatat(t->root->proc_fd, ours, &a, 0) == 0 &&
           fstatat(t->root->proc_fd, theirs, &b, 0) == 0 && a.st_ino != b.st_ino;
}

static int refuse_user(const struct attach_target *t, struct err *err)
{
    const struct passwd *user = getpwuid(t->uid);
    char name[64];
    snprintf(name, sizeof name, "user %u", (unsigned)t->uid);
    if (user)
        text_fit(name, sizeof name, 32, user->pw_name, strlen(user->pw_name));
    return err_set(err, -EPERM, "process %d (%s) belongs to %s; run ebb as that user, or with sudo",
                   (int)t->pid, t->name, name);
}

/* Explains why the kernel refused access to a process of our own user. */
static int refuse_rights(const struct attach_target *t, enum attach_access access_wanted, int error,
                         struct err *err)
{
    const char *also = access_wanted == ATTACH_WRITE ? ", or start the job with EBB_ATTACH=1" : "";
    char text[16] = "";
    int64_t scope = 0;
    ssize_t n = io_read_small(t->root->proc_fd, "sys/kernel/yama/ptrace_scope", text, sizeof text);
    if (n > 0)
        (void)number_parse_i64(text, strcspn(text, "\n"), &scope);
    if (scope >= 3)
        return err_set(err, error,
                       "cannot attach to any process: kernel.yama.ptrace_scope is 3 until "
                       "the machine is rebooted with another setting; start the job with ebb run%s",
                       access_wanted == ATTACH_WRITE ? " or with EBB_ATTACH=1" : "");
    if (scope > 0)
        return err_set(
            err, error,
            "only root can attach to process %d (%s), because kernel.yama.ptrace_scope is "
            "%d; run ebb with sudo, or run sudo sysctl kernel.yama.ptrace_scope=0%s",
            (int)t->pid, t->name, (int)scope, also);
    if (is_other_namespace(t, "user") || access("/run/.containerenv", F_OK) == 0 ||
        access("/.dockerenv", F_OK) == 0 || getenv("KUBERNETES_SERVICE_HOST"))
        return err_set(err, error,
                       "access to process %d (%s) is refused in this container; add the capability "
                       "SYS_PTRACE (docker run --cap-add=SYS_PTRACE, kubectl debug "
                       "--profile=general)%s",
                       (int)t->pid, t->name, also);
    return err_set(err, error, "access to process %d (%s) is refused: %s; run ebb with sudo%s",
                   (int)t->pid, t->name, strerror(-error), also);
}

static int check_life(const struct attach_target *t, const struct proc_stat *stat, struct err *err)
{
    if (t->pid == (int32_t)getpid())
        return err_set(err, -EINVAL, "process %d is ebb itself", (int)t->pid);
    if (proc_stat_is_dead(stat))
        return err_set(err, -ESRCH, "process %d (%s) has exited", (int)t->pid, t->name);
    if (stat->size_bytes == 0)
        return err_set(err, -EINVAL, "process %d (%s) is a kernel thread", (int)t->pid, t->name);
    return 0;
}

/* Refuses a process in which ebb's hooks cannot run or would do harm. */
static int check_state(const struct attach_target *t, const struct proc_stat *stat,
                       const char *status, struct err *err)
{
    char own[STATUS_MAX];
    uint64_t tracer = 0;
    if (status_number(status, "TracerPid", &tracer) && tracer)
        return err_set(err, -EBUSY,
                       "process %d (%s) is traced by process %d; detach that debugger first",
                       (int)t->pid, t->name, (int)tracer);
    if (stat->state == 'T' || stat->state == 't')
        return err_set(err, -EBUSY,
                       "process %d (%s) is stopped by a signal; continue it with kill -CONT %d",
                       (int)t->pid, t->name, (int)t->pid);
    if (is_other_namespace(t, "pid"))
        return err_set(err, -EINVAL,
                       "process %d (%s) is in another pid namespace; run ebb inside that container",
                       (int)t->pid, t->name);
    if (io_read_small(t->root->proc_fd, "self/status", own, sizeof own) > 0 &&
        filter_count(status) > filter_count(own))
        return err_set(err, -EPERM,
                       "process %d (%s) is in a seccomp sandbox, which may kill it if ebb's hooks "
                       "make a forbidden system call; start it with ebb run, or use ebb stack",
                       (int)t->pid, t->name);
    return 0;
}

static int check_environment(const struct attach_target *t, struct err *err)
{
    struct buf text = {0};
    size_t len = 0;
    int r = attach_target_file(t, "environ", ATTACH_ENVIRON_MAX, &text);
    if (r < 0)
        return 0; /* the memory can be read, so access is permitted */
    const char *found = proc_environ_find(buf_str(&text), text.len, "EBB_SOCKET", &len);
    AUTO_FREE char *path = found ? strndup(found, len) : NULL;
    if (path && access(path, F_OK) == 0)
        r = err_set(err, -EEXIST,
                    "process %d (%s) already runs under ebb run; see ebb heap %d, ebb watch --pid "
                    "%d",
                    (int)t->pid, t->name, (int)t->pid, (int)t->pid);
    buf_fini(&text);
    return r;
}

static int open_memory(struct attach_target *t, enum attach_access access, struct err *err)
{
    t->mem_fd =
        proc_open(t->root, t->pid, "mem", (access == ATTACH_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (t->mem_fd >= 0)
        return 0;
    int r = -errno;
    if (r == -ENOENT || r == -ESRCH)
        return attach_target_gone(t, err);
    return t->uid != geteuid() && geteuid() != 0 ? refuse_user(t, err)
                                                 : refuse_rights(t, access, r, err);
}

static int check_target(struct attach_target *t, enum attach_access access, struct err *err)
{
    struct proc_stat stat;
    struct proc_status ids;
    char status[STATUS_MAX];
    uint64_t uid = geteuid();
    int r = proc_read_stat(t->root, t->pid, &stat);
    ssize_t n = r < 0 ? r : proc_read(t->root, t->pid, "status", status, sizeof status);
    if (n < 0)
        return err_set(err, -ESRCH, "there is no process %d", (int)t->pid);
    text_fit(t->name, sizeof t->name, 32, stat.comm, stat.comm_len);
    t->start_ticks = stat.start_ticks;
    (void)status_number(status, "Uid", &uid);
    t->uid = (uid_t)uid;
    if (proc_status_parse(status, (size_t)n, &ids) == 0 && ids.has & STATUS_TGID &&
        ids.tgid != t->pid)
        return proc_refuse_thread(t->root, t->pid, ids.tgid, err);
    r = check_life(t, &stat, err);
    if (r == 0 && !(access == ATTACH_WRITE && optin_find(t, t->optin)))
        r = open_memory(t, access, err);
    if (r == 0 && !attach_target_lives(t)) /* the pid was reused before the memory was opened */
        r = attach_target_gone(t, err);
    if (r == 0 && access == ATTACH_WRITE)
        r = check_state(t, &stat, status, err);
    if (r == 0 && access == ATTACH_WRITE)
        r = check_environment(t, err);
    return r;
}

int attach_target_open(const struct proc_root *root, int32_t pid, enum attach_access access,
                       struct attach_target *ret, struct err *err)
{
    struct attach_target t = {.root = root, .pid = pid, .mem_fd = -1};
    int r = check_target(&t, access, err);
    if (r < 0) {
        attach_target_close(&t);
        return r;
    }
    *ret = t;
    return 0;
}

void attach_target_close(struct attach_target *t)
{
    if (t->mem_fd >= 0)
        close(t->mem_fd);
    t->mem_fd = -1;
}
