/* Checks of `ebb doctor` that concern the kernel and the memory of the machine. Features of the
 * kernel are tested on our own process. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "guard/reflex.h"
#include "proc/machine.h"

/* ---- features of the kernel ---- */

void doctor_check_kernel(struct doctor *d)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    const char *advice = NULL;
    enum doctor_level level = DOCTOR_OK;
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) /* NOLINT */
        return;
    if (major < 5 || (major == 5 && minor < 4)) {
        level = DOCTOR_PROBLEM;
        advice = "ebb supports Linux 5.4 and newer: use a newer kernel.";
    } else if (major < 6 || (major == 6 && minor < 4)) {
        level = DOCTOR_NOTE;
        advice = "On Linux before 6.4, even a page fault of the job must wait while ebb reads the "
                 "job's PSS: do not use --pss.";
    }
    doctor_add(d, level, "kernel", json_pack("{s:s}", "release", name.release), advice, "%s on %s",
               name.release, name.machine);
}

void doctor_check_children(struct doctor *d)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "self/task/%d/children", (int)gettid());
    if (io_read_small(d->root.proc_fd, path, text, sizeof text) >= 0)
        doctor_add(d, DOCTOR_OK, "process tree", NULL, NULL, "/proc/PID/task/*/children exists");
    else
        doctor_add(d, DOCTOR_NOTE, "process tree", NULL,
                   "ebb finds the processes of a job by scanning all of /proc, which takes "
                   "longer on a machine with many processes: use a kernel with "
                   "CONFIG_PROC_CHILDREN.",
                   "/proc/PID/task/*/children does not exist");
}

/* Checks the visibility of processes: with hidepid, processes of other users are not visible at
 * all. */
void doctor_check_processes(struct doctor *d)
{
    char text[16];
    ssize_t r = io_read_small(d->root.proc_fd, "1/statm", text, sizeof text);
    if (r >= 0)
        doctor_add(d, DOCTOR_OK, "other processes", NULL, NULL,
                   "processes of other users are visible in /proc");
    else
        doctor_add(
            d, DOCTOR_NOTE, "other processes", NULL,
            "`ebb watch --system` shows only your own processes: run it as root, or "
            "`mount -o remount,hidepid=0 /proc` as root.",
            "processes of other users are not visible in /proc, which is mounted with hidepid");
}

/* Reads the pagemap entry of a page of our own that is not shared. Returns 0 or -errno. */
static int read_own_page(uint64_t *ret)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    AUTO_CLOSE int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    *(volatile char *)page = 1;
    off_t offset = (off_t)((uintptr_t)page / page_bytes * sizeof *ret);
    ssize_t n = pread(fd, ret, sizeof *ret, offset);
    int r = n == (ssize_t)sizeof *ret ? 0 : n < 0 ? -errno : -EIO;
    munmap(page, page_bytes);
    return r;
}

void doctor_check_pagemap(struct doctor *d)
{
    static const char advice[] = "Unique memory is not available, so ebb prints a lower and an "
                                 "upper bound of a job's memory; only another kernel or "
                                 "container runtime changes that.";
    uint64_t entry = 0;
    int r = read_own_page(&entry);
    if (r < 0)
        doctor_add(d, DOCTOR_NOTE, "unique memory", NULL, advice,
                   "/proc/PID/pagemap cannot be read: %s", strerror(-r));
    else if (!(entry >> 63 & 1) || !(entry >> 56 & 1))
        doctor_add(d, DOCTOR_NOTE, "unique memory", NULL, advice,
                   "/proc/PID/pagemap does not show which pages are exclusive");
    else
        doctor_add(d, DOCTOR_OK, "unique memory", NULL, NULL, "can be read from /proc/PID/pagemap");
}

void doctor_check_pressure(struct doctor *d)
{
    char text[256];
    ssize_t r = io_read_small(d->root.proc_fd, "pressure/memory", text, sizeof text);
    if (r < 0)
        doctor_add(d, DOCTOR_NOTE, "memory pressure", NULL,
                   "ebb cannot see how long processes wait for memory: boot with psi=1 on the "
                   "kernel's command line, or use a kernel with CONFIG_PSI.",
                   "/proc/pressure/memory cannot be read: %s", strerror((int)-r));
    else
        doctor_add(d, DOCTOR_OK, "memory pressure", NULL, NULL, "PSI can be read");
}

enum { CAP_SYS_PTRACE_BIT = 19 };

static bool has_ptrace_capability(void)
{
    char text[4096];
    if (io_read_small(AT_FDCWD, "/proc/self/status", text, sizeof text) < 0)
        return false;
    const char *line = strstr(text, "\nCapEff:");
    return line && (strtoull(line + strlen("\nCapEff:"), NULL, 16) >> CAP_SYS_PTRACE_BIT & 1);
}

void doctor_check_ptrace(struct doctor *d)
{
    char text[16];
    ssize_t n = io_read_small(d->root.proc_fd, "sys/kernel/yama/ptrace_scope", text, sizeof text);
    int scope = n > 0 && text[0] >= '0' && text[0] <= '3' ? text[0] - '0' : -1;
    json_t *data = scope < 0 ? NULL : json_pack("{s:i}", "ptrace_scope", scope);
    if (scope == 3)
        doctor_add(d, DOCTOR_NOTE, "ptrace", data,
                   "`ebb attach` and `ebb stack` do not work until the next boot; other commands "
                   "only read /proc and are not affected.",
                   "no user may trace processes: kernel.yama.ptrace_scope is 3");
    else if (has_ptrace_capability())
        doctor_add(d, DOCTOR_OK, "ptrace", data, NULL, "allowed by CAP_SYS_PTRACE");
    else if (scope <= 0)
        doctor_add(d, DOCTOR_OK, "ptrace", data, NULL,
                   "tracing is allowed for processes of the same user");
    else
        doctor_add(d, DOCTOR_NOTE, "ptrace", data,
                   "Jobs that `ebb run` starts are not affected; to trace other processes, run "
                   "`sysctl -w kernel.yama.ptrace_scope=0` as root.",
                   "tracing is restricted: kernel.yama.ptrace_scope is %d", scope);
}

void doctor_check_pidfd(struct doctor *d)
{
    static const char advice[] =
        "Without pidfds, ebb could signal the wrong process: use Linux 5.3 or newer, or a sandbox "
        "that allows these calls.";
    AUTO_CLOSE int fd = io_pidfd_open(getpid());
    if (fd < 0)
        doctor_add(d, DOCTOR_PROBLEM, "pidfd", NULL, advice, "pidfd_open fails: %s", strerror(-fd));
    else if (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) < 0)
        doctor_add(d, DOCTOR_PROBLEM, "pidfd", NULL, advice, "pidfd_send_signal fails: %s",
                   strerror(errno));
    else
        doctor_add(d, DOCTOR_OK, "pidfd", NULL, NULL, "pidfds can be opened and signalled");
}

/* Tests process_mrelease. The kernel refuses it with EINVAL for a process that is not being killed.
 * This error shows that the call exists. */
void doctor_check_mrelease(struct doctor *d)
{
    AUTO_CLOSE int fd = io_pidfd_open(getpid());
    if (fd < 0)
        return; /* doctor_check_pidfd reports this */
    int error = syscall(SYS_process_mrelease, fd, 0) < 0 ? errno : 0;
    if (error == 0 || error == EINVAL)
        doctor_add(d, DOCTOR_OK, "process_mrelease", NULL, NULL, "works");
    else
        doctor_add(d, DOCTOR_NOTE, "process_mrelease", NULL,
                   "The memory of a killed job takes twice as long to be released: use Linux 5.15 "
                   "or newer.",
                   "fails: %s", strerror(error));
}

void doctor_check_subreaper(struct doctor *d)
{
    int was = 0;
    if (prctl(PR_GET_CHILD_SUBREAPER, &was) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        doctor_add(d, DOCTOR_PROBLEM, "subreaper", NULL,
                   "ebb loses track of daemons that a job leaves behind: use Linux 3.4 or newer, "
                   "or a sandbox "
                   "that allows prctl.",
                   "PR_SET_CHILD_SUBREAPER fails: %s", strerror(errno));
        return;
    }
    prctl(PR_SET_CHILD_SUBREAPER, was);
    doctor_add(d, DOCTOR_OK, "subreaper", NULL, NULL,
               "orphaned processes of a job become "
               "children of ebb");
}

void doctor_check_files(struct doctor *d)
{
    enum { ENOUGH = 4096 }; /* enough to watch a thousand processes with a few files each */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    bool is_low = limit.rlim_max < ENOUGH;
    json_t *data =
        json_pack("{s:o, s:o}", "soft", json_u64(limit.rlim_cur), "hard", json_u64(limit.rlim_max));
    doctor_add(
        d, is_low ? DOCTOR_NOTE : DOCTOR_OK, "open files", data,
        is_low
            ? "ebb keeps a few files open per process; above this limit, it has to reopen them for "
              "every sample: raise the limit with `ulimit -Hn 4096` as root, or LimitNOFILE=4096."
            : NULL,
        "%" PRIu64 "; can be raised to %" PRIu64, (uint64_t)limit.rlim_cur,
        (uint64_t)limit.rlim_max);
}

/* Tests the guard's kill thread (reflex) by starting it. Only the thread itself can determine how
 * much memory it must lock. */
void doctor_check_locked(struct doctor *d)
{
    struct reflex *reflex = NULL;
    struct rlimit limit;
    struct err err = {""};
    char most[TEXT_SIZE_MAX] = "unlimited";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return;
    bool is_endless = limit.rlim_cur == RLIM_INFINITY;
    if (!is_endless)
        text_size(most, limit.rlim_cur);
    if (reflex_new(-1, false, &reflex, &err) < 0) {
        doctor_add(d, DOCTOR_PROBLEM, "locked memory", NULL,
                   "The guard cannot start, so jobs run unprotected: check whether memory or "
                   "threads are exhausted.",
                   "%s", err.text);
        return;
    }
    bool is_locked = reflex_is_locked(reflex);
    reflex_free(reflex);
    json_t *data = json_pack("{s:b, s:o}", "locked", is_locked, "limit_bytes",
                             is_endless ? json_null() : json_u64(limit.rlim_cur));
    doctor_add(d, is_locked ? DOCTOR_OK : DOCTOR_NOTE, "locked memory", data,
               is_locked
                   ? NULL
                   : "The guard can still kill a job, but under memory pressure it may first have "
                     "to wait until its own pages are read back from disk: raise the limit with "
                     "`ulimit -l 1024`, LimitMEMLOCK=1M, or `docker run --ulimit memlock=1048576`.",
               is_locked ? "the guard's kill thread is locked in memory (RLIMIT_MEMLOCK: %s)"
                         : "the guard's kill thread cannot be locked in memory (RLIMIT_MEMLOCK: "
                           "%s)",
               most);
}

/* ---- limits and memory settings ---- */

static void add_limit(struct doctor *d, const struct machine_limit *limit)
{
    char size[TEXT_SIZE_MAX], left[TEXT_SIZE_MAX];
    json_t *data =
        json_pack("{s:s, s:o, s:o, s:o, s:b}", "kind", limit_kind_name(limit->kind), "where",
                  json_text0(limit->where), "limit_bytes", json_u64(limit->limit_bytes),
                  "headroom_bytes", json_u64(limit->headroom_bytes), "soft", limit->soft);
    bool has_where = limit->kind != LIMIT_HOST;
    bool is_low = limit->headroom_bytes < limit->limit_bytes / 10;
    doctor_add(
        d, is_low ? DOCTOR_NOTE : DOCTOR_OK, "effective limit", data,
        is_low ? "Less than a tenth of the memory is left: stop other processes before you start a "
                 "job, or raise the limit."
               : NULL,
        "%s (%s%s%s), of which %s is left", text_size(size, limit->limit_bytes),
        limit_kind_name(limit->kind), has_where ? " " : "", has_where ? limit->where : "",
        text_size(left, limit->headroom_bytes));
}

void doctor_check_limit(struct doctor *d)
{
    struct machine *machine = NULL;
    struct machine_limit limit;
    int r = machine_new(&d->root, 0, &machine);
    if (r == 0)
        r = machine_limit(machine, &limit);
    if (r == 0)
        add_limit(d, &limit);
    else
        doctor_add(d, DOCTOR_PROBLEM, "effective limit", NULL,
                   "ebb cannot predict when a job will be killed: use `ebb run --limit SIZE`.",
                   "unknown: %s", strerror(-r));
    machine_free(machine);
}

static void add_swap(struct doctor *d, const struct proc_meminfo *info)
{
    char size[TEXT_SIZE_MAX], used_text[TEXT_SIZE_MAX];
    uint64_t used = info->swap_total_bytes - info->swap_free_bytes;
    json_t *data = json_pack("{s:o, s:o}", "total_bytes", json_u64(info->swap_total_bytes),
                             "used_bytes", json_u64(used));
    bool is_heavy = used > info->swap_total_bytes / 4;
    if (info->swap_total_bytes == 0)
        doctor_add(d, DOCTOR_OK, "swap", data, NULL,
                   "no swap: when memory runs out, the kernel kills processes at once");
    else
        doctor_add(d, is_heavy ? DOCTOR_NOTE : DOCTOR_OK, "swap", data,
                   is_heavy ? "Swapped-out memory is not resident, which hides growth from "
                              "other tools; ebb counts swap as memory, but the job will be slow."
                            : NULL,
                   "%s, of which %s is used", text_size(size, info->swap_total_bytes),
                   text_size(used_text, used));
}

void doctor_check_memory(struct doctor *d)
{
    char text[8192], total[TEXT_SIZE_MAX], available[TEXT_SIZE_MAX];
    struct proc_meminfo info;
    ssize_t n = io_read_small(d->root.proc_fd, "meminfo", text, sizeof text);
    if (n < 0 || proc_meminfo_parse(text, (size_t)n, &info) < 0) {
        doctor_add(d, DOCTOR_PROBLEM, "memory", NULL,
                   "ebb cannot find out how much memory this machine has left: mount a complete "
                   "/proc.",
                   "/proc/meminfo cannot be read");
        return;
    }
    json_t *data = json_pack("{s:o, s:o}", "total_bytes", json_u64(info.total_bytes),
                             "available_bytes", json_u64(info.available_bytes));
    doctor_add(d, DOCTOR_OK, "memory", data, NULL, "%s, of which %s is available",
               text_size(total, info.total_bytes), text_size(available, info.available_bytes));
    add_swap(d, &info);
}

void doctor_check_address_space(struct doctor *d)
{
    struct rlimit as, data_limit;
    if (getrlimit(RLIMIT_AS, &as) < 0 || getrlimit(RLIMIT_DATA, &data_limit) < 0)
        return;
    bool is_free = as.rlim_cur == RLIM_INFINITY && data_limit.rlim_cur == RLIM_INFINITY;
    uint64_t least = as.rlim_cur < data_limit.rlim_cur ? as.rlim_cur : data_limit.rlim_cur;
    char size[TEXT_SIZE_MAX];
    if (is_free)
        doctor_add(d, DOCTOR_OK, "address space", NULL, NULL, "unlimited");
    else
        doctor_add(d, DOCTOR_NOTE, "address space",
                   json_pack("{s:o}", "limit_bytes", json_u64(least)),
                   "The limit applies to reserved address space, not to memory in use, and CUDA "
                   "and torch reserve a lot: run `ulimit -v unlimited; ulimit -d unlimited`.",
                   "limited to %s of address space by ulimit", text_size(size, least));
}

void doctor_check_overcommit(struct doctor *d)
{
    char text[16];
    if (io_read_small(d->root.proc_fd, "sys/vm/overcommit_memory", text, sizeof text) < 1)
        return;
    bool is_strict = text[0] == '2';
    doctor_add(d, is_strict ? DOCTOR_NOTE : DOCTOR_OK, "overcommit",
               json_pack("{s:i}", "mode", text[0] - '0'),
               is_strict
                   ? "Allocations fail before memory runs out, because the kernel's limit also "
                     "counts reserved memory that is not in use: run "
                     "`sysctl -w vm.overcommit_memory=0` as root."
                   : NULL,
               "vm.overcommit_memory is %c: %s", text[0],
               is_strict        ? "the total of all allocations is limited"
               : text[0] == '1' ? "every allocation succeeds"
                                : "allocations that are clearly too large fail");
}

void doctor_check_huge_pages(struct doctor *d)
{
    char text[128], mode[32];
    ssize_t n =
        io_read_small(AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
    const char *open_bracket = n > 0 ? strchr(text, '[') : NULL;
    if (!open_bracket) {
        doctor_add(d, DOCTOR_OK, "huge pages", NULL, NULL,
                   "this kernel has no transparent huge pages");
        return;
    }
    snprintf(mode, sizeof mode, "%.*s", (int)strcspn(open_bracket + 1, "]"), open_bracket + 1);
    bool is_always = strcmp(mode, "always") == 0;
    doctor_add(d, is_always ? DOCTOR_NOTE : DOCTOR_OK, "huge pages",
               json_pack("{s:o}", "mode", json_text0(mode)),
               is_always ? "Memory grows in steps of 2 MiB, and a huge page that is partly freed "
                           "stays resident; to compare, run `echo madvise "
                           ">/sys/kernel/mm/transparent_hugepage/enabled` as root."
                         : NULL,
               "transparent huge pages: %s", mode);
}

void doctor_check_shm(struct doctor *d)
{
    struct statvfs fs;
    char size[TEXT_SIZE_MAX], used_text[TEXT_SIZE_MAX];
    if (statvfs("/dev/shm", &fs) < 0) {
        doctor_add(d, DOCTOR_PROBLEM, "/dev/shm", NULL,
                   "Data loaders with workers require /dev/shm: run `mount -t tmpfs tmpfs "
                   "/dev/shm` as root.",
                   "missing: %s", strerror(errno));
        return;
    }
    uint64_t total = (uint64_t)fs.f_blocks * fs.f_frsize;
    uint64_t used = total - (uint64_t)fs.f_bavail * fs.f_frsize;
    bool is_small = total<UINT64_C(1) << 30, is_full = used> total / 5 * 4;
    doctor_add(
        d, is_small || is_full ? DOCTOR_NOTE : DOCTOR_OK, "/dev/shm",
        json_pack("{s:o, s:o}", "total_bytes", json_u64(total), "used_bytes", json_u64(used)),
        is_full    ? "Files that dead jobs left in /dev/shm occupy memory until they are removed: "
                     "list them with `ls -l /dev/shm`."
        : is_small ? "Data-loader workers pass batches through /dev/shm and crash when it is full. "
                     "To enlarge it, use `docker run --shm-size=8g`, or run "
                     "`mount -o remount,size=8G /dev/shm` as root."
                   : NULL,
        "%s, of which %s is used", text_size(size, total), text_size(used_text, used));
}
