/* `ebb doctor`: checks which cgroups exist, and whether a job gets one of its own. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "guard/cgroup.h"
#include "guard/cgroup_place.h"

/* Returns true if the memory controller is enabled for child groups. */
static bool lists_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");
    return at && (at == controllers || at[-1] == ' ') && strchr(" \n", at[strlen("memory")]);
}

/* The cgroup that a job would get. */
struct trial {
    int error; /* -errno, or 0 if at least one group was created */
    bool is_limited, has_kill;
    struct err why; /* the reason why a part of the group is missing */
};

/* Disables the memory controller again. Creating a group below the root group enables the
 * controller there, and `ebb doctor` must leave no changes behind. */
static void restore_control(int group, const char *before)
{
    char now[1024];
    AUTO_CLOSE int fd = openat(group, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || io_read_small(group, "cgroup.subtree_control", now, sizeof now) < 0)
        return;
    if (lists_memory(now) && !lists_memory(before))
        (void)io_write_all(fd, "-memory", strlen("-memory"));
}

/* Creates the group of a job, as `ebb run` does, and removes it. */
static void try_group(const struct doctor *d, const struct guard_place *v2, struct trial *ret)
{
    enum { PATIENCE_MS = 1000 };
    static const uint64_t LARGE = UINT64_C(1) << 50; /* so large that the limit has no effect */
    struct guard_cgroup g = guard_cgroup_none;
    char name[64], before[1024] = "";
    *ret = (struct trial){0};
    AUTO_CLOSE int unified =
        v2 ? openat(d->root.cgroup_fd, v2->group.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool has_control = unified >= 0 &&
                       io_read_small(unified, "cgroup.subtree_control", before, sizeof before) >= 0;
    guard_cgroup_name(&d->root, name);
    (void)guard_place_vacate(&d->root); /* as `ebb run` does */
    ret->error = guard_cgroup_make(&d->root, name, LARGE, &g, &ret->why);
    if (ret->error < 0)
        return;
    ret->is_limited = g.is_limited;
    ret->has_kill = g.kill_fd >= 0;
    ret->error = guard_cgroup_remove(&d->root, &g, clock_mono_ns() + PATIENCE_MS * NS_PER_MS);
    if (has_control)
        restore_control(unified, before);
}

static bool has_systemd(void)
{
    return access("/run/systemd/system", F_OK) == 0;
}

static const char scope_advice[] =
    "ebb measures a job's memory by its processes and sets no hard limit: start ebb with "
    "`systemd-run --user --scope -p Delegate=yes ebb run …`.";

static const char *no_memory_advice(void)
{
    return has_systemd() ? scope_advice
                         : "ebb measures a job's memory by its processes and sets no hard "
                           "limit: as root, run `echo +memory >cgroup.subtree_control` in the "
                           "cgroup of your shell.";
}

static const char *advice_for(int error)
{
    if (error == EROFS)
        return "The cgroup mount is read-only, as in most containers: ebb enforces the limit "
               "that it finds or that you give, but cannot set one in the kernel; `docker run "
               "--cgroupns=private --privileged` allows that.";
    if (error == EOPNOTSUPP)
        return no_memory_advice();
    if (has_systemd())
        return scope_advice;
    return "ebb measures a job's memory by its processes and sets no hard limit: run ebb as "
           "root, or let root create a cgroup, chown it to you and move your shell into it.";
}

static void look_at_group(struct doctor *d, const char *version, const struct guard_place *own,
                          const struct guard_place *v2)
{
    struct trial t;
    struct buf mount = {0};
    const char *group = guard_place_name(own);
    try_group(d, v2, &t);
    buf_printf(&mount, "/sys/fs/cgroup%s%.*s", own->group.base_len ? "/" : "",
               (int)own->group.base_len, own->group.dir);
    json_t *data = json_pack("{s:s, s:o, s:o, s:b, s:b, s:b}", "version", version, "mount",
                             json_text0(buf_str(&mount)), "group", json_text0(group), "can_create",
                             t.error == 0, "memory_limit", t.is_limited, "kill", t.has_kill);
    buf_fini(&mount);
    if (t.error < 0)
        doctor_add(d, DOCTOR_NOTE, "cgroup", data, advice_for(-t.error),
                   "%s; a job cannot have its own cgroup: %s", version,
                   t.why.text[0] ? t.why.text : strerror(-t.error));
    else if (!t.is_limited)
        doctor_add(
            d, DOCTOR_NOTE, "cgroup", data, no_memory_advice(),
            "%s, ebb runs in cgroup %s; a job gets its own cgroup, but without a memory limit: %s",
            version, group, t.why.text);
    else
        doctor_add(
            d, DOCTOR_OK, "cgroup", data, NULL,
            "%s, ebb runs in cgroup %s; a job gets its own cgroup with a memory limit, and is "
            "killed %s",
            version, group, t.has_kill ? "at once" : "process by process");
}

void doctor_look_cgroup(struct doctor *d)
{
    struct guard_place v1, v2;
    bool has_root = d->root.cgroup_fd >= 0;
    bool has_v1 = has_root && guard_place_own(&d->root, false, &v1) == 0;
    bool has_v2 = has_root && guard_place_own(&d->root, true, &v2) == 0;
    if (has_v1)
        look_at_group(d, has_v2 ? "v1 and v2 (hybrid)" : "v1", &v1, has_v2 ? &v2 : NULL);
    else if (has_v2)
        look_at_group(d, "v2", &v2, &v2);
    else
        doctor_add(d, DOCTOR_NOTE, "cgroup", NULL,
                   "ebb measures a job's memory by its processes and sets no hard limit.",
                   "no memory controller is mounted");
}
