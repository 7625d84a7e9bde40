/* Matches new files in /dev/shm with the processes that have them open or mapped. */
#include "guard/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/helper.h"
#include "proc/read.h"

/* The kernel takes file timestamps from its last clock tick, so they lag by some milliseconds. */
#define WALL_SLACK_NS (100 * NS_PER_MS)
#define SAMPLE_NS (5 * NS_PER_MS)
#define GAP_MIN_NS (20 * NS_PER_MS)
#define GAP_MAX_NS (300 * NS_PER_S)

/* Sampling may use at most 1/REST_PER_WORK of the time, even if very many files appear. */
enum {
    REST_PER_WORK = 20,
    PIDS_MAX = 4096,
    INODES_MAX = 1024,
    FDS_MAX = 4096,
    MAPS_MAX = 64 << 20
};

struct shm_file {
    uint64_t ino;
    bool is_old, is_jobs, in_use; /* is_old: the file existed before the job */
};

/* The files on one device that a process has mapped. */
struct mapped {
    int maps_fd;
    dev_t dev;
    bool writable_only;
    size_t count;
    uint64_t ino[INODES_MAX];
};

struct leftovers {
    int fd;
    dev_t dev;
    char folder[PATH_MAX]; /* the real path of the folder, because /dev/shm may be a link */
    /* wall-clock times of the last change of the folder and of the last scan */
    uint64_t changed_ns, scanned_ns;
    struct shm_file *files; /* files found by the last scan, sorted by inode */
    size_t count;
    int32_t pids[PIDS_MAX]; /* pids of the job's youngest processes, in a ring buffer */
    size_t pid_at;
    uint32_t next_slot; /* slot of the process to examine next */
    /* time of the next scan of all processes, and the pause between two scans */
    uint64_t round_ns, gap_ns;
    uint64_t rest_ns; /* time until which no process is examined */
    struct proc_helper *helper;
    bool is_away; /* true while the helper thread uses MAPPED */
    struct mapped mapped;
};

static int compare_inodes(const void *a, const void *b)
{
    const struct shm_file *x = a, *y = b;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

static struct shm_file *shm_file_find(const struct leftovers *l, uint64_t ino)
{
    const struct shm_file key = {.ino = ino};
    return l->count ? bsearch(&key, l->files, l->count, sizeof key, compare_inodes) : NULL;
}

/* True if the file's name contains a pid of the job: "torch_1234_567_0" was created by process
 * 1234. */
static bool has_pid_of_job(const struct leftovers *l, const struct proc_root *root,
                           struct proc_tree *tree, const char *name)
{
    int32_t pid;
    struct proc_stat stat;
    size_t digits = strncmp(name, "torch_", 6) == 0 ? strspn(name + 6, "0123456789") : 0;
    if (digits == 0 || name[6 + digits] != '_' || proc_pids_parse(name + 6, digits, &pid, 1) != 1)
        return false;
    if (tree && proc_tree_find(tree, pid))
        return true;
    /* a process of the job had this pid, but if the pid was reused, the file may belong to another
     * process */
    for (size_t i = 0; i < l->pid_at && i < PIDS_MAX; i++)
        if (l->pids[i] == pid)
            return proc_read_stat(root, pid, &stat) < 0 || proc_stat_is_dead(&stat);
    return false;
}

static int is_plain(const struct dirent *e)
{
    return e->d_type == DT_REG;
}

/* Scans the folder if it has changed since the last scan. ROOT is NULL only before the job starts:
 * files found then are marked as older than the job. Returns false and leaves the list unchanged if
 * the scan fails. */
static bool scan_folder(struct leftovers *l, const struct proc_root *root, struct proc_tree *tree)
{
    struct stat st;
    struct dirent **names;
    const uint64_t now_ns = clock_wall_ns();
    if (fstat(l->fd, &st) < 0)
        return false;
    const uint64_t changed_ns =
        (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
    if (changed_ns == l->changed_ns && changed_ns + WALL_SLACK_NS < l->scanned_ns)
        return true;
    int count = scandirat(l->fd, ".", &names, is_plain, NULL);
    struct shm_file *files = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *files);
    for (int i = 0; i < count; i++) {
        const struct shm_file *known = shm_file_find(l, names[i]->d_ino);
        if (files) {
            files[i] = known ? *known : (struct shm_file){names[i]->d_ino, !root, false, false};
            files[i].is_jobs |= !files[i].is_old && has_pid_of_job(l, root, tree, names[i]->d_name);
        }
        if (!known)
            l->gap_ns = GAP_MIN_NS, l->round_ns = 0;
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    if (!files)
        return false;
    qsort(files, (size_t)count, sizeof *files, compare_inodes);
    free(l->files);
    l->files = files;
    l->count = (size_t)count;
    l->changed_ns = changed_ns;
    l->scanned_ns = now_ns;
    return true;
}

struct leftovers *leftovers_new(const char *folder)
{
    struct leftovers *l = calloc(1, sizeof *l);
    struct stat st;
    if (!l)
        return NULL;
    l->fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->fd < 0 || !realpath(folder, l->folder) || fstat(l->fd, &st) < 0 ||
        !scan_folder(l, NULL, NULL)) {
        leftovers_free(l);
        return NULL;
    }
    l->dev = l->mapped.dev = st.st_dev;
    l->mapped.writable_only = true;
    return l;
}

void leftovers_free(struct leftovers *l)
{
    if (!l)
        return;
    cleanup_close(&l->fd);
    free(l->files);
    if (!l->is_away || !proc_helper_keeps(l->helper, l))
        free(l);
}

void leftovers_process(struct leftovers *l, int32_t pid)
{
    l->pids[l->pid_at++ % PIDS_MAX] = pid;
}

/* ---- the files of a process ---- */

static void mark_file(struct leftovers *l, uint64_t ino, bool is_at_end)
{
    struct shm_file *file = shm_file_find(l, ino);
    if (file && is_at_end)
        file->in_use = true;
    else if (file)
        file->is_jobs = !file->is_old;
}

/* True if the file is open for writing, according to the mode of the symbolic link in
 * /proc/PID/fd. */
static bool is_open_for_writing(int fds, const char *name)
{
    struct stat link;
    return fstatat(fds, name, &link, AT_SYMLINK_NOFOLLOW) == 0 && link.st_mode & S_IWUSR;
}

/* Marks the files in the folder that a process has open. Files elsewhere are recognized by the
 * target of the symbolic link and never accessed, because stat of a file on an unreachable file
 * server hangs. */
static void mark_open(struct leftovers *l, int dirfd, const char *path, bool is_at_end)
{
    const size_t len = strlen(l->folder);
    struct pid_dir fds;
    int32_t fd;
    if (pid_dir_open(&fds, dirfd, path) < 0)
        return;
    for (int i = 0; i < FDS_MAX && pid_dir_next(&fds, &fd); i++) {
        char name[16], link[PATH_MAX];
        struct stat st;
        snprintf(name, sizeof name, "%d", fd);
        ssize_t n = readlinkat(fds.fd, name, link, sizeof link);
        if (n > (ssize_t)len && memcmp(link, l->folder, len) == 0 &&
            fstatat(fds.fd, name, &st, 0) == 0 && st.st_dev == l->dev &&
            (is_at_end || is_open_for_writing(fds.fd, name)))
            mark_file(l, st.st_ino, is_at_end);
    }
    pid_dir_close(&fds);
}

static void note_mapped(void *user, const struct proc_map *map)
{
    struct mapped *m = user;
    bool is_wanted = !m->writable_only || (map->writable && map->shared);
    if (map->inode && is_wanted && m->count < INODES_MAX &&
        makedev((unsigned)map->dev_major, (unsigned)map->dev_minor) == m->dev)
        m->ino[m->count++] = map->inode;
}

static void read_mapped(void *arg)
{
    struct mapped *m = arg;
    m->count = 0;
    proc_read_maps(m->maps_fd, MAPS_MAX, note_mapped, m);
    close(m->maps_fd);
}

static void mark_mapped(struct leftovers *l, const struct mapped *m, bool is_at_end)
{
    for (size_t i = 0; i < m->count; i++)
        mark_file(l, m->ino[i], is_at_end);
}

/* ---- while the job runs ---- */

static bool has_unknown(const struct leftovers *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->files[i].is_old && !l->files[i].is_jobs)
            return true;
    return false;
}

static void leftovers_sample_process(struct leftovers *l, struct proc_tree *tree,
                                     struct proc_node *node)
{
    AUTO_CLOSE int fds = proc_node_open(tree, node, "fd", O_RDONLY | O_DIRECTORY);
    l->next_slot = node->slot + 1;
    if (fds >= 0)
        mark_open(l, fds, ".", false);
    l->mapped.maps_fd = has_unknown(l) ? proc_node_open(tree, node, "maps", O_RDONLY) : -1;
    if (l->mapped.maps_fd < 0)
        return;
    l->helper = proc_tree_helper(tree);
    int r = proc_helper_call(l->helper, read_mapped, &l->mapped, NULL);
    l->is_away = r == -EINPROGRESS;
    if (r == 0)
        mark_mapped(l, &l->mapped, false);
    else if (r == -EAGAIN)
        close(l->mapped.maps_fd);
}

/* Returns the first process whose slot is at least l->next_slot. The tree lists processes in
 * ascending order of their slots. */
static struct proc_node *next_process(const struct leftovers *l, struct proc_tree *tree)
{
    for (size_t i = 0; i < proc_tree_count(tree); i++)
        if (proc_tree_at(tree, i)->slot >= l->next_slot)
            return proc_tree_at(tree, i);
    return NULL;
}

void leftovers_sample(struct leftovers *l, struct proc_tree *tree, uint64_t now_ns)
{
    const uint64_t began_ns = clock_mono_ns();
    if (now_ns < l->rest_ns || proc_helper_is_busy(proc_tree_helper(tree)))
        return;
    if (l->is_away)
        mark_mapped(l, &l->mapped, false);
    l->is_away = false;
    scan_folder(l, proc_tree_root(tree), tree);
    while (now_ns >= l->round_ns && has_unknown(l) && !l->is_away &&
           clock_mono_ns() - began_ns < SAMPLE_NS) {
        struct proc_node *node = next_process(l, tree);
        if (node) {
            leftovers_sample_process(l, tree, node);
            continue;
        }
        l->next_slot = 0;
        l->round_ns = now_ns + l->gap_ns;
        l->gap_ns = l->gap_ns < GAP_MAX_NS / 2 ? l->gap_ns * 2 : GAP_MAX_NS;
    }
    l->rest_ns = now_ns + (clock_mono_ns() - began_ns) * REST_PER_WORK;
}

/* ---- at the end ---- */

/* Marks the files that any process of this machine has open or mapped. Processes of other users are
 * skipped if permission is missing. */
static void mark_all_used(struct leftovers *l, const struct proc_root *root)
{
    struct mapped mapped = {.dev = l->dev};
    struct pid_dir pids;
    int32_t pid;
    if (pid_dir_open(&pids, root->proc_fd, ".") < 0)
        return;
    while (pid_dir_next(&pids, &pid)) {
        char path[32];
        snprintf(path, sizeof path, "%d/fd", pid);
        mark_open(l, root->proc_fd, path, true);
        mapped.maps_fd = proc_open(root, pid, "maps", O_RDONLY);
        if (mapped.maps_fd < 0)
            continue;
        read_mapped(&mapped);
        mark_mapped(l, &mapped, true);
    }
    pid_dir_close(&pids);
}

void leftovers_end(struct leftovers *l, const struct proc_root *root, bool clean,
                   struct outcome_left_list *ret)
{
    struct dirent **names = NULL;
    bool has_own = false;
    scan_folder(l, root, NULL);
    for (size_t i = 0; i < l->count; i++) {
        has_own |= l->files[i].is_jobs;
        l->files[i].in_use = false;
    }
    if (has_own)
        mark_all_used(l, root);
    int count = has_own ? scandirat(l->fd, ".", &names, is_plain, alphasort) : 0;
    ret->shm = count > 0 ? calloc((size_t)count, sizeof *ret->shm) : NULL;
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        const struct shm_file *file = shm_file_find(l, names[i]->d_ino);
        struct stat st;
        if (ret->shm && file && file->is_jobs &&
            fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == file->ino) {
            bool removed =
                clean && !file->in_use && st.st_uid == geteuid() && unlinkat(l->fd, name, 0) == 0;
            ret->shm[ret->shm_count++] =
                (struct outcome_left){.name = strdup(name),
                                      .bytes = (uint64_t)st.st_blocks * 512,
                                      .in_use = file->in_use,
                                      .removed = removed};
        }
        free(names[i]);
    }
    free(names);
}

bool leftovers_folder_is_full(const char *folder)
{
    struct statvfs st;
    if (statvfs(folder, &st) < 0)
        return false;
    if (st.f_files > 0 && st.f_favail == 0)
        return true;
    /* a tmpfs without a size limit reports 0 blocks; it is never full */
    return st.f_blocks > 0 && (st.f_bavail < st.f_blocks / 100 ||
                               (uint64_t)st.f_bavail * st.f_frsize < UINT64_C(1) << 20);
}
