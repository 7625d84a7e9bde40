/* Finds a place for a new cgroup, from our own group upwards. Used by cgroup.c and its tests. */
#pragma once

#include <stdbool.h>

#include "proc/limit.h"

/* A group below which a new group could be created. */
struct guard_place {
    struct limit_group group;
    bool is_v2;
    bool is_own; /* whether this process is in the group */
};

/* Finds our own group in the v2 or v1 hierarchy. Returns 0, or -ENOENT if there is no such
 * hierarchy. */
int guard_place_own(const struct proc_root *root, bool v2, struct guard_place *ret);
/* Goes to the parent group. Returns 0, -ENOENT at the top, or -EPERM if this group has a memory
 * limit, which a job in the parent would escape. */
int guard_place_up(const struct proc_root *root, struct guard_place *p);
/* Makes sure that the kernel accounts for the memory of groups below P. If necessary, enables the
 * memory controller for the children of P, but only if P is the root or a delegated group above
 * ours. Returns 0, -EOPNOTSUPP if the controller is not enabled for children, or -errno. */
int guard_place_divide(const struct proc_root *root, const struct guard_place *p);
/* Moves the calling process from its group into a new child group, so that the parent has no
 * processes and can enable the memory controller for its children. Acts only if the parent is a
 * delegated systemd scope without other processes. A systemd service is left alone: systemd before
 * 254 starts the service's next main process in the service's own group, which fails while a child
 * group has the controller. Returns 0, also if there was nothing to do, or -errno. */
int guard_place_vacate(const struct proc_root *root);
/* The group's path for messages, such as "/user.slice/…". */
const char *guard_place_name(const struct guard_place *p);
