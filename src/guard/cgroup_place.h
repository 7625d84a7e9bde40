/* Where a cgroup of ours may be made: from our own group upwards. For cgroup.c and its tests. */
#pragma once

#include <stdbool.h>

#include "proc/limit.h"

/* One folder in which a new group could be made. */
struct guard_place {
    struct limit_group group;
    bool is_v2;
    bool is_own; /* the group this process is in */
};

/* Our own group in that hierarchy: 0, -ENOENT where there is no such hierarchy. */
int guard_place_own(const struct proc_root *root, bool v2, struct guard_place *ret);
/* Goes on to the group above: 0, -ENOENT at the top, -EPERM where this one has a memory limit,
 * which a job started above it would escape. */
int guard_place_up(const struct proc_root *root, struct guard_place *p);
/* Ensures that the memory of a group made here is counted: 0, -EOPNOTSUPP where the memory
 * controller is not handed down, or -errno. Begins to hand it down in the root, and in a delegated
 * group above ours. */
int guard_place_divide(const struct proc_root *root, const struct guard_place *p);
/* Moves the calling process, and so what it starts from now on, into a group below its own, where
 * its own is a delegated systemd scope with nobody else in it: the scope can then hand its memory
 * controller down. Not in a service: systemd before 254 starts the next main process in the
 * service's own group, which fails while a job in a group below has the controller. 0 or -errno. */
int guard_place_vacate(const struct proc_root *root);
/* The group's name for people: "/user.slice/…". */
const char *guard_place_name(const struct guard_place *p);
