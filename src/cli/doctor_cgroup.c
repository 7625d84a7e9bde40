/* `ebb doctor`: which cgroups there are, and whether a job gets one of its own. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "guard/cgroup.h"
#include "guard/cgroup_place.h"

enum { TEXT_MAX = 1 << 20 };

/* One hierarchy as this process sees it. */
struct hierarchy {
    bool is_mounted;
    char root[PATH_MAX];  /* what of it the mount shows */
    char mount[PATH_MAX]; /* where */
    char group[PATH_MAX]; /* ours, from its root */
};

struct cgroups {
    struct hierarchy unified; /* v2 */
    struct hierarchy memory;  /* v1's memory controller */
};

static bool has_word(const char *list, const char *word, char separator)
{
    size_t len = strlen(word);
    for (const char *s = list; *s;) {
        const char *end = strchrnul(s, separator);
        size_t n = strcspn(s, "\n");
        if ((size_t)(end - s) < n)
            n = (size_t)(end - s);
        if (n == len && memcmp(s, word, n) == 0)
            return true;
        s = *end ? end + 1 : end;
    }
    return false;
}

/* "36 35 98:0 /root /mount rw,… optional - cgroup2 source options": \040 in paths is left as it is,
 * no cgroup is mounted on such a one. */
static void read_mount(char *line, struct cgroups *c)
{
    char *tail = strstr(line, " - ");
    if (!tail)
        return;
    *tail = '\0';
    char *save = NULL, *root = NULL, *mount = NULL;
    char *field = strtok_r(line, " ", &save);
    for (int i = 0; field && i < 5; i++, field = strtok_r(NULL, " ", &save)) {
        root = i == 3 ? field : root;
        mount = i == 4 ? field : mount;
    }
    const char *type = strtok_r(tail + 3, " ", &save);
    strtok_r(NULL, " ", &save);
    const char *options = strtok_r(NULL, " ", &save);
    if (!mount || !type || !options)
        return;
    bool is_memory = strcmp(type, "cgroup") == 0 && has_word(options, "memory", ',');
    struct hierarchy *h = strcmp(type, "cgroup2") == 0 ? &c->unified
                          : is_memory                  ? &c->memory
                                                       : NULL;
    if (!h || h->is_mounted)
        return;
    h->is_mounted = true;
    snprintf(h->root, sizeof(h->root), "%s", root);
    snprintf(h->mount, sizeof(h->mount), "%s", mount);
}

/* "4:memory:/path" or "0::/path" */
static void read_group(const char *line, struct cgroups *c)
{
    char controllers[256];
    const char *first = strchr(line, ':');
    const char *second = first ? strchr(first + 1, ':') : NULL;
    if (!second)
        return;
    snprintf(controllers, sizeof(controllers), "%.*s", (int)(second - first - 1), first + 1);
    if (line[0] == '0' && !*controllers)
        snprintf(c->unified.group, sizeof(c->unified.group), "%s", second + 1);
    else if (has_word(controllers, "memory", ','))
        snprintf(c->memory.group, sizeof(c->memory.group), "%s", second + 1);
}

static void read_cgroups(const struct doctor *d, struct cgroups *ret)
{
    struct buf text = {0};
    char *save = NULL;
    if (io_read_all(d->root.proc_fd, "self/mountinfo", TEXT_MAX, &text) == 0 && buf_str(&text)[0]) {
        for (char *s = strtok_r(text.data, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
            read_mount(s, ret);
    }
    buf_clear(&text);
    if (io_read_all(d->root.proc_fd, "self/cgroup", TEXT_MAX, &text) == 0 && buf_str(&text)[0]) {
        for (char *s = strtok_r(text.data, "\n", &save); s; s = strtok_r(NULL, "\n", &save))
            read_group(s, ret);
    }
    buf_fini(&text);
}

/* The folder of our own group: -errno where the mount does not show it. */
static int open_group(const struct hierarchy *h)
{
    struct buf path = {0};
    size_t root_len = strcmp(h->root, "/") == 0 ? 0 : strlen(h->root);
    const char *group = strncmp(h->group, h->root, root_len) == 0 ? h->group + root_len : "/";
    buf_printf(&path, "%s%s", h->mount, group);
    int fd = open(buf_str(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fd = fd < 0 ? -errno : fd;
    buf_fini(&path);
    return fd;
}

/* What a job of ours would get. */
struct trial {
    int error; /* -errno; 0 with at least one group */
    bool is_limited, has_kill;
    struct err why; /* what is missing */
};

/* Where ours is the root, a group below it is given the memory controller by the first that asks
 * for it: that is taken back, as nothing is to be changed. */
static void restore_control(int group, const char *before)
{
    char now[1024];
    AUTO_CLOSE int fd = openat(group, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || io_read_small(group, "cgroup.subtree_control", now, sizeof(now)) < 0)
        return;
    if (has_word(now, "memory", ' ') && !has_word(before, "memory", ' '))
        (void)io_write_all(fd, "-memory", strlen("-memory"));
}

/* Makes the group of a job, as `ebb run` does, and takes it away again. */
static void try_group(const struct doctor *d, const struct cgroups *c, struct trial *ret)
{
    enum { PATIENCE_MS = 1000 };
    static const uint64_t LARGE = UINT64_C(1) << 50; /* binds nothing */
    struct guard_cgroup g = guard_cgroup_none;
    char name[64], before[1024] = "";
    *ret = (struct trial){0};
    AUTO_CLOSE int unified = c->unified.is_mounted ? open_group(&c->unified) : -1;
    bool has_control = unified >= 0 && io_read_small(unified, "cgroup.subtree_control", before,
                                                     sizeof(before)) >= 0;
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

static const char *advice_for(int error)
{
    if (error == EROFS)
        return "The cgroup mount is read-only, as in most containers: ebb defends the limit it "
               "finds or is given, and sets none in the kernel; `docker run --cgroupns=private "
               "--privileged` would "
               "let it.";
    if (has_systemd())
        return "ebb then counts a job's memory by its processes and sets no hard limit: start it "
               "with `systemd-run --user --scope -p Delegate=yes ebb run …`.";
    return "ebb then counts a job's memory by its processes and sets no hard limit: run it as "
           "root, "
           "or have root make a cgroup, chown it to you and put your shell into it.";
}

static const char *no_memory_advice(void)
{
    return has_systemd() ? "ebb counts a job's memory by its processes and sets no hard limit: "
                           "start it with `systemd-run --user --scope -p Delegate=yes ebb run …`."
                         : "ebb counts a job's memory by its processes and sets no hard limit: as "
                           "root, `echo +memory >cgroup.subtree_control` in that group.";
}

static void look_at_group(struct doctor *d, const char *version, const struct hierarchy *h,
                          const struct cgroups *c)
{
    struct trial t;
    try_group(d, c, &t);
    json_t *data = json_pack("{s:s, s:o, s:o, s:b, s:b, s:b}", "version", version, "mount",
                             json_text0(h->mount), "group", json_text0(h->group), "can_create",
                             t.error == 0, "memory_limit", t.is_limited, "kill", t.has_kill);
    if (t.error < 0)
        doctor_add(d, DOCTOR_NOTE, "cgroup", data, advice_for(-t.error),
                   "%s; a job gets none of its own: %s", version,
                   t.why.text[0] ? t.why.text : strerror(-t.error));
    else if (!t.is_limited)
        doctor_add(d, DOCTOR_NOTE, "cgroup", data, no_memory_advice(),
                   "%s, ours is %s; a job gets its own, but without a memory limit: %s", version,
                   h->group, t.why.text);
    else
        doctor_add(d, DOCTOR_OK, "cgroup", data, NULL,
                   "%s, ours is %s; a job gets its own, with a memory limit, and is killed %s",
                   version, h->group, t.has_kill ? "at once" : "process by process");
}

void doctor_look_cgroup(struct doctor *d)
{
    struct cgroups *c = calloc(1, sizeof(*c));
    if (!c)
        return;
    read_cgroups(d, c);
    if (c->memory.is_mounted)
        look_at_group(d, c->unified.is_mounted ? "v1 and v2 (hybrid)" : "v1", &c->memory, c);
    else if (c->unified.is_mounted)
        look_at_group(d, "v2", &c->unified, c);
    else
        doctor_add(d, DOCTOR_NOTE, "cgroup", NULL,
                   "ebb counts a job's memory by its processes and sets no hard limit.",
                   "no memory controller is mounted");
    free(c);
}
