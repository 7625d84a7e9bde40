/* Where a cgroup of ours may be made, by the kernel's rules for handing controllers down. */
#include "guard/cgroup_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

enum { FILE_PATH_MAX = LIMIT_PATH_MAX + 64 };

static void file_path(const struct guard_place *p, const char *name, char ret[FILE_PATH_MAX])
{
    snprintf(ret, FILE_PATH_MAX, "%s/%s", p->group.dir, name);
}

/* True when the file is a list that holds WORD. */
static bool lists(const struct proc_root *root, const struct guard_place *p, const char *name,
                  const char *word)
{
    char path[FILE_PATH_MAX], text[1024], *save = NULL;
    file_path(p, name, path);
    if (io_read_small(root->cgroup_fd, path, text, sizeof(text)) < 0)
        return false;
    for (char *s = strtok_r(text, " \n", &save); s != NULL; s = strtok_r(NULL, " \n", &save))
        if (strcmp(s, word) == 0)
            return true;
    return false;
}

/* Every group but the kernel's own root has this file; the root of a cgroup namespace has it too,
 * and is bound by the same rules as any other group. */
static bool is_real_root(const struct proc_root *root, const struct guard_place *p)
{
    char path[FILE_PATH_MAX];
    file_path(p, "cgroup.events", path);
    return faccessat(root->cgroup_fd, path, F_OK, 0) < 0 && errno == ENOENT;
}

/* systemd marks the groups that it delegates. Other users than root own a group only where somebody
 * delegated it to them. */
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

static bool has_limit(const struct proc_root *root, const struct guard_place *p)
{
    char path[FILE_PATH_MAX], text[64];
    bool unlimited;
    uint64_t bytes;
    file_path(p, p->is_v2 ? "memory.max" : "memory.limit_in_bytes", path);
    ssize_t len = io_read_small(root->cgroup_fd, path, text, sizeof(text));
    return len >= 0 && proc_cgroup_number_parse(text, (size_t)len, &unlimited, &bytes) == 0 &&
           !unlimited;
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
    if (slash == NULL)
        return -ENOENT;
    if (has_limit(root, p))
        return -EPERM;
    *slash = '\0';
    p->is_own = false;
    return 0;
}

static int hand_memory_down(const struct proc_root *root, const struct guard_place *p)
{
    char path[FILE_PATH_MAX];
    file_path(p, "cgroup.subtree_control", path);
    AUTO_CLOSE int fd = openat(root->cgroup_fd, path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : io_write_all(fd, "+memory", strlen("+memory"));
}

int guard_place_divide(const struct proc_root *root, const struct guard_place *p)
{
    char path[FILE_PATH_MAX];
    if (!p->is_v2)
        return 0;
    /* who moves a process must be able to write this file of the two groups' common ancestor */
    file_path(p, "cgroup.procs", path);
    if (faccessat(root->cgroup_fd, path, W_OK, AT_EACCESS) < 0)
        return -errno;
    if (lists(root, p, "cgroup.subtree_control", "memory"))
        return 0;
    /* A group with processes in it, as ours has, cannot begin to hand controllers down (EBUSY);
     * only the root can. */
    bool may_divide = p->is_own ? is_real_root(root, p) : is_delegated(root, p);
    if (!may_divide || !lists(root, p, "cgroup.controllers", "memory"))
        return -EOPNOTSUPP;
    int r = hand_memory_down(root, p);
    return r == -EBUSY ? -EOPNOTSUPP : r;
}

/* True when the calling process is the only one in the group. */
static bool is_alone(const struct proc_root *root, const struct guard_place *p)
{
    char path[FILE_PATH_MAX], text[64], own[16];
    file_path(p, "cgroup.procs", path);
    int len = snprintf(own, sizeof own, "%d\n", getpid());
    return io_read_small(root->cgroup_fd, path, text, sizeof text) == len && strcmp(text, own) == 0;
}

static bool is_scope(const struct guard_place *p)
{
    static const char suffix[] = ".scope";
    size_t len = strlen(p->group.dir);
    return len > strlen(suffix) && strcmp(p->group.dir + len - strlen(suffix), suffix) == 0;
}

int guard_place_vacate(const struct proc_root *root)
{
    struct guard_place p;
    char dir[FILE_PATH_MAX], procs[FILE_PATH_MAX + 16];
    if (guard_place_own(root, true, &p) < 0 || !is_scope(&p) || !is_delegated(root, &p) ||
        !lists(root, &p, "cgroup.controllers", "memory") ||
        lists(root, &p, "cgroup.subtree_control", "memory") || !is_alone(root, &p))
        return 0;
    file_path(&p, "ebb", dir);
    if (mkdirat(root->cgroup_fd, dir, 0755) < 0 && errno != EEXIST)
        return -errno;
    snprintf(procs, sizeof procs, "%s/cgroup.procs", dir);
    AUTO_CLOSE int fd = openat(root->cgroup_fd, procs, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : io_write_all(fd, "0", 1);
}

const char *guard_place_name(const struct guard_place *p)
{
    const char *name = p->group.dir + p->group.base_len;
    return *name != '\0' ? name : "/";
}
