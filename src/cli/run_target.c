/* Finds the run that a folder or a pid refers to, and makes its supervisor read the heap again. */
#include "cli/run_target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/claim.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "judge/cluster.h"
#include "mark/mark.h"
#include "proc/procfs.h"
#include "proc/read.h"
#include "proc/tree.h"
#include "run/outcome.h"

/* ---- queries ---- */

enum { ANSWER_MAX = 64 << 10, SEND_WAIT_MS = 2000 };

int run_target_bind(const char *marks, const char *what, struct sockaddr_un *ret)
{
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (snprintf(ret->sun_path, sizeof ret->sun_path, "%s.%s-%d", marks, what, (int)getpid()) >=
        (int)sizeof ret->sun_path)
        return -ENAMETOOLONG;
    (void)unlink(ret->sun_path);
    if (bind(fd, (const struct sockaddr *)ret, sizeof *ret) < 0)
        return -errno;
    /* If root queries another user's run, the supervisor of that run must be able to answer, so
     * every user may write to the socket. Only the run's owner and root may enter the socket's
     * folder. */
    if (chmod(ret->sun_path, 0666) < 0) {
        int r = -errno;
        (void)unlink(ret->sun_path);
        return r;
    }
    int kept = fd;
    fd = -1;
    return kept;
}

static json_t *wait_answer(int fd, uint64_t timeout_ns, struct err *err)
{
    char text[ANSWER_MAX];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t until = clock_mono_ns() + timeout_ns;
    for (uint64_t now; (now = clock_mono_ns()) < until;) {
        int r = poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1);
        if (r < 0 && errno != EINTR)
            break;
        ssize_t len = r > 0 ? recv(fd, text, sizeof text, 0) : -1;
        if (len > 0)
            return json_parse(text, (size_t)len, err);
    }
    err_set(err, -ETIMEDOUT, "the run's supervisor did not answer");
    return NULL;
}

/* Sends QUERY ("KIND=query NAME=… ") with a REPLY line added. Returns the supervisor's answer as
 * JSON, or NULL and an error if none arrived within TIMEOUT_NS. */
static json_t *ask_supervisor(const char *marks, const char *query, uint64_t timeout_ns,
                              struct err *err)
{
    struct sockaddr_un own;
    char text[MARK_TEXT_MAX];
    json_t *answer = NULL;
    AUTO_CLOSE int fd = run_target_bind(marks, "ask", &own);
    if (fd < 0) {
        err_set(err, fd, "cannot send a query to the run's supervisor: %s", strerror(-fd));
        return NULL;
    }
    int len = snprintf(text, sizeof text, "%sREPLY=%s\n", query, own.sun_path);
    int r = mark_send(marks, text, (size_t)len, SEND_WAIT_MS);
    if (r < 0)
        err_set(err, r, "cannot send a query to the run's supervisor: %s", strerror(-r));
    else
        answer = wait_answer(fd, timeout_ns, err);
    (void)unlink(own.sun_path);
    return answer;
}

/* ---- finding a run ---- */

enum { RUN_JSON_MAX = 16 << 20, ENVIRON_MAX = 64 << 20, ANSWER_S = 10 };

static void target_take_socket(struct run_target *run, const char *marks)
{
    if (marks && strlen(marks) < sizeof run->marks && access(marks, F_OK) == 0)
        memcpy(run->marks, marks, strlen(marks) + 1);
}

static void target_take_obstacle(struct run_target *run, const json_t *heap)
{
    const char *trouble = json_string_value(json_object_get(heap, "trouble"));
    if (json_is_false(json_object_get(heap, "on")))
        snprintf(run->obstacle, sizeof run->obstacle, "%s",
                 trouble ? trouble : "the job was run with --no-heap or EBB_HEAP=0");
}

static int target_by_folder(const char *folder, struct run_target *run, struct err *err)
{
    AUTO_CLOSE int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    json_t *doc = NULL;
    struct outcome o;
    if (fd < 0)
        return err_set(err, -errno, "%s: %s; give a run folder or a pid", folder, strerror(errno));
    if (strlen(folder) >= sizeof run->folder)
        return err_set(err, -ENAMETOOLONG, "path too long: %s", folder);
    /* a missing or invalid run.json is not an error, because the path of the folder is
     * sufficient */
    (void)outcome_read_folder(fd, RUN_JSON_MAX, &doc, &o);
    memcpy(run->folder, folder, strlen(folder) + 1);
    if (outcome_is_running(&o))
        target_take_socket(run, o.about.socket);
    target_take_obstacle(run, json_object_get(doc, "heap"));
    outcome_fini(&o);
    json_decref(doc);
    return 0;
}

/* Finds the run of process PID from the environment with which the process was started. Returns 1
 * if found, 0 if not, or -errno. */
static int target_from_environment(const struct proc_root *root, int32_t pid,
                                   struct run_target *run)
{
    char path[32];
    struct buf text = {0};
    size_t len = 0;
    snprintf(path, sizeof path, "%d/environ", (int)pid);
    int r = io_read_all(root->proc_fd, path, ENVIRON_MAX, &text);
    if (r < 0)
        return r;
    const char *marks = proc_environ_find(buf_str(&text), text.len, "EBB_SOCKET", &len);
    AUTO_FREE char *copy = marks ? strndup(marks, len) : NULL;
    target_take_socket(run, copy);
    const char *folder = proc_environ_find(buf_str(&text), text.len, "EBB_RUN_DIR", &len);
    if (folder && len < sizeof run->folder)
        snprintf(run->folder, sizeof run->folder, "%.*s", (int)len, folder);
    buf_fini(&text);
    return marks || folder;
}

/* Finds the run of an `ebb attach` to PID. Returns 1 if found, else 0. */
static int target_from_claim(const struct proc_root *root, int32_t pid, struct run_target *run)
{
    char answer[CLAIM_TEXT_MAX];
    struct proc_stat stat;
    if (proc_read_stat(root, pid, &stat) < 0 ||
        claim_ask(pid, stat.start_ticks, CLAIM_INFO, NS_PER_S, answer) < 0)
        return 0;
    json_t *doc = json_parse(answer, strlen(answer), NULL);
    const char *folder = json_string_value(json_object_get(doc, "run_dir"));
    target_take_socket(run, json_string_value(json_object_get(doc, "socket")));
    if (folder && strlen(folder) < sizeof run->folder)
        snprintf(run->folder, sizeof run->folder, "%s", folder);
    json_decref(doc);
    return run->folder[0] != '\0';
}

/* If PID is a launcher or `ebb run` itself, finds the run of its first descendant that has one. */
static int target_by_pid(const struct proc_root *root, int32_t pid, struct run_target *run,
                         struct err *err)
{
    struct proc_tree *tree = NULL;
    int r = proc_tree_new(root, NULL, NULL, &tree);
    if (r < 0)
        return err_set(err, r, "out of memory");
    r = proc_tree_add(tree, pid, clock_mono_ns(), err);
    int found = r < 0 ? r : target_from_claim(root, pid, run);
    if (found == 0)
        found = target_from_environment(root, pid, run);
    int own = found;
    for (size_t i = 0; r == 0 && found <= 0 && i < proc_tree_count(tree); i++)
        found = target_from_environment(root, proc_tree_at(tree, i)->info.id.pid, run);
    proc_tree_free(tree);
    if (r < 0)
        return r;
    if (found == 1) {
        run->pid = own == 1 ? pid : 0;
        return 0;
    }
    return err_set(err, -ENOENT,
                   "process %d does not run under ebb; run ebb attach %d, or start the job with "
                   "`ebb run -- CMD`",
                   (int)pid, (int)pid);
}

int run_target_find(const char *operand, struct run_target *ret, struct err *err)
{
    struct proc_root root;
    int64_t pid;
    *ret = (struct run_target){0};
    if (cluster_is_folder(operand))
        return run_target_find_rank(operand, -1, ret, err);
    if (number_parse_i64(operand, strlen(operand), &pid) < 0)
        return target_by_folder(operand, ret, err);
    if (pid <= 0 || pid > INT32_MAX)
        return err_set(err, -EINVAL, "invalid process id \"%.32s\"", operand);
    int r = proc_root_open("/proc", "/sys/fs/cgroup", &root, err);
    if (r < 0)
        return r;
    r = target_by_pid(&root, (int32_t)pid, ret, err);
    proc_root_close(&root);
    return r;
}

int run_target_find_recorded(const char *operand, struct run_target *ret, struct err *err)
{
    int r = run_target_find(operand, ret, err);
    if (r == 0 && !ret->folder[0])
        r = err_set(err, -ENOENT, "the run of process %s is not recorded (--no-record)", operand);
    return r;
}

int run_target_find_rank(const char *path, int64_t rank, struct run_target *ret, struct err *err)
{
    struct cluster *c = NULL;
    int r = cluster_read(path, NULL, NULL, &c, err);
    if (r < 0)
        return r;
    const struct cluster_rank *found = rank >= 0      ? cluster_find_rank(c, rank)
                                       : c->has_worst ? &c->ranks[c->worst]
                                                      : NULL;
    size_t node = found ? found->node : rank < 0 ? c->worst_node : c->n_nodes;
    const char *folder = node < c->n_nodes ? c->nodes[node].path : NULL;
    if (rank >= 0 && !found)
        r = err_set(err, -ENOENT, "%s has no rank %" PRId64 "; ebb show lists the ranks", path,
                    rank);
    else if (!folder)
        r = err_set(err, -ENOENT, "%s: no node has a heap profile yet", path);
    *ret = (struct run_target){0};
    if (r == 0 && folder)
        r = target_by_folder(folder, ret, err);
    if (r == 0 && found)
        ret->pid = found->judged.has_pid ? found->judged.pid : found->pid;
    cluster_free(c);
    return r;
}

int run_target_refresh(const struct run_target *run, int32_t pid, struct err *err)
{
    char query[64];
    if (!run->marks[0])
        return 0;
    snprintf(query, sizeof query, "KIND=query\nNAME=heap\nPID=%" PRId32 "\n", pid);
    json_t *answer = ask_supervisor(run->marks, query, ANSWER_S * NS_PER_S, err);
    json_decref(answer);
    return answer ? 0 : -EIO;
}
