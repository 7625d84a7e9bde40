/* What is still there at the end, and removing what is the job's and nobody else's. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guard/leavings_private.h"

/* Processes. */

static void mark_used_by(struct leavings *l, const char *pid)
{
    AUTO_CLOSE int dir = openat(l->proc_fd, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    int fds = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fds < 0)
        return; /* not ours to look at */
    leavings_mark_open(l, fds, KNOWN_USED);
    if (l->maps.fd >= 0)
        close(l->maps.fd); /* of a round that the end cut short */
    l->maps.fd = openat(dir, "maps", O_RDONLY | O_CLOEXEC);
    l->maps.len = 0;
    while (l->maps.fd >= 0)
        leavings_mark_mapped(l, KNOWN_USED);
}

void leavings_mark_used(struct leavings *l)
{
    int fd = openat(l->proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strspn(e->d_name, "0123456789") == strlen(e->d_name))
            mark_used_by(l, e->d_name);
    closedir(dir);
}

/* Files. */

enum answer { ANSWER_NO, ANSWER_YES, ANSWER_UNKNOWN };

/* The kernel gives a write lease only where nobody else has the file open or mapped, in whatever
 * container, and whoever opens it then waits until FD is closed. It tells the holder by a signal,
 * SIGIO unless told otherwise, which would end us. */
static enum answer lease(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG) < 0)
        return ANSWER_UNKNOWN;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
        return ANSWER_NO;
    return errno == EAGAIN ? ANSWER_YES : ANSWER_UNKNOWN;
}

/* What processes we may see have open, asked at most once for all files. */
static bool is_seen_used(struct leavings *l, const struct leavings_file *file, bool *scanned)
{
    if (l->maps.is_away)
        return true;  /* nobody can tell */
    l->helper = NULL; /* nobody waits for us any more */
    if (!*scanned)
        leavings_mark_used(l);
    *scanned = true;
    const struct known *known = known_find(&l->fresh, file->dev, file->ino);
    return known != NULL && known->marks & KNOWN_USED;
}

static bool is_same(const struct stat *st, const struct leavings_file *file)
{
    return S_ISREG(st->st_mode) && st->st_dev == file->dev && st->st_ino == file->ino;
}

/* Is *FD, which is FILE, in use? It stays open only as long as it keeps others out. */
static bool is_in_use(struct leavings *l, const struct leavings_file *file, int *fd, bool *scanned)
{
    enum answer answer = lease(*fd);
    if (answer != ANSWER_UNKNOWN)
        return answer == ANSWER_YES;
    close(*fd); /* lest we find ourselves */
    *fd = -1;
    return is_seen_used(l, file, scanned);
}

static void end_file(struct leavings *l, struct leavings_file *file, bool clean, bool *scanned)
{
    struct stat st;
    if (file->uid != geteuid())
        return;
    /* no wait for somebody else's lease, nor for the other end of what is a pipe by now */
    AUTO_CLOSE int fd =
        openat(l->folder_fd, file->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !is_same(&st, file)))
        return;
    file->in_use = fd >= 0 ? is_in_use(l, file, &fd, scanned)
                           : errno == EAGAIN || is_seen_used(l, file, scanned);
    if (clean && !file->in_use &&
        fstatat(l->folder_fd, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_same(&st, file))
        file->removed = unlinkat(l->folder_fd, file->name, 0) == 0;
}

/* By name, so that a report is the same each time. */
static int compare_files(const void *a, const void *b)
{
    const struct leavings_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void list_files(struct leavings *l)
{
    free(l->files);
    l->file_count = 0;
    l->files = calloc(l->fresh.count + 1, sizeof(*l->files));
    for (size_t i = 0; l->files != NULL && i < l->fresh.count; i++) {
        const struct known *known = &l->fresh.v[i];
        struct stat st;
        if (!(known->marks & KNOWN_JOBS) ||
            fstatat(l->folder_fd, known->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        struct leavings_file file = {
            .dev = known->dev,
            .ino = known->ino,
            .bytes = (uint64_t)st.st_blocks * 512,
            .uid = st.st_uid,
        };
        if (!is_same(&st, &file))
            continue;
        snprintf(file.name, sizeof(file.name), "%s", known->name);
        l->files[l->file_count++] = file;
    }
    if (l->file_count > 1)
        qsort(l->files, l->file_count, sizeof(*l->files), compare_files);
}

/* One that a process left behind bound, by the name it bound; a relative name says nothing here. */
static void look_at_socket_files(struct leavings *l)
{
    for (size_t i = 0; i < l->socket_count; i++) {
        struct leavings_socket *s = &l->sockets[i];
        struct stat st;
        s->is_file = s->address[0] == '/' && lstat(s->address, &st) == 0 && S_ISSOCK(st.st_mode);
    }
}

size_t leavings_end(struct leavings *l, bool clean)
{
    leavings_hear(l, 0);
    if (l->must_rescan)
        leavings_rescan(l, 0);
    leavings_prove_by_name(l, NULL);
    list_files(l);
    look_at_socket_files(l);
    bool scanned = false;
    for (size_t i = 0; i < l->file_count; i++)
        end_file(l, &l->files[i], clean, &scanned);
    return l->file_count;
}

size_t leavings_files(const struct leavings *l, const struct leavings_file **ret)
{
    *ret = l->files;
    return l->file_count;
}

bool leavings_were_removed(const struct leavings *l, size_t file)
{
    assert(file < l->file_count && "an index from before the last leavings_end");
    return l->files[file].removed;
}
