/* Applies the kernel's rules for enabling controllers, in order to find out where a cgroup may be
 * created. */
#include "guard/cgroup_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/span.h"
#include "guard/cgroup.h"
#include "proc/read.h"

/* True if the group's file NAME contains WORD in its list. */
static bool group_lists(const struct proc_root *root, const struct guard_place *p, const char *name,
                        const char *word)
{
    char text[1024], *save = NULL;
    if (cgroup_read(root, p->group.dir, name, text, sizeof text) < 0)
        return false;
    for (char *s = strtok_r(text, " \n", &save); s; s = strtok_r(NULL, " \n", &save))
        if (strcmp(s, word) == 0)
            return true;
    return false;
}

/* Returns true for the kernel's real root, which is the only group without the file cgroup.events.
 * The root of a cgroup namespace has this file and follows the same rules as any other group. */
static bool is_real_root(const struct proc_root *root, const struct guard_place *p)
{
    AUTO_CLOSE int fd = cgroup_open(root, p->group.dir, "cgroup.events", O_PATH);
    return fd == -ENOENT;
}

/* True if the group is delegated. systemd marks the groups that it delegates, and a user other than
 * root owns a group only if the group was delegated to that user. */
static bool is_delegated(const struct proc_root *root, const struct guard_place *p)
{
    AUTO_CLOSE int fd = openat(root->cgroup_fd, p->group.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    char value;
    if (fd < 0)
        return false;
    if (fgetxattr(fd, "user.delegate", &value, 1) == 1 && value == '1')
        return true;
    return geteuid() != 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid();
}

int guard_place_own(const struct proc_root *root, bool v2, struct guard_place *ret)
{
    struct limit_group group = {.known = false};
    limit_group_find(root, 0, v2, &group);
    if (!group.known)
        return -ENOENT;
    *ret = (struct guard_place){.group = group, .is_v2 = v2, .is_own = true};
    return 0;
}

int guard_place_up(const struct proc_root *root, struct guard_place *p)
{
    char *slash = strrchr(p->group.dir + p->group.base_len, '/');
    uint64_t limit_bytes;
    if (!slash)
        return -ENOENT;
    if (cgroup_read_number(root, p->group.dir, p->is_v2 ? "memory.max" : "memory.limit_in_bytes",
                           &limit_bytes))
        return -EPERM;
    *slash = '\0';
    p->is_own = false;
    return 0;
}

int guard_place_divide(const struct proc_root *root, const struct guard_place *p)
{
    if (!p->is_v2)
        return 0;
    /* A process can be moved only with write access to cgroup.procs of the nearest common ancestor
     * of its old and its new group. */
    AUTO_CLOSE int fd = cgroup_open(root, p->group.dir, "cgroup.procs", O_WRONLY);
    if (fd < 0)
        return fd;
    if (group_lists(root, p, "cgroup.subtree_control", "memory"))
        return 0;
    /* Except for the root, a group that contains processes cannot enable controllers for its
     * children (EBUSY). Our own group contains at least this process. */
    bool may_divide = p->is_own ? is_real_root(root, p) : is_delegated(root, p);
    if (!may_divide || !group_lists(root, p, "cgroup.controllers", "memory"))
        return -EOPNOTSUPP;
    int r = cgroup_write(root, p->group.dir, "cgroup.subtree_control", "+memory");
    return r == -EBUSY ? -EOPNOTSUPP : r;
}

/* True if the calling process is the only one in the group. */
static bool is_alone(const struct proc_root *root, const struct guard_place *p)
{
    char text[64], own[16];
    int len = snprintf(own, sizeof own, "%d\n", getpid());
    return cgroup_read(root, p->group.dir, "cgroup.procs", text, sizeof text) == len &&
           strcmp(text, own) == 0;
}

int guard_place_vacate(const struct proc_root *root)
{
    struct guard_place p;
    char dir[LIMIT_PATH_MAX + 8];
    if (guard_place_own(root, true, &p) < 0 || !span_ends(span_of(p.group.dir), ".scope") ||
        !is_delegated(root, &p) || !group_lists(root, &p, "cgroup.controllers", "memory") ||
        group_lists(root, &p, "cgroup.subtree_control", "memory") || !is_alone(root, &p))
        return 0;
    snprintf(dir, sizeof dir, "%s/ebb", p.group.dir);
    if (mkdirat(root->cgroup_fd, dir, 0755) < 0 && errno != EEXIST)
        return -errno;
    return cgroup_write(root, dir, "cgroup.procs", "0");
}

void guard_cgroup_warm(const struct proc_root *root)
{
    struct guard_place own;
    if (root->cgroup_fd >= 0 && guard_place_own(root, false, &own) == 0)
        (void)cgroup_write(root, own.group.dir, "cgroup.procs", "0");
}

const char *guard_place_name(const struct guard_place *p)
{
    const char *name = p->group.dir + p->group.base_len;
    return *name != '\0' ? name : "/";
}
