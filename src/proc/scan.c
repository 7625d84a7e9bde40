/* One pass over /proc: names, relations, and on request what a process has mapped and open. */
#include "proc/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "proc/node.h"

enum { MAPS_BYTES_MAX = 16 << 20 };

static int by_pid(const void *a, const void *b)
{
    int32_t x = ((const struct scan_process *)a)->info.id.pid;
    int32_t y = ((const struct scan_process *)b)->info.id.pid;
    return (x > y) - (x < y);
}

/* False for what died meanwhile, zombies and kernel threads: they have no address space. (Their
 * rss is no test: the kernel keeps it per CPU in batches, and a small process may show 0.) */
static bool read_process(const struct proc_root *root, int32_t pid, struct scan_process *ret)
{
    char name[16];
    struct proc_stat st;
    struct stat dir;
    if (proc_read_stat(root, pid, &st) < 0 || st.size_bytes == 0)
        return false;
    memset(ret, 0, sizeof(*ret));
    struct process_info *info = &ret->info;
    info->id = (struct process_id){pid, st.start_ticks};
    info->ppid = st.ppid;
    info->comm_len = st.comm_len;
    memcpy(info->comm, st.comm, sizeof(info->comm));
    ret->rss_bytes = pages_to_bytes(root, st.rss_pages);
    /* one byte of it goes to a NUL that is not part of the name */
    ssize_t len = proc_read(root, pid, "cmdline", info->cmdline, sizeof info->cmdline);
    while (len > 0 && info->cmdline[len - 1] == '\0')
        len--;
    info->cmdline_len = len > 0 ? (uint16_t)len : 0;
    snprintf(name, sizeof(name), "%d", pid);
    if (fstatat(root->proc_fd, name, &dir, 0) == 0)
        info->uid = dir.st_uid;
    return true;
}

static void link_parents(struct proc_scan *s)
{
    for (size_t i = 0; i < s->n; i++) {
        s->v[i].parent = proc_scan_find(s, s->v[i].info.ppid);
        /* a parent is older; a younger one with that pid is another process */
        if (s->v[i].parent != SCAN_NONE &&
            s->v[s->v[i].parent].info.id.start_ticks > s->v[i].info.id.start_ticks)
            s->v[i].parent = SCAN_NONE;
        if (s->v[i].parent == (int)i)
            s->v[i].parent = SCAN_NONE;
        if (s->v[i].parent != SCAN_NONE)
            s->v[s->v[i].parent].children++;
    }
}

int proc_scan_read(const struct proc_root *root, struct proc_scan *ret)
{
    struct pid_dir dir;
    int32_t pid;
    struct proc_scan s = {0};
    size_t cap = 0;
    int r = pid_dir_open(&dir, root->proc_fd, ".");
    if (r < 0)
        return r;
    while (pid_dir_next(&dir, &pid)) {
        if (!ARRAY_ROOM(s.v, s.n, cap)) {
            r = -ENOMEM;
            break;
        }
        if (read_process(root, pid, &s.v[s.n]))
            s.n++;
    }
    pid_dir_close(&dir);
    if (r < 0) {
        proc_scan_fini(&s);
        return r;
    }
    if (s.n > 0)
        qsort(s.v, s.n, sizeof(*s.v), by_pid);
    link_parents(&s);
    *ret = s;
    return 0;
}

void proc_scan_fini(struct proc_scan *s)
{
    free(s->v);
    *s = (struct proc_scan){0};
}

int proc_scan_find(const struct proc_scan *s, int32_t pid)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (s->v[mid].info.id.pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && s->v[low].info.id.pid == pid ? (int)low : SCAN_NONE;
}

/* Recorded or racing files may claim a circle: no chain is longer than there are processes. */
bool proc_scan_is_below(const struct proc_scan *s, size_t i, size_t above)
{
    int p = s->v[i].parent;
    for (size_t steps = 0; p != SCAN_NONE && steps < s->n; steps++) {
        if (p == (int)above)
            return true;
        p = s->v[p].parent;
    }
    return false;
}

static void note_map(void *user, const struct proc_map *map)
{
    role_maps_add(user, map);
}

/* Better evidence replaces weaker: /dev/nvidia0 over /dev/nvidiactl over a DRM node. */
static bool note_device(struct scan_process *p, const char *path)
{
    bool nvidia = strncmp(path, "/dev/nvidia", 11) == 0;
    bool numbered = nvidia && path[11] >= '0' && path[11] <= '9';
    if (!nvidia && strncmp(path, "/dev/dri/render", 15) != 0)
        return false;
    if (p->device[0] == '\0' || (nvidia && !p->device_is_nvidia) || numbered) {
        snprintf(p->device, sizeof(p->device), "%.31s", path);
        p->device_is_nvidia = nvidia;
    }
    return numbered;
}

static void read_devices(int dir_fd, struct scan_process *p)
{
    enum { FDS_MAX = 4096 };
    struct pid_dir fds;
    int32_t fd;
    char name[16], path[64];
    if (pid_dir_open(&fds, dir_fd, "fd") < 0)
        return;
    for (int looked = 0; looked < FDS_MAX && pid_dir_next(&fds, &fd); looked++) {
        snprintf(name, sizeof(name), "%d", fd);
        ssize_t n = readlinkat(fds.fd, name, path, sizeof(path) - 1);
        if (n <= 0)
            continue;
        path[n] = '\0';
        if (note_device(p, path))
            break;
    }
    pid_dir_close(&fds);
}

void proc_scan_look(const struct proc_root *root, struct proc_scan *s, size_t i, bool devices)
{
    struct scan_process *p = &s->v[i];
    char name[16];
    snprintf(name, sizeof(name), "%d", p->info.id.pid);
    AUTO_CLOSE int dir = openat(root->proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    AUTO_CLOSE int fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        p->denied = errno == EACCES || errno == EPERM;
        return;
    }
    proc_read_maps(fd, MAPS_BYTES_MAX, note_map, &p->maps);
    if (devices)
        read_devices(dir, p);
}

static bool update_role(struct proc_scan *s, size_t i)
{
    struct scan_process *p = &s->v[i];
    struct scan_process *parent = p->parent != SCAN_NONE ? &s->v[p->parent] : NULL;
    struct role_input in = {
        .process = &p->info,
        .parent = parent != NULL ? &parent->info : NULL,
        .maps = p->maps,
        .siblings = parent != NULL ? parent->children - 1 : 0,
        .child_trains = p->child_trains,
    };
    struct role_guess guess;
    role_guess(&in, &guess);
    bool changed = guess.role != p->info.role;
    p->info.role = guess.role;
    memcpy(p->why, guess.why, sizeof(p->why));
    return changed;
}

static bool update_child_trains(struct proc_scan *s)
{
    bool changed = false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].info.role != ROLE_MAIN || role_maps_library(&s->v[i].maps) == NULL)
            continue;
        int p = s->v[i].parent;
        for (size_t steps = 0; p != SCAN_NONE && steps < s->n; steps++) {
            changed |= !s->v[p].child_trains;
            s->v[p].child_trains = true;
            p = s->v[p].parent;
        }
    }
    return changed;
}

/* A role hangs on the parent's: a few passes settle it, since pids mostly grow downwards. */
void proc_scan_roles(struct proc_scan *s)
{
    enum { PASSES_MAX = 16 };
    bool changed = true;
    for (int pass = 0; changed && pass < PASSES_MAX; pass++) {
        changed = false;
        for (size_t i = 0; i < s->n; i++)
            changed |= update_role(s, i);
        changed |= update_child_trains(s);
    }
}
