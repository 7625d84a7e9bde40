/* Finds the nodes of a job folder and their states. */
#include "judge/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "judge/cluster_private.h"

enum {
    JOB_JSON_MAX = 1 << 20,
    NODES_MAX = 16384,
    /* A node writes its heartbeat every 5 s and is silent once it has missed six heartbeats. A
     * reader that reads the folder only once must compare file times. Some file systems take these
     * from the writer's clock, which may be off by a minute, and an NFS client may cache an old
     * time for another minute. */
    SILENT_S = 30,
    SILENT_BEHIND_S = 120,
};

const char *cluster_state_name(enum cluster_state state)
{
#define X(symbol, word) [NODE_##symbol] = (word),
    static const char *const words[] = {CLUSTER_STATES(X)};
#undef X
    return words[state];
}

/* Parses "node-03" or "node-03.1". */
static bool parse_node_name(const char *name, uint32_t *ret_number, uint32_t *ret_part)
{
    const char *dot = strchr(name, '.');
    int64_t number, part = 0;
    if (strncmp(name, "node-", 5) != 0)
        return false;
    size_t len = dot ? (size_t)(dot - name) - 5 : strlen(name) - 5;
    if (number_parse_i64(name + 5, len, &number) < 0 || number < 0 || number >= NODES_MAX ||
        (dot && number_parse_i64(dot + 1, strlen(dot + 1), &part) < 0) || part < 0 ||
        part > INT32_MAX)
        return false;
    *ret_number = (uint32_t)number;
    *ret_part = (uint32_t)part;
    return true;
}

static bool is_plain_folder(int dirfd, const char *name)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

bool cluster_is_folder(const char *path)
{
    AUTO_CLOSE int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    uint32_t number, part;
    bool is_found = false;
    if (folder < 0 || fstatat(folder, "run.json", &st, AT_SYMLINK_NOFOLLOW) == 0 ||
        fstatat(folder, "trace.ebb", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return false;
    if (fstatat(folder, "job.json", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    DIR *dir = io_open_folder(folder, ".");
    for (struct dirent *d; dir && !is_found && (d = readdir(dir));)
        is_found = parse_node_name(d->d_name, &number, &part) && is_plain_folder(folder, d->d_name);
    if (dir)
        closedir(dir);
    return is_found;
}

/* ---- job.json ---- */

static char *job_text(const json_t *doc, const char *key)
{
    const char *text = json_string_value(json_object_get(doc, key));
    return text ? strdup(text) : NULL;
}

/* Returns a number of nodes or ranks, or 0 if unknown. */
static uint32_t job_number(const json_t *doc, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(doc, key));
    return v > 0 && v <= NODES_MAX ? (uint32_t)v : 0;
}

static void job_fini(struct cluster_job *job)
{
    free(job->job_id);
    free(job->step_id);
    free(job->launcher);
    free(job->name);
    free(job->cwd);
}

static void read_job_json(struct cluster *c, int folder)
{
    struct buf text = {0};
    struct cluster_job *job = &c->job;
    int r = job->job_id ? 0 : io_read_plain(folder, "job.json", JOB_JSON_MAX, &text);
    json_t *doc = r == 0 && text.len ? json_parse(buf_str(&text), text.len, NULL) : NULL;
    c->trouble = (struct err){""};
    if (json_is_object(doc)) {
        job_fini(job);
        *job = (struct cluster_job){.job_id = job_text(doc, "job_id"),
                                    .step_id = job_text(doc, "step_id"),
                                    .launcher = job_text(doc, "launcher"),
                                    .name = job_text(doc, "name"),
                                    .cwd = job_text(doc, "cwd"),
                                    .nodes = job_number(doc, "nodes"),
                                    .ranks = job_number(doc, "ranks")};
    } else if (!job->job_id) {
        err_set(&c->trouble, -EBADMSG, "job.json %s",
                r == -ENOENT ? "is missing" : "cannot be read");
    }
    json_decref(doc);
    buf_fini(&text);
}

/* ---- nodes ---- */

static struct cluster_node *node_of(struct cluster *c, uint32_t number)
{
    size_t at = ARRAY_SEARCH(i, c->n_nodes, c->nodes[i].number < number);
    if (at < c->n_nodes && c->nodes[at].number == number)
        return &c->nodes[at];
    struct cluster_node *nodes = reallocarray(c->nodes, c->n_nodes + 1, sizeof *nodes);
    if (!nodes)
        return NULL;
    c->nodes = nodes;
    memmove(&nodes[at + 1], &nodes[at], (c->n_nodes - at) * sizeof *nodes);
    c->n_nodes++;
    nodes[at] = (struct cluster_node){.number = number, .state = NODE_MISSING};
    return &nodes[at];
}

/* Makes the folder NAME the folder of its node, unless a newer folder of this node was found. */
static void take_folder(struct cluster *c, const char *name, uint32_t number, uint32_t part)
{
    struct cluster_node *n = node_of(c, number);
    char *path = NULL;
    if (!n || (n->path && part < n->part))
        return;
    if (asprintf(&path, "%s/%s", c->path, name) < 0)
        return;
    if (n->path && part == n->part) {
        bool is_same = strcmp(n->path, path) == 0;
        n->is_duplicate = n->is_duplicate || !is_same;
        /* if two folders have the same number, the first by name is used */
        if (is_same || strcmp(n->path, path) < 0) {
            free(path);
            return;
        }
    }
    bool is_duplicate = n->is_duplicate && part == n->part;
    cluster_node_reset(n);
    n->path = path;
    n->part = part;
    n->is_duplicate = is_duplicate;
}

static void find_nodes(struct cluster *c, int folder)
{
    uint32_t number, part;
    DIR *dir = io_open_folder(folder, ".");
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (parse_node_name(d->d_name, &number, &part) && is_plain_folder(folder, d->d_name))
            take_folder(c, d->d_name, number, part);
    if (dir)
        closedir(dir);
    for (uint32_t i = 0; i < c->job.nodes; i++)
        (void)node_of(c, i);
}

/* ---- states ---- */

static int64_t newest_beat_ns(const struct cluster *c)
{
    int64_t newest = 0;
    for (size_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].beat.is_known && c->nodes[i].beat.mtime_ns > newest)
            newest = c->nodes[i].beat.mtime_ns;
    return newest;
}

/* The clocks of the machines differ, so file times are compared with each other. The reader's wall
 * clock is only used to detect that all nodes are silent. */
static bool is_silent(const struct cluster *c, const struct cluster_node *n, uint64_t now_ns,
                      uint64_t wall_ns, bool stays)
{
    const int64_t second = (int64_t)NS_PER_S;
    int64_t newest = newest_beat_ns(c);
    if (!n->beat.is_known)
        return false;
    if (stays && now_ns - n->beat.changed_ns > SILENT_S * NS_PER_S)
        return true;
    if (stays && n->beat.has_changed)
        return false;
    return newest - n->beat.mtime_ns > SILENT_BEHIND_S * second ||
           (int64_t)wall_ns - newest > SILENT_BEHIND_S * second;
}

static enum cluster_state state_of(const struct cluster *c, const struct cluster_node *n,
                                   uint64_t now_ns, uint64_t wall_ns, bool stays)
{
    bool has_data = n->follow.run && n->follow.run->ticks;
    if (!n->path)
        return NODE_MISSING;
    if (!n->has_outcome && !has_data)
        return n->beat.is_known || !n->trouble.text[0] ? NODE_RUNNING : NODE_UNREADABLE;
    if (n->has_outcome && n->outcome.end.kind == OUTCOME_LOST)
        return NODE_LOST;
    if ((n->has_outcome && n->outcome.has_end) || (n->follow.run && n->follow.run->end) ||
        n->beat.has_ended)
        return NODE_ENDED;
    return is_silent(c, n, now_ns, wall_ns, stays) ? NODE_SILENT : NODE_RUNNING;
}

bool cluster_refresh(struct cluster *c, uint64_t now_ns, uint64_t wall_ns, bool stays)
{
    AUTO_CLOSE int folder = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_changed = false;
    if (folder >= 0) {
        read_job_json(c, folder);
        find_nodes(c, folder);
    }
    for (size_t i = 0; i < c->n_nodes; i++)
        is_changed |= cluster_node_refresh(c, &c->nodes[i], now_ns);
    for (size_t i = 0; i < c->n_nodes; i++) {
        struct cluster_node *n = &c->nodes[i];
        enum cluster_state state = state_of(c, n, now_ns, wall_ns, stays);
        is_changed = is_changed || state != n->state;
        n->state = state;
    }
    return is_changed;
}

size_t cluster_count(const struct cluster *c, enum cluster_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_nodes; i++)
        n += c->nodes[i].state == state;
    return n;
}

/* ---- opening ---- */

int cluster_open(const char *path, const struct run_settings *settings,
                 const struct judge_options *options, struct cluster **ret, struct err *err)
{
    /* marks are stored because they identify the ranks if run.json does not list them */
    static const struct run_settings least = {.dead = RUN_DEAD_READ, .marks = 256};
    struct cluster *c = calloc(1, sizeof *c);
    if (!cluster_is_folder(path)) {
        free(c);
        return err_set(err, -ENOENT, "%s is not the folder of a multi-node job", path);
    }
    if (!c || !(c->path = strdup(path))) {
        free(c);
        return err_set(err, -ENOMEM, "out of memory while reading %s", path);
    }
    c->settings = settings ? *settings : least;
    if (options)
        c->options = *options;
    *ret = c;
    return 0;
}

int cluster_judge(struct cluster *c, bool has_heaps)
{
    int r = 0;
    for (size_t i = 0; i < c->n_nodes && r == 0; i++)
        r = cluster_node_judge(&c->nodes[i], has_heaps);
    if (r == -EINVAL) /* run.json has no verdict yet */
        r = 0;
    return r < 0 ? r : cluster_judge_ranks(c);
}

int cluster_read(const char *path, const struct run_settings *settings,
                 const struct judge_options *options, struct cluster **ret, struct err *err)
{
    struct cluster *c = NULL;
    int r = cluster_open(path, settings, options, &c, err);
    if (r < 0 || !c)
        return r;
    cluster_refresh(c, clock_mono_ns(), clock_wall_ns(), false);
    r = cluster_judge(c, true);
    if (r < 0) {
        cluster_free(c);
        return err_set(err, r, "out of memory while judging %s", path);
    }
    *ret = c;
    return 0;
}

void cluster_free(struct cluster *c)
{
    if (!c)
        return;
    cluster_drop_ranks(c);
    for (size_t i = 0; i < c->n_nodes; i++)
        cluster_node_reset(&c->nodes[i]);
    free(c->nodes);
    job_fini(&c->job);
    free(c->path);
    free(c);
}
