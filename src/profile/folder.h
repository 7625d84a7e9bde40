/* The heap histories of a run: which there are, and the one that is asked for. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "profile/profile.h"
#include "profile/store.h"

/* A history of the folder that was not taken. */
struct folder_other {
    int32_t pid;
    double live_bytes;
};

struct folder_heap {
    struct profile *profile;
    struct store_damage damage;
    char name[256]; /* of the file */
    dev_t dev;
    ino_t ino;
    struct folder_other *other; /* the one that holds most first */
    size_t others;
};

/* PATH is a run folder or a heap.PID.ebbheap. PID 0: of several the process that grows most, or
 * holds most where none does; else the one of that process. Of several of one process, which are by
 * exec, the last. 0, -ENOENT: there is none, or what store_read says; with a sentence. */
int folder_heap_read(const char *path, int32_t pid, struct folder_heap *ret, struct err *err);
void folder_heap_fini(struct folder_heap *h); /* accepts a zeroed one */
/* Calls FN for each history of the run folder at PATH that can be read; none where that is no
 * folder. */
typedef void folder_fn(void *user, const struct profile *p);
void folder_each(const char *path, folder_fn *fn, void *user);
/* What lives at the last reading; 0 where there is none. */
double folder_live_bytes(const struct profile *p);
/* By how much its sites surely grew in the second half of the run, when what is loaded at the start
 * is there; 0 for what is less than 1 MiB. */
double folder_grown_bytes(const struct profile *p);
