/* Reads the state of the job's machine at every tick, through fds that are kept open. */
#include "proc/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/number.h"
#include "proc/limit.h"
#include "proc/read.h"

struct machine {
    struct proc_root root; /* not owned */
    int32_t pid;
    int meminfo_fd, psi_fd;
    uint64_t mapped_bytes;
    struct limit_group v1, v2;
    bool found_known;
    struct limit_found found; /* the effective limit; FDS are its open files */
    /* files of the cgroup that has the limit; for an rlimit, only `usage` is open, and its file is
     * statm or status */
    struct limit_fds fds;
    int peak_fd;
};

static const char *const kind_names[] = {
    [LIMIT_HOST] = "host memory",        [LIMIT_CGROUP_V1] = "cgroup v1",
    [LIMIT_CGROUP_V2] = "cgroup v2",     [LIMIT_RLIMIT_AS] = "RLIMIT_AS",
    [LIMIT_RLIMIT_DATA] = "RLIMIT_DATA",
};

const char *limit_kind_name(enum limit_kind kind)
{
    size_t i = (size_t)kind;
    return i < sizeof kind_names / sizeof *kind_names ? kind_names[i] : "unknown";
}

static void close_limit(struct machine *m)
{
    limit_fds_close(&m->fds);
    close_fd(&m->peak_fd);
}

static void open_limit(struct machine *m)
{
    enum limit_kind kind = m->found.limit.kind;
    const struct limit_files *files = limit_files(kind);
    if (files) {
        m->fds = limit_fds_open(&m->root, kind, m->found.dir);
        m->peak_fd = cgroup_open(&m->root, m->found.dir, files->peak, O_RDONLY);
    } else if (kind != LIMIT_HOST) {
        m->fds.usage = proc_open(&m->root, m->pid, limit_rlimit_file(kind), O_RDONLY);
    }
}

int machine_new(const struct proc_root *root, int32_t pid, struct machine **ret)
{
    struct machine *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->root = *root;
    m->pid = pid;
    m->fds = LIMIT_NO_FDS;
    m->peak_fd = -1;
    m->meminfo_fd = openat(root->proc_fd, "meminfo", O_RDONLY | O_CLOEXEC);
    m->psi_fd = openat(root->proc_fd, "pressure/memory", O_RDONLY | O_CLOEXEC);
    (void)machine_limit(m, NULL);
    *ret = m;
    return 0;
}

void machine_free(struct machine *m)
{
    if (!m)
        return;
    close_limit(m);
    close_fd(&m->meminfo_fd);
    close_fd(&m->psi_fd);
    free(m);
}

static int read_meminfo(const struct machine *m, struct proc_meminfo *ret)
{
    char text[4096];
    ssize_t len = m->meminfo_fd >= 0 ? io_pread_small(m->meminfo_fd, text, sizeof text) : -ENOENT;
    return len < 0 ? (int)len : proc_meminfo_parse(text, (size_t)len, ret);
}

int machine_limit(struct machine *m, struct machine_limit *ret)
{
    struct proc_meminfo mem;
    struct limit_found found;
    bool mem_known = read_meminfo(m, &mem) == 0;
    limit_group_find(&m->root, m->pid, false, &m->v1);
    limit_group_find(&m->root, m->pid, true, &m->v2);
    int r = limit_find(&m->root, m->pid, mem_known ? &mem : NULL, &m->v1, &m->v2, &found);
    if (r < 0)
        return r;
    bool moved = !m->found_known || found.limit.kind != m->found.limit.kind ||
                 strcmp(found.dir, m->found.dir) != 0;
    m->found = found;
    m->found_known = true;
    /* After a cgroup has been removed and created again, reads of the old fd always fail.
     * machine_tick then closes the fd, and this function opens the file again. */
    if (moved || m->fds.usage < 0) {
        close_limit(m);
        open_limit(m);
    }
    if (ret)
        *ret = found.limit;
    return 0;
}

/* Reads the memory charged against the limit, from files that are kept open. */
static bool read_used(struct machine *m, uint64_t *ret)
{
    char text[4096];
    enum limit_kind kind = m->found.limit.kind;
    if (m->fds.usage < 0)
        return false;
    if (limit_files(kind)) {
        uint64_t usage;
        int r = limit_used_read(kind, &m->fds, &usage, ret);
        if (r < 0 && r != -EBADMSG)
            close_limit(m);
        return r == 0;
    }
    ssize_t len = io_pread_small(m->fds.usage, text, sizeof text);
    if (len < 0) {
        close_limit(m);
        return false;
    }
    return limit_rlimit_used_parse(&m->root, kind, text, (size_t)len, ret) == 0;
}

static void tick_limit(struct machine *m, struct sample *s, const struct proc_meminfo *mem)
{
    uint64_t v;
    bool is_host = m->found.limit.kind == LIMIT_HOST;
    if (!m->found_known)
        return;
    sample_put(s, MACHINE_LIMIT, is_host && mem ? mem->total_bytes : m->found.limit.limit_bytes);
    if (is_host) {
        if (mem)
            sample_put(s, MACHINE_LIMIT_USED, u64_minus(mem->total_bytes, mem->available_bytes));
        return;
    }
    if (read_used(m, &v))
        sample_put(s, MACHINE_LIMIT_USED, v);
    else if (sample_has(s, MACHINE_LIMIT_USED))
        s->stale |= 1u << MACHINE_LIMIT_USED;
    if (limit_number_read(m->peak_fd, &v) == 0)
        sample_put(s, MACHINE_LIMIT_PEAK, v);
}

static void tick_psi(struct machine *m, struct sample *s)
{
    char text[256];
    struct proc_psi psi;
    ssize_t len = m->psi_fd >= 0 ? io_pread_small(m->psi_fd, text, sizeof text) : -ENOENT;
    /* the kernel was booted with psi=0, so pressure will never be available */
    if (len == -EOPNOTSUPP)
        close_fd(&m->psi_fd);
    if (len < 0 || proc_psi_parse(text, (size_t)len, &psi) < 0)
        return;
    sample_put(s, MACHINE_PSI_SOME, psi.some_avg10_permyriad);
    if (psi.has_full)
        sample_put(s, MACHINE_PSI_FULL, psi.full_avg10_permyriad);
}

int machine_tick(struct machine *m, struct sample *s)
{
    const uint32_t ours = (1u << (MACHINE_LIMIT_PEAK + 1)) - 1;
    struct proc_meminfo mem;
    s->read &= ~ours;
    int r = read_meminfo(m, &mem);
    if (r == 0) {
        sample_put(s, MACHINE_TOTAL, mem.total_bytes);
        sample_put(s, MACHINE_AVAILABLE, mem.available_bytes);
        sample_put(s, MACHINE_SWAP_TOTAL, mem.swap_total_bytes);
        sample_put(s, MACHINE_SWAP_FREE, mem.swap_free_bytes);
        sample_put(s, MACHINE_ANON_PAGES, mem.anon_bytes);
        m->mapped_bytes = mem.anon_bytes + mem.mapped_bytes;
        sample_put(s, MACHINE_SHMEM, mem.shmem_bytes);
    }
    tick_psi(m, s);
    tick_limit(m, s, r == 0 ? &mem : NULL);
    return r;
}

const char *machine_limit_dir(const struct machine *m)
{
    return m->found_known && limit_files(m->found.limit.kind) ? m->found.dir : "";
}

uint64_t machine_mapped_bytes(const struct machine *m)
{
    return m->mapped_bytes;
}
