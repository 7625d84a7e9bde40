/* Every limit above a process's head, and the one it will hit first. For machine.c, and for
 * guard/, which makes cgroups where limit_group_find says that we are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/machine.h"

enum { LIMIT_PATH_MAX = 4096 };

/* A folder of cgroupfs below proc_root.cgroup_fd, whose first BASE_LEN bytes are the mount. */
struct limit_group {
    bool known;
    size_t base_len;
    char dir[LIMIT_PATH_MAX];
};

struct limit_found {
    struct machine_limit limit;
    char dir[LIMIT_PATH_MAX]; /* of a cgroup limit: where its files are */
};

/* Keys of memory.stat that count the whole subtree. The first five are the kernel's lists of pages:
 * file cache and lazily freed pages (MADV_FREE) are on the two of files, tmpfs and anonymous pages
 * on the two of anonymous memory, locked pages of either kind on the last. */
enum limit_stat {
    LIMIT_INACTIVE_FILE,
    LIMIT_ACTIVE_FILE,
    LIMIT_INACTIVE_ANON,
    LIMIT_ACTIVE_ANON,
    LIMIT_UNEVICTABLE,
    LIMIT_ANON, /* mapped anonymous pages */
    LIMIT_FILE, /* file cache, tmpfs included */
    LIMIT_SLAB_RECLAIMABLE,
    LIMIT_STATS
};

struct limit_stats {
    uint64_t v[LIMIT_STATS];
    uint32_t known; /* bits of the keys that memory.stat has */
};

/* Memory that the kernel takes back before it kills: file cache, lazily freed pages, dentries and
 * inodes, and the unmapped parts of huge pages. Those stay charged until the kernel needs memory
 * and splits the huge page: they are on its lists, but neither mapped nor part of a file. In a
 * header, and always inlined, as the reflex may call nothing outside its locked section. */
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

/* Names the files of one kind of cgroup; NULL for what is none. */
struct limit_files {
    const char *usage, *stat, *peak;
    /* v1 counts reclaimable kernel memory in usage and has no key for it: all kernel memory, which
     * this file has, is left out there. */
    const char *kernel;
    const char *keys[LIMIT_STATS];
};
const struct limit_files *limit_files(enum limit_kind kind);

/* The kept files from which the memory of a cgroup that cannot be reclaimed is read; below 0: none.
 */
struct limit_fds {
    int usage, stat, kernel;
};
#define LIMIT_NO_FDS ((struct limit_fds){-1, -1, -1})
/* Opens those of the folder DIR; what does not exist is below 0. */
struct limit_fds limit_fds_open(const struct proc_root *root, enum limit_kind kind,
                                const char *dir);
void limit_fds_close(struct limit_fds *fds);

/* Finds PID's folder (0: our own) in the hierarchy. Leaves *G as it is when the process is gone,
 * so that its last cgroup goes on being judged. */
void limit_group_find(const struct proc_root *root, int32_t pid, bool v2, struct limit_group *g);
/* The keys of FILES in the text of memory.stat; absent ones are 0 and not known. */
void limit_stats_parse(const struct limit_files *files, const char *s, size_t len,
                       struct limit_stats *ret);
/* Usage, and usage less reclaimable memory: what the limit must hold. 0, or -errno of the usage
 * (-EBADMSG: not a number); what the other files do not say is not subtracted. */
int limit_used_read(enum limit_kind kind, const struct limit_fds *fds, uint64_t *ret_usage,
                    uint64_t *ret);
/* What counts against an rlimit: the file of /proc/PID that has it, and its value in that. */
static inline const char *limit_rlimit_file(enum limit_kind kind)
{
    return kind == LIMIT_RLIMIT_AS ? "statm" : "status";
}
int limit_rlimit_used_parse(const struct proc_root *root, enum limit_kind kind, const char *s,
                            size_t len, uint64_t *ret);
/* The limit with the least head-room. MEM may be NULL. -ENODATA: there is none at all. */
int limit_find(const struct proc_root *root, int32_t pid, const struct proc_meminfo *mem,
               const struct limit_group *v1, const struct limit_group *v2, struct limit_found *ret);
