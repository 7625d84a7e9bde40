/* `ebb doctor`: checks the memory limit of a job, and the machine's memory settings. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "proc/machine.h"

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
        "%s by %s%s%s, of which %s is left", text_size(size, limit->limit_bytes),
        limit_kind_name(limit->kind), has_where ? " " : "", has_where ? limit->where : "",
        text_size(left, limit->headroom_bytes));
}

void doctor_look_limit(struct doctor *d)
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

void doctor_look_memory(struct doctor *d)
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

void doctor_look_address_space(struct doctor *d)
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

void doctor_look_overcommit(struct doctor *d)
{
    char text[16];
    if (io_read_small(d->root.proc_fd, "sys/vm/overcommit_memory", text, sizeof text) < 1)
        return;
    bool is_strict = text[0] == '2';
    doctor_add(d, is_strict ? DOCTOR_NOTE : DOCTOR_OK, "overcommit",
               json_pack("{s:i}", "mode", text[0] - '0'),
               is_strict ? "Allocations fail before memory runs out, because memory that is "
                           "only reserved counts: run `sysctl -w vm.overcommit_memory=0` as root."
                         : NULL,
               "vm.overcommit_memory is %c: %s", text[0],
               is_strict        ? "strict: the total of all allocations is limited"
               : text[0] == '1' ? "every allocation succeeds"
                                : "allocations that are clearly too large fail");
}

void doctor_look_huge_pages(struct doctor *d)
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

void doctor_look_shm(struct doctor *d)
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
        is_full ? "Files that dead jobs left in /dev/shm take memory until they are removed: list "
                  "them with `ls -l /dev/shm`."
        : is_small ? "Data loaders with workers pass batches through /dev/shm and crash when it is "
                     "full: `docker run --shm-size=8g`, or `mount -o remount,size=8G /dev/shm` "
                     "as root."
                   : NULL,
        "%s, of which %s is used", text_size(size, total), text_size(used_text, used));
}
