/* Parts of ebb in the job's environment, and the tables of its heap profiler. */
#include "supervise/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "judge/judge.h"
#include "mark/receiver.h"
#include "proc/node.h"
#include "profile/collect.h"
#include "profile/held.h"

enum { REFRESH_WAIT_MS = 2000, FLUSH_MS = 2000 };

/* A list in the environment, and what cannot stand in a path of it. */
struct env_list {
    const char *variable;
    const char *separators;
    const char *link; /* to the part's folder, in that of the sockets */
};

static const struct env_list python_path = {"PYTHONPATH", ":", "python"};
static const struct env_list preload = {"LD_PRELOAD", ": \t\n$", "heap"}; /* $ begins a token */

/* PATH as LIST can hold it: itself, or through a link that lives as long as the job's sockets. A
 * process that cannot enter their folder could not send marks either. */
static int env_path(const struct mark_receiver *marks, const struct env_list *list,
                    const char *path, char ret[PATH_MAX], struct err *err)
{
    const char *folder = marks ? mark_receiver_folder(marks) : ":";
    char target[PATH_MAX], link[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!strpbrk(path, list->separators)) {
        snprintf(ret, PATH_MAX, "%s", path);
        return 0;
    }
    if (strpbrk(folder, list->separators))
        return err_set(err, -EINVAL,
                       "set XDG_RUNTIME_DIR or TMPDIR to a folder without spaces and colons in its "
                       "path: %s cannot hold \"%s\"",
                       list->variable, path);
    snprintf(target, sizeof target, "%.*s", (int)(slash - path), path);
    snprintf(link, sizeof link, "%s/%s", folder, list->link);
    if (symlink(target, link) < 0)
        return err_set(err, -errno, "%s: %s", link, strerror(errno));
    snprintf(ret, PATH_MAX, "%s/%s%s", folder, list->link, slash);
    return 0;
}

/* By which of two links it is reached does not matter. */
static bool is_same_file(const char *path, size_t len, const char *other)
{
    char text[PATH_MAX];
    struct stat a, b;
    if (len >= sizeof text)
        return false;
    memcpy(text, path, len);
    text[len] = '\0';
    return stat(text, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* In front; OWN is what the variable has. */
static void env_put_first(const struct env_list *list, const char *path, const char *own)
{
    AUTO_FREE char *text = NULL;
    bool has_own = own && own[0]; /* an empty part of PYTHONPATH would mean the working directory */
    if (asprintf(&text, "%s%s%s", path, has_own ? ":" : "", has_own ? own : "") >= 0)
        setenv(list->variable, text, 1);
    else
        text = NULL;
}

/* In front, so that its sitecustomize.py is the one that Python runs; a later segment, or a run
 * around ours, has it there already. */
static void put_shim(const char *shim)
{
    const char *own = getenv(python_path.variable);
    if (shim[0] && !(own && is_same_file(own, strcspn(own, ":"), shim)))
        env_put_first(&python_path, shim, own);
}

/* Ours in front: an allocator that the job preloads itself is then below it. */
static void put_library(const char *library)
{
    const char *own = getenv(preload.variable);
    for (const char *at = own; at && *at;) {
        size_t len = strcspn(at, ": ");
        if (is_same_file(at, len, library))
            return;
        at += len + (at[len] != '\0');
    }
    env_put_first(&preload, library, own);
}

static void start_collecting(struct job *j)
{
    char path[108];
    if (!j->heap.library[0] || !j->marks)
        return;
    int len = snprintf(path, sizeof path, "%s.heap", mark_receiver_path(j->marks));
    if (len >= (int)sizeof path)
        err_set(&j->heap.trouble, -ENAMETOOLONG, "the path of its socket would be too long");
    else
        collect_new(j->loop, path, j->options->rundir.fd, &j->heap.collect, &j->heap.trouble);
    if (!j->heap.collect)
        job_notifyf(j, "the job's heap is not profiled: %s", j->heap.trouble.text);
}

void job_heap_begin(struct job *j)
{
    struct err err = {""};
    const char *shim = j->options->shim, *library = j->options->heap.library;
    if (shim && env_path(j->marks, &python_path, shim, j->heap.shim, &err) < 0)
        job_notifyf(j, "the job's Pythons are left alone: %s", err.text);
    if (library && env_path(j->marks, &preload, library, j->heap.library, &j->heap.trouble) < 0)
        job_notifyf(j, "the job's heap is not profiled: %s", j->heap.trouble.text);
    start_collecting(j);
}

/* Of system calls, on ebb and so on the job as it starts: who has more is in a sandbox of its own,
 * where the library keeps still. 0 where the kernel does not tell. */
static uint64_t count_filters(void)
{
    static const char count[] = "\nSeccomp_filters:\t", mode[] = "\nSeccomp:\t";
    char status[4096];
    uint64_t n = 0;
    if (io_read_small(AT_FDCWD, "/proc/self/status", status, sizeof status) < 0)
        return 0;
    const char *found = strstr(status, count);
    if (found)
        return sscanf(found + sizeof count - 1, "%" SCNu64, &n) == 1 ? n : 0;
    found = strstr(status, mode);
    return found && found[sizeof mode - 1] != '0';
}

/* The job's first process, our child, makes its table when it starts (src/heap/life.c). */
void job_heap_environment(const struct job *j)
{
    char settings[96];
    const char *preloaded = getenv("LD_PRELOAD");
    uint64_t interval = j->options->heap.interval_bytes, filters = count_filters();
    put_shim(j->heap.shim);
    if (!j->heap.collect) {
        if (preloaded && strstr(preloaded, "libebb-heap.so")) /* of a run around ours */
            setenv("EBB_HEAP", "0", 1);
        return;
    }
    unsetenv("EBB_HEAP");
    snprintf(settings, sizeof settings,
             "interval=%" PRIu64 ",python=%d,filters=%" PRIu64 ",parent=%d", interval,
             !j->options->heap.no_python, filters, (int)getpid());
    setenv("EBB_HEAP", settings, 1);
    put_library(j->heap.library);
}

void job_heap_tick(struct job *j, uint64_t now_ns)
{
    struct err err = {""};
    if (!j->heap.collect)
        return;
    collect_tick(j->heap.collect, now_ns);
    if (collect_trouble(j->heap.collect, &err) < 0)
        job_notify(j, err.text);
}

void job_heap_process(struct job *j, const struct proc_event *event)
{
    if (j->heap.collect && event->kind == PROCESS_DIED)
        collect_gone(j->heap.collect, event->node->info.id.pid, event->t_ns);
}

void job_heap_ended(struct job *j)
{
    size_t count;
    if (!j->heap.collect || j->options->rundir.fd < 0 ||
        !judge_wants_held(engine_verdict(j->engine)))
        return;
    collect_flush(j->heap.collect, FLUSH_MS * NS_PER_MS);
    AUTO_FREE struct held *list = held_read(j->options->rundir.path, &count);
    engine_set_held(j->engine, list, count);
}

size_t job_heap_refresh(struct job *j, int32_t pid)
{
    return j->heap.collect
               ? collect_refresh(j->heap.collect, pid, clock_mono_ns(), REFRESH_WAIT_MS * NS_PER_MS)
               : 0;
}

json_t *job_heap_json(const struct job *j)
{
    const char *trouble = j->heap.trouble.text[0] ? j->heap.trouble.text : j->options->heap.trouble;
    json_t *o = j->heap.collect ? collect_json(j->heap.collect) : json_object();
    json_object_set_new(o, "on", json_boolean(j->heap.collect));
    json_object_set_new(o, "trouble", trouble ? json_text0(trouble) : json_null());
    return o;
}
