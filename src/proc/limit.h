/* Every limit above a process's head, and the one it will hit first. For machine.c, and for
 * guard/, which makes cgroups where limit_group_find says that we are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/machine.h"

/* /proc/PID/cgroup: the path in the v2 hierarchy ("0::/path"), or in the v1 hierarchy that has
 * the memory controller ("4:memory:/path"). 0, -ENOENT, -ENAMETOOLONG. */
int limit_cgroup_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* /proc/self/mountinfo: which folder of the hierarchy is mounted below /sys/fs/cgroup: "/", or in
 * a container without a cgroup namespace the container's own. 0, -ENOENT, -ENAMETOOLONG. */
int limit_mount_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* /proc/PID/limits: the soft limit called NAME. 0, -ENOENT, -EBADMSG. */
int limit_rlimit_parse(const char *s, size_t len, const char *name, bool *ret_unlimited,
                       uint64_t *ret);
/* /proc/PID/status: VmData, which is what RLIMIT_DATA counts. 0, -ENOENT, -EBADMSG. */
int limit_vmdata_parse(const char *s, size_t len, uint64_t *ret_bytes);

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

/* Names the files of one kind of cgroup; NULL for what is none. */
struct limit_files {
    const char *usage, *stat, *peak;
    const char *inactive_file, *active_file; /* keys in stat that count the whole subtree */
};
const struct limit_files *limit_files(enum limit_kind kind);
/* Opens NAME in the folder DIR below root's cgroup_fd, for reading; -1 with errno. */
int limit_open(const struct proc_root *root, const char *dir, const char *name);

/* Finds PID's folder (0: our own) in the hierarchy. Leaves *G as it is when the process is gone,
 * so that its last cgroup goes on being judged. */
void limit_group_find(const struct proc_root *root, int32_t pid, bool v2, struct limit_group *g);
/* Usage less file cache, from the texts of both files. False where USAGE is no number; without
 * a readable stat nothing is taken off. */
bool limit_used(const struct limit_files *files, const char *usage, size_t usage_len,
                const char *stat, size_t stat_len, uint64_t *ret);
/* The limit with the least head-room. MEM may be NULL. -ENODATA: there is none at all. */
int limit_find(const struct proc_root *root, int32_t pid, const struct proc_meminfo *mem,
               const struct limit_group *v1, const struct limit_group *v2, struct limit_found *ret);
/* "self/NAME" or "PID/NAME". */
void limit_proc_path(int32_t pid, const char *name, char ret[32]);
