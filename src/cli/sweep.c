/* `ebb sweep`, which only the job server uses: ends the remaining processes of a job whose
 * supervisor and sentinel were killed. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "supervise/lost.h"
#include "proc/procfs.h"

struct sweep_options {
    int64_t lock_fd;
    const char *folder_id;
    uint64_t grace_ns;
};

#define AT(member) offsetof(struct sweep_options, member)
static const struct option_desc sweep_table[] = {
    OPTION_ROW(0, "lock-fd", INT, "N", AT(lock_fd), .fallback = "-1", .min = -1, .max = INT32_MAX,
               .help = "file descriptor of the job's lock, which is held until this command exits"),
    OPTION_ROW(
        0, "folder-id", TEXT, "ID", AT(folder_id),
        .help = "id that RUN_DIR must have; a folder with another id is neither read nor written"),
    OPTION_ROW(0, "grace", DURATION, "TIME", AT(grace_ns), .fallback = "5s", .max = 3600000,
               .help = "time between SIGTERM and SIGKILL"),
    {0},
};

static int sweep_exec(const struct cli_call *call, struct err *err)
{
    const struct sweep_options *o = call->options;
    const char *path = call->argv[0];
    struct proc_root root;
    const int lock = (int)o->lock_fd;
    if (path[0] != '/')
        return err_set(err, -EINVAL, "%s is not an absolute path", path);
    int r = lost_take_lock(lock, err);
    if (r == 0)
        r = proc_root_open("/proc", "/sys/fs/cgroup", &root, err);
    if (r < 0)
        return r;
    prctl(PR_SET_NAME, "ebb-sweep");
    if (lock >= 0)
        lost_sign_lock(&root, lock);
    r = lost_end_job(&root, path, o->folder_id ? o->folder_id : "", o->grace_ns);
    proc_root_close(&root);
    return r < 0 ? err_set(err, r, "cannot end the processes of %s: %s", path, strerror(-r)) : 0;
}

const struct cli_command cmd_sweep = {
    .name = "sweep",
    .operands = "RUN_DIR",
    .summary = "end the remaining processes of a job whose supervisor was killed",
    .description =
        "Used by the job server after the job's supervisor and sentinel were both killed.",
    .options = sweep_table,
    .options_size = sizeof(struct sweep_options),
    .exec = sweep_exec,
};
