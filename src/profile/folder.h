/* Finds the heap histories in a run folder, and the one to show. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "profile/profile.h"
#include "profile/store.h"

/* Another history in the folder. */
struct folder_other {
    int32_t pid;
    double live_bytes;
};

struct folder_heap {
    struct profile *profile;
    struct store_damage damage;
    char name[256]; /* file name */
    dev_t dev;
    ino_t ino;
    struct folder_other *other; /* the others, by live bytes, largest first */
    size_t others;
};

/* Which memory: host memory, or the GPU part of the profile. */
enum folder_memory { FOLDER_HOST, FOLDER_GPU };

/* Reads a heap history. PATH is a run folder or a heap.PID.ebbheap. With PID, reads the history of
 * that process; with PID 0, that of the process that grows most, or has the most live bytes if none
 * grows. A process that called exec has several histories: the last one is used. Returns 0, -ENOENT
 * if there is none, or the error of store_read, with an error. */
int folder_heap_read(const char *path, int32_t pid, enum folder_memory memory,
                     struct folder_heap *ret, struct err *err);
void folder_heap_fini(struct folder_heap *h); /* accepts a zeroed one */
/* Calls FN for each history of the run folder PATH, one at a time. H is freed after the call unless
 * FN takes it and zeroes it. If a history, or the folder (H is NULL), cannot be read, ERROR is
 * negative and WHY describes it. */
typedef void folder_heap_fn(void *user, struct folder_heap *h, int error, const struct err *why);
void folder_each(const char *path, folder_heap_fn *fn, void *user);

/* All histories of a run folder. */
struct folder_heaps {
    bool is_read;
    struct folder_heap *at;
    size_t count;
    int error; /* error of the first history that could not be read, or of the folder; 0: none */
    struct err why;
};
/* Reads all histories; a PATH that is not a folder has none. */
void folder_heaps_read(const char *path, struct folder_heaps *ret);
void folder_heaps_fini(struct folder_heaps *h); /* accepts a zeroed one */
/* Like folder_heap_read, among the histories that were read; RET shares the profile. */
int folder_heaps_pick(const struct folder_heaps *h, int32_t pid, enum folder_memory memory,
                      struct folder_heap *ret, struct err *err);
/* Live bytes at the last reading; 0 if there is none. */
double folder_live_bytes(const struct profile *p);
/* Statistically certain growth of its sites in the second half of the run, after everything was
 * loaded; 0 if below 1 MiB. */
double folder_grown_bytes(const struct profile *p);
