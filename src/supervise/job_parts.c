/* Parts of ebb that go into the job by lists in its environment: PYTHONPATH and LD_PRELOAD. */
#include "supervise/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "mark/receiver.h"

/* A list in the environment, and what cannot stand in a path of it. */
struct list {
    const char *variable;
    const char *separators;
    const char *link; /* to the part's folder, in that of the sockets */
};

static const struct list python_path = {"PYTHONPATH", ":", "python"};
static const struct list preload = {"LD_PRELOAD", ": \t\n$", "heap"}; /* $ begins a token */

/* PATH as LIST can hold it: itself, or through a link that lives as long as the job's sockets. Who
 * cannot enter their folder could not speak to us either. */
static int reach(const struct job *j, const struct list *list, const char *path, char ret[PATH_MAX],
                 struct err *err)
{
    const char *folder = j->marks ? mark_receiver_folder(j->marks) : ":";
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

void job_parts_begin(struct job *j)
{
    struct err err = {""};
    const char *shim = j->options->shim, *library = j->options->heap.library;
    if (shim && reach(j, &python_path, shim, j->shim, &err) < 0)
        job_sayf(j, "the job's Pythons are left alone: %s", err.text);
    if (library && reach(j, &preload, library, j->library, &j->no_heap) < 0)
        job_sayf(j, "the job's heap is not profiled: %s", j->no_heap.text);
}

/* By which of two links it is reached does not matter. */
static bool is_same(const char *path, size_t len, const char *other)
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
static void put_first(const struct list *list, const char *path, const char *own)
{
    AUTO_FREE char *text = NULL;
    bool has_own = own && own[0]; /* an empty part of PYTHONPATH would mean the working directory */
    if (asprintf(&text, "%s%s%s", path, has_own ? ":" : "", has_own ? own : "") < 0) {
        text = NULL;
        return;
    }
    setenv(list->variable, text, 1);
}

/* In front, so that its sitecustomize.py is the one that Python runs; a later segment, or a run
 * around ours, has it there already. */
void job_parts_put_shim(const struct job *j)
{
    const char *own = getenv(python_path.variable);
    if (j->shim[0] && !(own && is_same(own, strcspn(own, ":"), j->shim)))
        put_first(&python_path, j->shim, own);
}

/* Ours in front: an allocator that the job preloads itself is then below it. */
void job_parts_put_library(const struct job *j)
{
    const char *own = getenv(preload.variable);
    for (const char *at = own; at && *at;) {
        size_t len = strcspn(at, ": ");
        if (is_same(at, len, j->library))
            return;
        at += len + (at[len] != '\0');
    }
    put_first(&preload, j->library, own);
}
