/* In the place of a supervisor that is gone. */
#include "supervise/lost.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
#include "guard/sweep.h"
#include "mark/receiver.h"
#include "trace/rundir.h"

enum { JSON_MAX = 2 << 20 };

int lost_take_lock(const char *command, int64_t lock_fd, struct err *err)
{
    if (lock_fd < 0)
        return 0;
    if (lock_fd <= STDERR_FILENO || fcntl((int)lock_fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(err, -EBADF, "%s: --lock-fd %d: no such file is open", command,
                       (int)lock_fd);
    return 0;
}

void lost_sign_lock(const struct proc_root *root, int lock_fd)
{
    char text[1024], line[48];
    struct proc_stat stat;
    ssize_t len = io_read_small(root->proc_fd, "self/stat", text, sizeof text);
    if (len <= 0 || proc_stat_parse(text, (size_t)len, &stat) < 0)
        return;
    int n = snprintf(line, sizeof line, "%d %llu\n", (int)getpid(),
                     (unsigned long long)stat.start_ticks);
    if (ftruncate(lock_fd, 0) == 0)
        (void)!pwrite(lock_fd, line, (size_t)n, 0);
}

/* As it is; an empty one where there is none. */
static json_t *read_doc(int rundir_fd)
{
    struct buf text = {0};
    io_read_plain(rundir_fd, "run.json", JSON_MAX, &text);
    json_t *doc = text.len ? json_parse(text.data, text.len, NULL) : NULL;
    buf_fini(&text);
    if (json_is_object(doc))
        return doc;
    json_decref(doc);
    return json_object();
}

static void write_doc(int rundir_fd, json_t *doc, json_t *end)
{
    const struct rundir dir = {.fd = rundir_fd};
    json_object_set_new(doc, "state", json_string("ended"));
    json_object_set_new(doc, "ended", json_local_time(clock_wall_ns()));
    json_object_set_new(doc, "end", end);
    (void)rundir_write_json(&dir, doc);
}

json_t *lost_end_json(enum cause cause, int left_behind)
{
    return json_pack("{s:s,s:s,s:i}", "kind", cause_kind_name(cause), "by", cause_by_text(cause),
                     "left_behind", left_behind);
}

void lost_write(int rundir_fd, json_t *end)
{
    if (rundir_fd < 0) {
        json_decref(end);
        return;
    }
    json_t *doc = read_doc(rundir_fd);
    write_doc(rundir_fd, doc, end);
    json_decref(doc);
}

/* ---- nobody watches it ---- */

json_t *lost_cgroup_json(const struct guard_cgroup *g)
{
    json_t *list = json_array();
    if (g->memory_dir[0])
        json_array_append_new(list, json_text0(g->memory_dir));
    if (g->kill_dir[0] && strcmp(g->kill_dir, g->memory_dir) != 0)
        json_array_append_new(list, json_text0(g->kill_dir));
    return list;
}

/* run.json is in the hands of the job, which could name the group or the sockets of another run
 * there. Only what a dead ebb of our own user can have made is taken for its own. */

static bool is_lost_cgroup(const struct proc_root *root, const char *dir)
{
    struct stat st;
    return dir[0] != '/' && !strstr(dir, "..") && strlen(dir) < GUARD_CGROUP_PATH &&
           !guard_cgroup_maker_lives(root, dir) &&
           fstatat(root->cgroup_fd, dir, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

static void read_cgroup(const struct proc_root *root, const json_t *doc, struct guard_cgroup *ret)
{
    char *const dirs[] = {ret->memory_dir, ret->kill_dir};
    *ret = guard_cgroup_none;
    for (size_t i = 0; i < 2; i++) {
        const char *dir = json_string_value(json_array_get(json_object_get(doc, "cgroup"), i));
        if (dir && is_lost_cgroup(root, dir))
            memcpy(dirs[i], dir, strlen(dir) + 1);
    }
}

/* The folder of the sockets, by the control socket's path. */
static void remove_sockets(const json_t *doc)
{
    char folder[128];
    const char *path = json_string_value(json_object_get(doc, "control"));
    const char *slash = path && path[0] == '/' ? strrchr(path, '/') : NULL;
    if (!slash || strcmp(slash, "/control") != 0 || (size_t)(slash - path) >= sizeof folder)
        return;
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = '\0';
    mark_folder_remove_abandoned(folder);
}

int lost_end_job(const struct proc_root *root, const char *run_dir, const char *folder_id,
                 uint64_t grace_ns)
{
    AUTO_CLOSE int dir = rundir_open_signed(AT_FDCWD, run_dir, folder_id);
    json_t *doc = dir < 0 ? json_object() : read_doc(dir);
    struct guard_cgroup cgroup;
    read_cgroup(root, doc, &cgroup);
    const char *slash = strrchr(cgroup.memory_dir, '/');
    const struct stray_signs signs = {.run_dir = run_dir, .cgroup = slash ? slash + 1 : ""};
    int ended = guard_end_strays(root, &signs, grace_ns);
    guard_cgroup_remove(root, &cgroup, clock_mono_ns() + GUARD_CGROUP_BUSY_MS * NS_PER_MS);
    remove_sockets(doc);
    if (dir >= 0)
        write_doc(dir, doc, lost_end_json(CAUSE_SENTINEL, ended > 0 ? ended : 0));
    json_decref(doc);
    return ended < 0 ? ended : 0;
}
