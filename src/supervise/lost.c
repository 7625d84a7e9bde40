/* Cleans up after a killed supervisor. */
#include "supervise/lost.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "proc/read.h"
#include "base/text.h"
#include "guard/cgroup.h"
#include "guard/sweep.h"
#include "mark/receiver.h"
#include "trace/rundir.h"

/* maximum size of run.json; if the file is larger or invalid, it is replaced by one that contains
 * only the end of the job */
enum { JSON_MAX = 2 << 20 };

int lost_take_lock(int64_t lock_fd, struct err *err)
{
    if (lock_fd < 0)
        return 0;
    if (lock_fd <= STDERR_FILENO || fcntl((int)lock_fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(err, -EBADF, "--lock-fd %d: the file descriptor is not open", (int)lock_fd);
    return 0;
}

void lost_sign_lock(const struct proc_root *root, int lock_fd)
{
    char line[48];
    struct proc_stat stat;
    if (proc_read_stat(root, 0, &stat) < 0)
        return;
    int n = snprintf(line, sizeof line, "%d %llu\n", (int)getpid(),
                     (unsigned long long)stat.start_ticks);
    if (ftruncate(lock_fd, 0) == 0)
        (void)!pwrite(lock_fd, line, (size_t)n, 0);
}

/* Writes END to run.json. Takes ownership of O. */
static void write_outcome(int rundir_fd, struct outcome *o, const struct outcome_end *end)
{
    const struct rundir dir = {.fd = rundir_fd};
    char text[TEXT_LOCAL_MAX];
    json_auto_t *doc = json_object();
    outcome_set_text(&o->about.state, "ended");
    outcome_set_text(&o->ended, text_local_time(text, clock_wall_ns()));
    outcome_put(o, doc);
    json_object_set_new(doc, "end", outcome_end_json(end));
    (void)rundir_write_json(&dir, doc);
    outcome_fini(o);
}

struct outcome_end lost_end(enum cause cause, int left_behind)
{
    return (struct outcome_end){.kind = OUTCOME_LOST,
                                .by = (char *)(uintptr_t)cause_by_text(cause),
                                .has_left_behind = true,
                                .left_behind = (uint64_t)left_behind};
}

void lost_write(int rundir_fd, const struct outcome_end *end)
{
    struct outcome o = {0};
    if (rundir_fd >= 0)
        (void)outcome_read_folder(rundir_fd, JSON_MAX, NULL, &o);
    write_outcome(rundir_fd, &o, end);
}

/* ---- cleaning up after both supervisor and sentinel were killed ---- */

/* True if the cgroup DIR was created by a dead ebb process of this user. Other cgroups are
 * rejected: the job itself can write run.json, and could put the path of another run's cgroup
 * there. */
static bool is_lost_cgroup(const struct proc_root *root, const char *dir)
{
    struct stat st;
    return dir[0] != '/' && !strstr(dir, "..") && strlen(dir) < GUARD_CGROUP_PATH &&
           !guard_cgroup_maker_lives(root, dir) &&
           fstatat(root->cgroup_fd, dir, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

/* Removes the sockets' folder. PATH is the path of the control socket in it. */
static void remove_sockets(const char *path)
{
    char folder[128];
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
    struct outcome o = {0};
    if (dir >= 0)
        (void)outcome_read_folder(dir, JSON_MAX, NULL, &o);
    struct guard_cgroup cgroup = guard_cgroup_none;
    if (o.about.cgroup_count && o.about.cgroup[0] && is_lost_cgroup(root, o.about.cgroup[0]))
        memcpy(cgroup.dir, o.about.cgroup[0], strlen(o.about.cgroup[0]) + 1);
    const char *slash = strrchr(cgroup.dir, '/');
    const struct stray_signs signs = {.run_dir = run_dir, .cgroup = slash ? slash + 1 : ""};
    int ended = guard_end_strays(root, &signs, grace_ns);
    guard_cgroup_remove(root, &cgroup, clock_mono_ns() + GUARD_CGROUP_BUSY_MS * NS_PER_MS);
    remove_sockets(o.about.control);
    const struct outcome_end end = lost_end(CAUSE_SENTINEL, ended > 0 ? ended : 0);
    write_outcome(dir, &o, &end);
    return ended < 0 ? ended : 0;
}
