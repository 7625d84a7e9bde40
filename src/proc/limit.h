/* Finds all limits that apply to a process, and the limit among them that leaves the least
 * headroom. Used by machine.c, and by guard/, which creates cgroups below the folder that
 * limit_group_find returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/machine.h"

enum { LIMIT_PATH_MAX = 4096 };

/* A cgroup folder, as a path below proc_root.cgroup_fd. The first BASE_LEN bytes of the path are
 * the mount point. */
struct limit_group {
    bool known;
    size_t base_len;
    char dir[LIMIT_PATH_MAX];
};

struct limit_found {
    struct machine_limit limit;
    char dir[LIMIT_PATH_MAX]; /* folder of the cgroup that has the limit */
};

/* Keys of memory.stat that cover the whole subtree. The first five are the kernel's page lists. The
 * two file lists contain file cache and lazily freed pages (MADV_FREE). The two anonymous lists
 * contain tmpfs pages and anonymous pages. The unevictable list contains locked pages of files or
 * of anonymous memory. */
enum limit_stat {
    LIMIT_INACTIVE_FILE,
    LIMIT_ACTIVE_FILE,
    LIMIT_INACTIVE_ANON,
    LIMIT_ACTIVE_ANON,
    LIMIT_UNEVICTABLE,
    LIMIT_ANON, /* mapped anonymous pages */
    LIMIT_FILE, /* file cache, including tmpfs */
    LIMIT_SLAB_RECLAIMABLE,
    LIMIT_STATS
};

struct limit_stats {
    uint64_t v[LIMIT_STATS];
    uint32_t known; /* bit mask of the keys found in memory.stat */
};

/* Returns the memory that the kernel reclaims before it kills a process: file cache, lazily freed
 * pages, dentries and inodes, and the unmapped parts of huge pages. An unmapped part stays charged
 * until the kernel needs memory and splits the huge page. Until then the part is in one of the
 * kernel's page lists, but is neither mapped nor part of a file. The function is always inlined,
 * because the reflex thread must not call functions outside its locked section. */
__attribute__((always_inline)) static inline uint64_t
limit_reclaimable(const struct limit_stats *stats)
{
    const uint64_t *v = stats->v;
    const uint32_t pages = (1u << (LIMIT_FILE + 1)) - 1;
    uint64_t sum = v[LIMIT_INACTIVE_FILE] + v[LIMIT_ACTIVE_FILE];
    uint64_t listed = sum + v[LIMIT_INACTIVE_ANON] + v[LIMIT_ACTIVE_ANON] + v[LIMIT_UNEVICTABLE];
    uint64_t owned = v[LIMIT_ANON] + v[LIMIT_FILE];
    if ((stats->known & pages) == pages && listed > owned)
        sum += listed - owned;
    return sum + v[LIMIT_SLAB_RECLAIMABLE];
}

/* File names in a cgroup of v1 or v2; NULL for files that do not exist in that version. */
struct limit_files {
    const char *usage, *stat, *peak;
    /* v1 includes reclaimable kernel memory in the usage, but does not report how much of the
     * kernel memory is reclaimable. Therefore all kernel memory is subtracted; this file contains
     * its size. */
    const char *kernel;
    const char *keys[LIMIT_STATS];
};
const struct limit_files *limit_files(enum limit_kind kind);

/* Open files from which the unreclaimable memory of a cgroup is read; negative if missing. */
struct limit_fds {
    int usage, stat, kernel;
};
#define LIMIT_NO_FDS ((struct limit_fds){-1, -1, -1})
/* Opens the files in DIR. The fds of missing files are negative. */
struct limit_fds limit_fds_open(const struct proc_root *root, enum limit_kind kind,
                                const char *dir);
void limit_fds_close(struct limit_fds *fds);

/* Finds the cgroup folder of PID (0: this process). If the process has exited, leaves *G
 * unchanged. */
void limit_group_find(const struct proc_root *root, int32_t pid, bool v2, struct limit_group *g);
/* Reads the keys listed in FILES from the text of memory.stat. Missing keys are set to 0, and their
 * bits in `known` are clear. */
void limit_stats_parse(const struct limit_files *files, const char *s, size_t len,
                       struct limit_stats *ret);
/* Reads the number in a cgroup file. Returns 0 or -errno (-EBADMSG for "max" and other text that is
 * not a number). */
int limit_number_read(int fd, uint64_t *ret);
/* Reads the usage of a cgroup, both with and without reclaimable memory. The limit is compared with
 * the usage without reclaimable memory. Values other than the usage are treated as 0 if their files
 * are missing. Returns 0, or -errno if the usage cannot be read (-EBADMSG if its file does not
 * contain a number). */
int limit_used_read(enum limit_kind kind, const struct limit_fds *fds, uint64_t *ret_usage,
                    uint64_t *ret);
/* An rlimit restricts a memory size. limit_rlimit_file returns the file of /proc/PID that contains
 * this size, and limit_rlimit_used_parse extracts it. */
static inline const char *limit_rlimit_file(enum limit_kind kind)
{
    return kind == LIMIT_RLIMIT_AS ? "statm" : "status";
}
int limit_rlimit_used_parse(const struct proc_root *root, enum limit_kind kind, const char *s,
                            size_t len, uint64_t *ret);
/* Finds the limit with the least headroom. MEM may be NULL. Returns -ENODATA if no limit
 * applies. */
int limit_find(const struct proc_root *root, int32_t pid, const struct proc_meminfo *mem,
               const struct limit_group *v1, const struct limit_group *v2, struct limit_found *ret);
