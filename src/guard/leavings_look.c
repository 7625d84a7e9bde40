/* Which process of the job has a new file open or mapped. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "guard/leavings_private.h"

#define LOOK_NS (5 * NS_PER_MS)
#define MAPS_GAP_NS NS_PER_S
#define GAP_MAX_NS (300 * NS_PER_S)

/* Looking takes at most one part in so many of our time, however many files come. */
enum { REST_PER_WORK = 20, FDS_MAX = 4096 };

static void mark(struct leavings *l, uint64_t dev, uint64_t ino, uint32_t bit)
{
    struct known *file = known_find(&l->fresh, dev, ino);
    if (file != NULL)
        file->marks |= bit;
}

/* A name in the folder, or the same file by the mount of another container. Other links are not
 * followed: a stat of a file on a dead server does not return. */
static bool may_be_ours(const struct leavings *l, const char *link, size_t len)
{
    if (len > l->folder_len && memcmp(link, l->folder, l->folder_len) == 0)
        return true;
    const char *slash = memrchr(link, '/', len);
    if (slash == NULL || link[0] != '/')
        return false;
    size_t name_len = (size_t)(link + len - slash - 1);
    for (size_t i = 0; i < l->fresh.count; i++)
        if (strncmp(l->fresh.v[i].name, slash + 1, name_len) == 0 &&
            l->fresh.v[i].name[name_len] == '\0')
            return true;
    return false;
}

void leavings_mark_open(struct leavings *l, int fd_folder, uint32_t bit)
{
    DIR *dir = fdopendir(fd_folder);
    if (dir == NULL) {
        close(fd_folder);
        return;
    }
    const struct dirent *e;
    for (int looked = 0; looked < FDS_MAX && (e = readdir(dir)) != NULL; looked++) {
        char link[1024];
        struct stat st;
        ssize_t len = readlinkat(fd_folder, e->d_name, link, sizeof(link));
        if (len > 0 && may_be_ours(l, link, (size_t)len) &&
            fstatat(fd_folder, e->d_name, &st, 0) == 0)
            mark(l, st.st_dev, st.st_ino, bit);
    }
    closedir(dir);
}

static void read_piece(void *arg)
{
    struct maps_reader *m = arg;
    m->got = read(m->fd, m->text + m->len, sizeof(m->text) - m->len);
}

bool leavings_mark_mapped(struct leavings *l, uint32_t bit)
{
    struct maps_reader *m = &l->maps;
    if (!m->is_away) {
        int r = proc_helper_call(l->helper, read_piece, m, NULL);
        m->is_away = r == -EINPROGRESS;
        if (r < 0)
            return false;
    } else if (proc_helper_is_busy(l->helper)) {
        return false;
    }
    m->is_away = false;
    if (m->got > 0)
        m->len += (size_t)m->got;
    const char *end = m->got > 0 ? memrchr(m->text, '\n', m->len) : NULL;
    if (end == NULL) { /* the last line, too, ends in a newline; none is as long as the text */
        close(m->fd);
        m->fd = -1;
        return true;
    }
    const char *p = m->text;
    for (struct proc_map map; proc_maps_next(&p, end + 1, &map) == 1;)
        if (map.inode != 0 &&
            makedev((unsigned)map.dev_major, (unsigned)map.dev_minor) == l->folder_dev)
            mark(l, l->folder_dev, map.inode, bit);
    m->len -= (size_t)(end + 1 - m->text);
    memmove(m->text, end + 1, m->len);
    return true;
}

/* Names. */

static bool was_born(const struct leavings *l, int32_t pid)
{
    size_t count = l->pid_at < LEAVINGS_PIDS ? l->pid_at : LEAVINGS_PIDS;
    for (size_t i = 0; i < count; i++)
        if (l->pids[i] == pid)
            return true;
    return false;
}

/* Somebody has this number now. A zombie is taken for the one we knew: it cannot have been long. */
static bool is_taken(const struct leavings *l, int32_t pid)
{
    char path[32], text[1024];
    struct proc_stat st;
    snprintf(path, sizeof(path), "%d/stat", pid);
    ssize_t len = io_read_small(l->proc_fd, path, text, sizeof(text));
    if (len == -ENOENT || len == -ESRCH)
        return false;
    return len < 0 || proc_stat_parse(text, (size_t)len, &st) < 0 || st.state != 'Z';
}

/* "torch_1234_567_0": the pid of the process that made it. */
static bool is_named_by_job(const struct leavings *l, struct proc_tree *tree, const char *name)
{
    static const char prefix[] = "torch_";
    const size_t skip = sizeof(prefix) - 1;
    int32_t pid;
    if (strncmp(name, prefix, skip) != 0)
        return false;
    size_t digits = strspn(name + skip, "0123456789");
    if (name[skip + digits] != '_' || proc_pids_parse(name + skip, digits, &pid, 1) != 1)
        return false;
    if (tree != NULL && proc_tree_find(tree, pid) != NULL)
        return true;
    return was_born(l, pid) && !is_taken(l, pid);
}

void leavings_prove_by_name(struct leavings *l, struct proc_tree *tree)
{
    for (size_t i = 0; i < l->fresh.count; i++) {
        struct known *file = &l->fresh.v[i];
        if (!(file->marks & KNOWN_JOBS) && is_named_by_job(l, tree, file->name))
            file->marks |= KNOWN_JOBS;
    }
}

/* Rounds over the processes. */

static bool is_due(const struct leavings *l, uint64_t now_ns)
{
    for (size_t i = 0; i < l->fresh.count; i++)
        if (!(l->fresh.v[i].marks & KNOWN_JOBS) && l->fresh.v[i].due_ns <= now_ns)
            return true;
    return false;
}

static bool is_any_unproven(const struct leavings *l)
{
    for (size_t i = 0; i < l->fresh.count; i++)
        if (!(l->fresh.v[i].marks & KNOWN_JOBS))
            return true;
    return false;
}

static void end_round(struct leavings *l)
{
    l->in_round = false;
    for (size_t i = 0; i < l->fresh.count; i++) {
        struct known *file = &l->fresh.v[i];
        if (file->due_ns > l->round_ns)
            continue; /* came while it was under way, and is for the next */
        file->due_ns = l->round_ns + file->gap_ns;
        file->gap_ns = file->gap_ns < GAP_MAX_NS / 2 ? file->gap_ns * 2 : GAP_MAX_NS;
    }
}

/* The first process that is still to be asked; they are in the order of their slots. */
static struct proc_node *next_process(const struct leavings *l, struct proc_tree *tree)
{
    size_t low = 0, high = proc_tree_count(tree);
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (proc_tree_at(tree, mid)->slot < l->next_slot)
            low = mid + 1;
        else
            high = mid;
    }
    return low < proc_tree_count(tree) ? proc_tree_at(tree, low) : NULL;
}

static void begin_maps(struct leavings *l, struct proc_tree *tree, struct proc_node *node,
                       uint64_t now_ns)
{
    size_t i = node->slot % LEAVINGS_TURNS;
    if (l->turns[i].slot == node->slot && now_ns < l->turns[i].next_ns)
        return;
    l->turns[i].slot = node->slot;
    l->turns[i].next_ns = now_ns + MAPS_GAP_NS;
    int fd = proc_node_open(tree, node, "maps", O_RDONLY);
    l->maps.fd = fd < 0 ? -1 : fd;
    l->maps.len = 0;
}

static void ask_next(struct leavings *l, struct proc_tree *tree, uint64_t now_ns)
{
    struct proc_node *node = next_process(l, tree);
    if (node == NULL) {
        end_round(l);
        return;
    }
    l->next_slot = node->slot + 1;
    int fds = proc_node_open(tree, node, "fd", O_RDONLY | O_DIRECTORY);
    if (fds >= 0)
        leavings_mark_open(l, fds, KNOWN_JOBS);
    if (is_any_unproven(l))
        begin_maps(l, tree, node, now_ns);
}

static void work(struct leavings *l, struct proc_tree *tree, uint64_t now_ns)
{
    uint64_t began = clock_mono_ns(), took = 0;
    bool is_held_up = false;
    l->helper = proc_tree_helper(tree);
    proc_tree_walk(tree, now_ns); /* who made a file may be younger than the last walk */
    if (!l->in_round) {
        l->in_round = true;
        l->next_slot = 0;
        l->round_ns = now_ns;
    }
    do {
        if (!is_any_unproven(l) && l->maps.fd < 0)
            end_round(l);
        else if (l->maps.fd >= 0)
            is_held_up = !leavings_mark_mapped(l, KNOWN_JOBS);
        else
            ask_next(l, tree, now_ns);
        took = clock_mono_ns() - began;
    } while (l->in_round && took < LOOK_NS && !is_held_up);
    l->rest_ns = now_ns + took * REST_PER_WORK;
}

void leavings_look(struct leavings *l, struct proc_tree *tree, uint64_t now_ns)
{
    leavings_hear(l, now_ns);
    if (l->must_rescan && l->fresh.count < LEAVINGS_FILES / 2)
        leavings_rescan(l, now_ns);
    if (now_ns < l->rest_ns || (!l->in_round && !is_due(l, now_ns)))
        return;
    leavings_prove_by_name(l, tree);
    if (l->in_round || is_due(l, now_ns))
        work(l, tree, now_ns);
}
