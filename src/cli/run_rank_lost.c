/* Records the end of a node whose supervisor and sentinel were killed. */
#include "cli/run_rank_lost.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "run/outcome.h"
#include "supervise/lost.h"

enum {
    JSON_MAX = 16 << 20,
    POLL_MS = 50,
    SENTINEL_MS = 1500, /* how long to wait for the sentinel, which writes at once */
    NEXT_RANK_MS = 200, /* how long to wait for each rank with a lower number */
    RANKS_WAITED = 5,
    WAIT_MS = 4000, /* how long this rank waits for the child before it exits */
};

static bool is_end_recorded(int folder)
{
    struct outcome o = {0};
    bool has_ended =
        outcome_read_folder(folder, JSON_MAX, NULL, &o) == 0 && !outcome_is_running(&o);
    outcome_fini(&o);
    return has_ended;
}

static void record_lost(const char *run_dir, uint32_t local_rank)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    unsigned before = local_rank < RANKS_WAITED ? local_rank : RANKS_WAITED;
    uint64_t until_ns = clock_mono_ns() + (SENTINEL_MS + before * NEXT_RANK_MS) * NS_PER_MS;
    AUTO_CLOSE int folder = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    while (folder >= 0 && !is_end_recorded(folder)) {
        if (clock_mono_ns() >= until_ns) {
            const struct outcome_end end = lost_end(CAUSE_SENTINEL, 0);
            lost_write(folder, &end);
            return;
        }
        nanosleep(&pause, NULL);
    }
}

pid_t run_rank_lost_start(uint32_t local_rank)
{
    const char *run_dir = getenv("EBB_RUN_DIR");
    if (!run_dir || !run_dir[0])
        return 0;
    pid_t pid = fork();
    if (pid > 0)
        return pid;
    if (pid < 0)
        return 0;
    prctl(PR_SET_NAME, "ebb-lost");
    for (int fd = 0; fd < 256; fd++) /* srun waits until the rank's streams are closed */
        close(fd);
    record_lost(run_dir, local_rank);
    _exit(0);
}

void run_rank_lost_wait(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    uint64_t until_ns = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0 && clock_mono_ns() < until_ns)
        nanosleep(&pause, NULL);
}
