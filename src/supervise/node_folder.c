/* Creates the shared folder of a job that runs on several nodes. */
#include "supervise/node_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "version.h"

enum { SUPERVISORS_MAX = 1000 };

static json_t *command_json(char *const *command)
{
    enum { WORDS_MAX = 1000 };
    json_t *list = json_array();
    for (size_t i = 0; command[i] && i < WORDS_MAX; i++)
        json_array_append_new(list, json_text0(command[i]));
    return list;
}

/* Returns the start time of the first segment of the job. A restarted job resumes only from
 * checkpoints that are newer than this time. */
static json_t *first_start(const struct node_folder_options *o, int parent_fd)
{
    struct rank_place first = *o->place;
    char name[RANK_FOLDER_MAX], path[RANK_FOLDER_MAX + sizeof "/job.json"];
    AUTO_BUF struct buf text = {0};
    json_t *found = NULL;
    first.restarts = 0;
    rank_place_folder(&first, name);
    snprintf(path, sizeof path, "%s/job.json", name);
    if (o->place->restarts && io_read_plain(parent_fd, path, 1 << 20, &text) == 0) {
        json_auto_t *doc = json_parse(text.data, text.len, NULL);
        found = json_incref(json_object_get(doc, "started_s"));
    }
    return json_is_number(found) ? found : json_seconds(o->wall_ns);
}

static json_t *job_json(const struct node_folder_options *o, int parent_fd)
{
    const struct rank_place *p = o->place;
    char cwd[PATH_MAX];
    json_t *doc = json_object();
    json_object_set_new(doc, "format", json_integer(1));
    json_object_set_new(doc, "ebb", json_string(EBB_VERSION));
    json_object_set_new(doc, "launcher", json_string(p->is_slurm ? "slurm" : "torchrun"));
    json_object_set_new(doc, "job_id", json_text0(p->job_id));
    json_object_set_new(doc, "step_id", json_text0(p->step_id));
    json_object_set_new(doc, "segment", json_integer(p->segment));
    json_object_set_new(doc, "nodes", json_integer(p->nodes));
    json_object_set_new(doc, "ranks", json_integer(p->ranks));
    json_object_set_new(doc, "name", json_text0(o->name));
    json_object_set_new(doc, "command", command_json(o->command));
    json_object_set_new(doc, "cwd", json_text0(getcwd(cwd, sizeof cwd)));
    json_object_set_new(doc, "started", json_local_time(o->wall_ns));
    json_object_set_new(doc, "started_s", json_seconds(o->wall_ns));
    json_object_set_new(doc, "first_started_s", first_start(o, parent_fd));
    return doc;
}

/* Creates FD/NAME with LEN bytes from DATA unless it exists. Other nodes see either the whole file
 * or no file, because link(2) is atomic even on network file systems. */
static int create_once(int fd, const char *name, const void *data, size_t len)
{
    char temporary[64];
    AUTO_CLOSE int to = io_create_temporary(fd, name, temporary, sizeof temporary);
    if (to < 0)
        return to;
    int r = io_write_all(to, data, len);
    if (r == 0 && linkat(fd, temporary, fd, name, 0) < 0 && errno != EEXIST)
        r = -errno;
    unlinkat(fd, temporary, 0);
    return r;
}

static int create_job_files(const struct node_folder_options *o, int fd)
{
    AUTO_BUF struct buf text = {0};
    AUTO_CLOSE int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    json_auto_t *doc = job_json(o, parent);
    int r = json_print(&text, doc, 2);
    if (r == 0)
        r = create_once(fd, "job.json", text.data, text.len);
    if (r == 0)
        r = create_once(fd, "request", "", 0);
    return r;
}

static void node_name(uint32_t number, unsigned k, char ret[NODE_FOLDER_MAX])
{
    int n = snprintf(ret, NODE_FOLDER_MAX, "node-%02u", number);
    if (k)
        snprintf(ret + n, NODE_FOLDER_MAX - (size_t)n, ".%u", k);
}

static int create_node(const char *job_dir, const struct rank_place *p, struct rundir *ret,
                       struct err *err)
{
    char path[PATH_MAX + NODE_FOLDER_MAX], name[NODE_FOLDER_MAX];
    int r = -EEXIST;
    for (unsigned k = 0; r == -EEXIST && k < SUPERVISORS_MAX; k++) {
        node_name(p->node, k, name);
        snprintf(path, sizeof path, "%s/%s", job_dir, name);
        r = rundir_create(path, NULL, 0, ret, err);
    }
    return r;
}

bool node_folder_newest(int job_fd, uint32_t number, char ret[NODE_FOLDER_MAX])
{
    char name[NODE_FOLDER_MAX];
    unsigned k = 0;
    for (; k < SUPERVISORS_MAX; k++) {
        node_name(number, k, name);
        if (faccessat(job_fd, name, F_OK, 0) < 0)
            break;
        memcpy(ret, name, sizeof name);
    }
    return k > 0;
}

int node_folder_create(const struct node_folder_options *o, struct rundir *ret, struct err *err)
{
    char job_dir[PATH_MAX], name[RANK_FOLDER_MAX];
    rank_place_folder(o->place, name);
    snprintf(job_dir, sizeof job_dir, "%s%s", o->job_dir ? o->job_dir : "ebb-runs/",
             o->job_dir ? "" : name);
    int r = io_mkdir_parents(job_dir);
    AUTO_CLOSE int fd = r < 0 ? -1 : open(job_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && fd < 0)
        r = -errno;
    if (r == 0)
        r = create_job_files(o, fd);
    if (r < 0)
        return err_set(err, r, "cannot write run folder %s: %s", job_dir, strerror(-r));
    r = create_node(job_dir, o->place, ret, err);
    if (r == 0 && o->place->node == 0 && !o->job_dir)
        rundir_point_latest(ret, name);
    return r;
}
