/* Ends a rank: fills torchrun's error file, waits for the other nodes, prints the summary of the
 * job, and sets the comment of the Slurm job to its first line. */
#include "cli/run_rank_end.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/cluster_read.h"
#include "options/run_options.h"
#include "run/outcome.h"
#include "supervise/rank_place.h"

enum {
    RUN_JSON_MAX = 16 << 20,
    BEAT_MAX = 4096,
    POLL_MS = 100,
    NODES_MS = 10000, /* how long to wait for nodes that have not ended */
    /* how long to wait if a rank failed, because the scheduler should be notified soon */
    NODES_FAILED_MS = 2000,
    /* how long to wait if no other node has a folder here, or no node can write */
    NO_NODE_MS = 1000,
    SCONTROL_MS = 3000,
    COMMENT_MAX = 160,
};

/* ---- torchrun ---- */

/* Writes WHY to the file in which torchrun looks for the exception of a rank. A file that the rank
 * has written itself is left alone. */
static void fill_error_file(const char *why)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char sentence[600], now[32];
    if (!path || !path[0])
        return;
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return;
    snprintf(sentence, sizeof sentence, "ebb: %s", why);
    snprintf(now, sizeof now, "%llu", (unsigned long long)(clock_wall_ns() / NS_PER_S));
    json_t *doc = json_pack("{s:{s:s,s:{s:s,s:s}}}", "message", "message", sentence, "extraInfo",
                            "py_callstack", sentence, "timestamp", now);
    (void)json_write(fd, doc, 0);
    json_decref(doc);
}

/* ---- the other nodes ---- */

static bool has_end(int node_fd)
{
    struct outcome o = {0};
    if (node_fd < 0 || outcome_read_folder(node_fd, RUN_JSON_MAX, NULL, &o) < 0)
        return false;
    bool has_ended = o.about.state && strcmp(o.about.state, "ended") == 0;
    outcome_fini(&o);
    return has_ended;
}

/* True if the node has written its last heartbeat. On a full disk it can still do so, because the
 * heartbeat is rewritten in place; a new run.json cannot be written. */
static bool has_last_beat(int node_fd)
{
    struct buf text = {0};
    json_t *doc = node_fd >= 0 && io_read_plain(node_fd, "heartbeat", BEAT_MAX, &text) == 0
                      ? json_parse(text.data, text.len, NULL)
                      : NULL;
    const char *state = json_string_value(json_object_get(doc, "state"));
    bool has_ended = state && strcmp(state, "ended") == 0;
    json_decref(doc);
    buf_fini(&text);
    return has_ended;
}

static bool node_has_ended(int job_fd, const char *name)
{
    AUTO_CLOSE int fd = openat(job_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return has_end(fd) || has_last_beat(fd);
}

/* Finds the newest folder of a node. Returns false if there is none. */
static bool find_node(int job_fd, uint32_t number, char ret[32])
{
    bool is_found = false;
    for (unsigned k = 0;; k++) {
        char name[32];
        int n = snprintf(name, sizeof name, "node-%02u", number);
        if (k)
            snprintf(name + n, sizeof name - (size_t)n, ".%u", k);
        if (faccessat(job_fd, name, F_OK, 0) < 0)
            return is_found;
        memcpy(ret, name, sizeof name);
        is_found = true;
    }
}

struct nodes_now {
    uint32_t missing, running;
};

static struct nodes_now count_nodes(int job_fd, const struct rank_place *place)
{
    struct nodes_now now = {0};
    char name[32];
    for (uint32_t i = 0; i < place->nodes; i++) {
        if (!find_node(job_fd, i, name))
            now.missing++;
        else if (!node_has_ended(job_fd, name))
            now.running++;
    }
    return now;
}

/* Waits until all nodes have written their end. A signal ends the wait. */
static struct nodes_now wait_for_nodes(int job_fd, const struct rank_place *place, bool can_write,
                                       bool has_failed)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    uint64_t start_ns = clock_mono_ns();
    struct nodes_now now;
    sigset_t signals;
    sigfillset(&signals);
    sigdelset(&signals, SIGCHLD);
    for (;;) {
        now = count_nodes(job_fd, place);
        uint64_t most_ms = now.missing == place->nodes - 1 || !can_write ? NO_NODE_MS
                           : has_failed                                  ? NODES_FAILED_MS
                                                                         : NODES_MS;
        if (now.missing + now.running == 0 || clock_mono_ns() - start_ns >= most_ms * NS_PER_MS ||
            sigtimedwait(&signals, NULL, &pause) > 0)
            return now;
    }
}

/* ---- the summary ---- */

/* Sets the comment of the job, which `scontrol show job` and `squeue -o %k` print. */
static void set_comment(const struct rank_place *place, const char *line)
{
    static char name[] = "scontrol", verb[] = "update";
    char job[96], comment[COMMENT_MAX + 32];
    const struct timespec pause = {.tv_nsec = 20 * (long)NS_PER_MS};
    pid_t pid;
    if (strncmp(line, "ebb  ", 5) == 0)
        line += 5;
    size_t len = strcspn(line, "(\n"); /* the headline without its confidence */
    while (len && line[len - 1] == ' ')
        len--;
    snprintf(job, sizeof job, "JobId=%s", place->job_id);
    snprintf(comment, sizeof comment, "Comment=ebb: %.*s",
             len > COMMENT_MAX ? COMMENT_MAX : (int)len, line);
    char *argv[] = {name, verb, job, comment, NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (int fd = 1; fd <= 2; fd++)
        posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
    unsetenv("LD_PRELOAD");
    int r = posix_spawnp(&pid, name, &quiet, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    for (int ms = 0; r == 0 && waitpid(pid, NULL, WNOHANG) == 0; ms += 20) {
        if (ms >= SCONTROL_MS)
            kill(pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
}

static void print_summary(const struct run_options *o, const struct rank_place *place,
                          const char *job_dir)
{
    struct buf text = {0};
    AUTO_CLOSE int fd = memfd_create("ebb-summary", MFD_CLOEXEC);
    struct stat st;
    if (fd < 0 || cluster_print_end(fd, job_dir, o->json) < 0 || fstat(fd, &st) < 0 ||
        buf_reserve(&text, (size_t)st.st_size + 1) < 0)
        return;
    ssize_t len = pread(fd, text.data, (size_t)st.st_size, 0);
    text.len = len > 0 ? (size_t)len : 0;
    if (!o->quiet && cli_colour(STDERR_FILENO))
        (void)cluster_print_end(STDERR_FILENO, job_dir, o->json);
    else if (!o->quiet)
        (void)io_write_all(STDERR_FILENO, text.data, text.len);
    const char *line = buf_str(&text);
    if (place->is_slurm && !o->json)
        set_comment(place, line);
    buf_fini(&text);
}

static void end_job(const struct run_options *o, const struct rank_place *place,
                    const char *node_dir, bool has_failed)
{
    char job_dir[PATH_MAX];
    const char *slash = strrchr(node_dir, '/');
    if (!slash)
        return;
    snprintf(job_dir, sizeof job_dir, "%.*s", (int)(slash - node_dir), node_dir);
    AUTO_CLOSE int fd = open(job_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    AUTO_CLOSE int own = openat(fd, slash + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct nodes_now now = wait_for_nodes(fd, place, has_end(own), has_failed);
    if (now.missing && now.missing == place->nodes - 1)
        cli_say("only node %u is in %s: the nodes do not share this folder, and each has recorded "
                "its own ranks; choose a shared folder with --run-dir",
                place->node, job_dir);
    print_summary(o, place, job_dir);
}

void run_rank_end(const struct run_options *o, const struct rank_place *place, const json_t *bye,
                  bool has_failed)
{
    const char *node_dir = json_string_value(json_object_get(bye, "print"));
    const char *why = json_string_value(json_object_get(bye, "why"));
    if (why)
        fill_error_file(why);
    if (node_dir)
        end_job(o, place, node_dir, has_failed);
}
