/* Sets up the job's environment for the Python package and the heap profiler, and collects the
 * profiler's tables. */
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
#include "base/number.h"
#include "mark/receiver.h"
#include "profile/collect.h"

enum { REFRESH_WAIT_MS = 2000, FLUSH_MS = 2000 };
/* minimum interval between verdicts on the heap, and the share of a CPU that they may use (0.2
 * %) */
enum { JUDGING_S = 2, JUDGINGS_PER_AGE = 20, JUDGING_PERMYRIAD = 20 };

/* An environment variable that contains a list of paths, and the characters that must not occur in
 * these paths. */
struct env_list {
    const char *variable;
    const char *separators;
    /* name of a symbolic link in the sockets' folder, for paths that contain separators */
    const char *link;
};

static const struct env_list python_path = {"PYTHONPATH", ":", "python"};
/* LD_PRELOAD must not contain "$", which the dynamic loader expands */
static const struct env_list preload = {"LD_PRELOAD", ": \t\n$", "heap"};

/* Finds a form of PATH that LIST can contain: PATH itself, or a symbolic link to it in the sockets'
 * folder. Every process that sends marks can access that folder. */
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
        return err_set(
            err, -EINVAL,
            "%s cannot contain the path \"%s\"; set XDG_RUNTIME_DIR or TMPDIR to a folder "
            "without spaces or colons",
            list->variable, path);
    snprintf(target, sizeof target, "%.*s", (int)(slash - path), path);
    snprintf(link, sizeof link, "%s/%s", folder, list->link);
    if (symlink(target, link) < 0)
        return err_set(err, -errno, "%s: %s", link, strerror(errno));
    snprintf(ret, PATH_MAX, "%s/%s%s", folder, list->link, slash);
    return 0;
}

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

/* Inserts PATH before OWN, the variable's current value. */
static void env_put_first(const struct env_list *list, const char *path, const char *own)
{
    AUTO_FREE char *text = NULL;
    /* an empty entry in PYTHONPATH would mean the working directory */
    bool has_own = own && own[0];
    if (asprintf(&text, "%s%s%s", path, has_own ? ":" : "", has_own ? own : "") >= 0)
        setenv(list->variable, text, 1);
    else
        text = NULL;
}

/* Puts the shim first in PYTHONPATH, so that Python runs the shim's sitecustomize.py. Does nothing
 * if the shim is already first, as in later segments or if this ebb runs under another ebb. */
static void put_shim(const char *shim)
{
    const char *own = getenv(python_path.variable);
    if (shim[0] && !(own && is_same_file(own, strcspn(own, ":"), shim)))
        env_put_first(&python_path, shim, own);
}

/* Puts the library first in LD_PRELOAD. An allocator that the job itself preloads then comes after
 * the library, and the library calls that allocator. */
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

static void on_heap_figure(void *user, int32_t pid, const char *name, uint64_t value)
{
    struct job *j = user;
    engine_figure(j->engine, pid, name, value);
}

static void on_heap_gpu(void *user, unsigned gpu, const struct collect_gpu *now)
{
    struct job *j = user;
    engine_gpu(j->engine, gpu, now);
}

static void start_collecting(struct job *j)
{
    char path[108];
    if (!j->heap.library[0] || !j->marks)
        return;
    int len = snprintf(path, sizeof path, "%s.heap", mark_receiver_path(j->marks));
    if (len >= (int)sizeof path)
        err_set(&j->heap.trouble, -ENAMETOOLONG, "the path of the profiler's socket is too long");
    else
        collect_new(j->loop, path, j->options->rundir.fd, &j->heap.collect, &j->heap.trouble);
    if (!j->heap.collect)
        job_notifyf(j, "the job's heap is not profiled: %s", j->heap.trouble.text);
    else
        collect_on_figure(j->heap.collect, on_heap_figure, on_heap_gpu, j);
    j->heap.judging = pace_of(JUDGING_S * NS_PER_S, JUDGING_PERMYRIAD);
}

void job_heap_begin(struct job *j)
{
    struct err err = {""};
    const char *shim = j->options->shim, *library = j->options->heap.library;
    if (shim && env_path(j->marks, &python_path, shim, j->heap.shim, &err) < 0)
        job_notifyf(j, "ebb's Python package is not loaded into the job: %s", err.text);
    if (library && env_path(j->marks, &preload, library, j->heap.library, &j->heap.trouble) < 0)
        job_notifyf(j, "the job's heap is not profiled: %s", j->heap.trouble.text);
    start_collecting(j);
}

/* Returns the number of seccomp filters that the job inherits from ebb; 0 if unknown. A process
 * that has more filters than this is in a sandbox, and the library does nothing in such a
 * process. */
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

void job_heap_set_environment(const struct job_heap_environment *e)
{
    char settings[96];
    const char *preloaded = getenv("LD_PRELOAD");
    uint64_t filters = count_filters();
    put_shim(e->shim);
    if (!e->library[0]) {
        /* the library is already preloaded, because this ebb runs under another ebb */
        if (preloaded && strstr(preloaded, "libebb-heap.so"))
            setenv("EBB_HEAP", "0", 1);
        return;
    }
    unsetenv("EBB_HEAP");
    snprintf(settings, sizeof settings,
             "interval=%" PRIu64 ",python=%d,filters=%" PRIu64 ",parent=%d", e->interval_bytes,
             e->python, filters, (int)getpid());
    setenv("EBB_HEAP", settings, 1);
    put_library(e->library);
}

void job_heap_environment(const struct job *j)
{
    const struct job_heap_environment e = {.shim = j->heap.shim,
                                           .library = j->heap.collect ? j->heap.library : "",
                                           .interval_bytes = j->options->heap.interval_bytes,
                                           .python = !j->options->heap.no_python};
    job_heap_set_environment(&e);
}

void job_heap_tick(struct job *j, uint64_t now_ns)
{
    struct err err = {""};
    if (!j->heap.collect)
        return;
    collect_tick(j->heap.collect, now_ns);
    if (collect_trouble(j->heap.collect, &err) < 0)
        job_notify(j, err.text);
    if (j->options->rundir.fd < 0 || !pace_due(&j->heap.judging, now_ns))
        return;
    uint64_t begun = clock_thread_cpu_ns();
    engine_read_held(j->engine, j->options->rundir.path);
    /* the interval between verdicts grows with the running time of the job */
    uint64_t age_ns = now_ns - j->started_ns;
    j->heap.judging.period_ns = u64_max(JUDGING_S * NS_PER_S, age_ns / JUDGINGS_PER_AGE);
    pace_done(&j->heap.judging, now_ns, clock_thread_cpu_ns() - begun);
}

void job_heap_process(struct job *j, const struct proc_event *event)
{
    if (j->heap.collect && event->kind == PROCESS_DIED)
        collect_gone(j->heap.collect, event->node->info.id.pid, event->t_ns);
}

void job_heap_ended(struct job *j)
{
    if (!j->heap.collect || j->options->rundir.fd < 0)
        return;
    collect_flush(j->heap.collect, FLUSH_MS * NS_PER_MS);
    engine_read_held(j->engine, j->options->rundir.path);
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
