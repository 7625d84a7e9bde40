/* Ends a rank: fills torchrun's error file, waits for the other nodes, prints the summary of the
 * job, and sets the comment of the Slurm job to the first line of the summary. */
#include "cli/run_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
#include "cli/run_end.h"
#include "options/run_options.h"
#include "run/outcome.h"
#include "supervise/node_folder.h"
#include "supervise/rank.h"

enum {
    RUN_JSON_MAX = 16 << 20,
    BEAT_MAX = 4096,
    POLL_MS = 100,
    NODES_MS = 10000, /* maximum wait for nodes that have not ended */
    /* maximum wait if this rank has failed; short, because the scheduler should learn about the
     * failure soon */
    NODES_FAILED_MS = 2000,
    /* maximum wait if the job folder has no folder of another node, or if the end of this node
     * could not be recorded */
    NO_NODE_MS = 1000,
    /* maximum time to check the folder of one node, because access to a shared folder may hang */
    NODE_MS = 5000,
    SUMMARY_MS = 30000, /* maximum time to make the summary */
    SCONTROL_MS = 3000,
    COMMENT_MAX = 160,
};

/* ---- torchrun ---- */

/* Writes WHY to the file in which torchrun looks for the exception of a rank, unless the rank has
 * created that file itself. */
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

/* ---- the process that reads the folder ----
 *
 * Access to the folder may hang, and a process that waits for a file server cannot always be
 * killed. So a child process reads the folder, and sends one byte for each step of its progress. */

enum progress {
    PROGRESS_NODE = 'n',  /* the folder of one more node was checked */
    PROGRESS_APART = 'a', /* the job folder has no folder of another node */
    /* the child begins to make the summary, which takes longer than a node's folder */
    PROGRESS_SUMMARY = 's',
};

static void report(int fd, enum progress what)
{
    const char byte = (char)what;
    (void)!write(fd, &byte, 1);
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

/* True if the node has written its last heartbeat. Unlike run.json, a heartbeat can be written on a
 * full disk, because its file is overwritten in place. */
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

struct nodes_now {
    uint32_t missing, running;
};

static struct nodes_now count_nodes(int job_fd, const struct rank_place *place, int progress_fd)
{
    struct nodes_now now = {0};
    char name[NODE_FOLDER_MAX];
    for (uint32_t i = 0; i < place->nodes; i++) {
        if (!node_folder_newest(job_fd, i, name))
            now.missing++;
        else if (!node_has_ended(job_fd, name))
            now.running++;
        report(progress_fd, PROGRESS_NODE);
    }
    return now;
}

/* Waits until every node has recorded its end, or until a time limit or a signal. */
static struct nodes_now wait_for_nodes(int job_fd, const struct rank_place *place, bool can_write,
                                       bool has_failed, int progress_fd)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * (long)NS_PER_MS};
    uint64_t start_ns = clock_mono_ns();
    struct nodes_now now;
    sigset_t signals;
    sigfillset(&signals);
    sigdelset(&signals, SIGCHLD);
    for (;;) {
        now = count_nodes(job_fd, place, progress_fd);
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

struct end_reader {
    const struct run_options *options;
    const struct rank_place *place;
    const char *job_dir, *node_name;
    bool has_failed;
    bool has_colour;
    pid_t pid;
    int progress_fd;
    int text_fd; /* memfd with the summary */
};

static _Noreturn void be_reader(const struct end_reader *e)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "ebb-summary");
    /* releases standard error, because srun waits until all streams of a rank are closed */
    if (!e->has_colour)
        dup2(e->text_fd, STDERR_FILENO);
    for (int fd = 0; fd < 256; fd++)
        if (fd != e->progress_fd && fd != e->text_fd && fd != STDERR_FILENO)
            close(fd);
    int fd = open(e->job_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        _exit(1);
    int own = openat(fd, e->node_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct nodes_now now =
        wait_for_nodes(fd, e->place, has_end(own), e->has_failed, e->progress_fd);
    if (now.missing && now.missing == e->place->nodes - 1)
        report(e->progress_fd, PROGRESS_APART);
    report(e->progress_fd, PROGRESS_SUMMARY);
    int r = cluster_print_end(e->text_fd, e->job_dir, e->options->json);
    if (r == 0 && e->has_colour)
        (void)cluster_print_end(STDERR_FILENO, e->job_dir, e->options->json);
    _exit(r < 0);
}

static int start_reader(struct end_reader *e)
{
    int progress[2];
    if (pipe2(progress, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    e->progress_fd = progress[1];
    e->pid = fork();
    if (e->pid == 0)
        be_reader(e);
    int r = e->pid < 0 ? -errno : 0;
    e->progress_fd = progress[0];
    close(progress[1]);
    return r;
}

/* Reads reports of progress. Returns the time limit for the next report, or 0 after the last one.
 */
static uint64_t take_progress(const struct end_reader *e)
{
    char bytes[64];
    uint64_t limit_ms = NODE_MS;
    ssize_t n = read(e->progress_fd, bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == PROGRESS_SUMMARY)
            limit_ms = SUMMARY_MS;
        if (bytes[i] == PROGRESS_APART)
            cli_say("only node %u has written to %s: the others have not started yet, or the nodes "
                    "do not share this folder and each records its own ranks (--run-dir chooses "
                    "another folder)",
                    e->place->node, e->job_dir);
    }
    return n == 0 ? 0 : limit_ms;
}

/* Waits for the child as long as the child makes progress. Passes signals on to the child; a signal
 * ends the child's wait for other nodes. Returns false if access to the folder hangs. */
static bool follow_reader(const struct end_reader *e)
{
    const struct timespec none = {0};
    uint64_t until_ns = clock_mono_ns() + NODE_MS * NS_PER_MS, limit_ms;
    sigset_t signals;
    sigfillset(&signals);
    sigdelset(&signals, SIGCHLD);
    while (clock_mono_ns() < until_ns) {
        struct pollfd p = {.fd = e->progress_fd, .events = POLLIN};
        int n = poll(&p, 1, POLL_MS);
        if (n > 0 && !(limit_ms = take_progress(e)))
            return true;
        if (n > 0)
            until_ns = clock_mono_ns() + limit_ms * NS_PER_MS;
        for (int signo; (signo = sigtimedwait(&signals, NULL, &none)) > 0;)
            kill(e->pid, signo);
    }
    return false;
}

/* Prints the child's output, which is the summary or an error. */
static void print_summary(const struct end_reader *e, bool is_error)
{
    struct buf text = {0};
    struct stat st;
    if (fstat(e->text_fd, &st) < 0 || st.st_size == 0 ||
        buf_reserve(&text, (size_t)st.st_size + 1) < 0)
        return;
    ssize_t len = pread(e->text_fd, text.data, (size_t)st.st_size, 0);
    text.len = len > 0 ? (size_t)len : 0;
    if (is_error || (!e->options->quiet && !e->has_colour))
        (void)io_write_all(STDERR_FILENO, text.data, text.len);
    if (!is_error && e->place->is_slurm && !e->options->json)
        set_comment(e->place, buf_str(&text));
    buf_fini(&text);
}

static void end_job(const struct run_options *o, const struct rank_place *place,
                    const char *node_dir, bool has_failed)
{
    char job_dir[PATH_MAX];
    int status = 0;
    const char *slash = strrchr(node_dir, '/');
    if (!slash)
        return;
    snprintf(job_dir, sizeof job_dir, "%.*s", (int)(slash - node_dir), node_dir);
    AUTO_CLOSE int text_fd = memfd_create("ebb-summary", MFD_CLOEXEC);
    struct end_reader e = {.options = o,
                           .place = place,
                           .job_dir = job_dir,
                           .node_name = slash + 1,
                           .has_failed = has_failed,
                           .has_colour = !o->quiet && cli_colour(STDERR_FILENO),
                           .text_fd = text_fd};
    if (text_fd < 0 || start_reader(&e) < 0)
        return;
    if (!follow_reader(&e)) {
        kill(e.pid, SIGKILL);
        if (!o->quiet)
            cli_say("no summary: access to the folder %s hangs", job_dir);
    } else if (waitpid(e.pid, &status, 0) == e.pid) {
        print_summary(&e, status != 0);
    }
    close(e.progress_fd);
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
