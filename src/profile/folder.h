/* Finds the heap histories in a run folder, and chooses the history to show. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "profile/profile.h"
#include "profile/store.h"

/* One of the heap histories in the run folder that were not chosen to be shown. */
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
    struct folder_other *other; /* the other histories by live bytes, largest first */
    size_t others;
};

/* Selects host memory or the GPU part of the profile. */
enum folder_memory { FOLDER_HOST, FOLDER_GPU };

/* Reads a heap history. PATH is a run folder or a heap.PID.ebbheap. If PID is 0, chooses the
 * process that grows most or, if none grows, the one with the most live bytes. If a process has
 * several histories, because it called exec, uses the last one. Returns 0, -ENOENT if there is no
 * history, or the error of store_read, with a message. */
int folder_heap_read(const char *path, int32_t pid, enum folder_memory memory,
                     struct folder_heap *ret, struct err *err);
void folder_heap_fini(struct folder_heap *h); /* frees the history; accepts a zeroed struct */
/* Calls FN for each history of the run folder PATH, one at a time. H is freed after the call unless
 * FN takes it and zeroes it. If a history cannot be read, ERROR is negative and WHY describes the
 * reason. If even the folder cannot be read, H is NULL. */
typedef void folder_heap_fn(void *user, struct folder_heap *h, int error, const struct err *why);
void folder_each(const char *path, folder_heap_fn *fn, void *user);

/* All heap histories of a run folder. */
struct folder_heaps {
    bool is_read;
    struct folder_heap *at;
    size_t count;
    int error; /* error for the folder or for the first history that could not be read; 0 if all
                  were read */
    struct err why;
};
/* Reads all histories in PATH; a PATH that is not a folder has none. */
void folder_heaps_read(const char *path, struct folder_heaps *ret);
void folder_heaps_fini(struct folder_heaps *h); /* frees all histories; accepts a zeroed struct */
/* Chooses one of the histories in H, as folder_heap_read does. RET shares the profile of that
 * history. */
int folder_heaps_pick(const struct folder_heaps *h, int32_t pid, enum folder_memory memory,
                      struct folder_heap *ret, struct err *err);
/* Returns the live bytes at the last reading, or 0 if there is none. */
double folder_live_bytes(const struct profile *p);
/* Returns by how much P's call sites grew in the second half of the run. By then the program has
 * loaded its code and data. Counts only growth that is certain despite the sampling error. Returns
 * 0 if the result would be below 1 MiB. */
double folder_grown_bytes(const struct profile *p);
