/* Getting the kernel ready to move a process into a v1 group. */
#include "guard/cgroup.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "guard/cgroup_place.h"

void guard_cgroup_warm(const struct proc_root *root)
{
    struct guard_place own;
    char path[LIMIT_PATH_MAX + 64];
    if (root->cgroup_fd < 0 || guard_place_own(root, false, &own) < 0)
        return;
    snprintf(path, sizeof path, "%s/cgroup.procs", own.group.dir);
    AUTO_CLOSE int fd = openat(root->cgroup_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0)
        (void)io_write_all(fd, "0", 1);
}
