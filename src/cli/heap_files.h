/* The heap files of a run, and the run that is meant by a folder or a pid. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "profile/profile.h"
#include "profile/store.h"

struct proc_root;

/* The run that an operand means. */
struct heap_run {
    char folder[PATH_MAX]; /* "" if the process that is meant runs under no ebb that records */
    char marks[108];       /* the socket of its supervisor; "" if it has ended */
    int32_t pid;           /* the process that is meant; 0: none in particular */
};
/* OPERAND is a run folder, or a pid (of a process of a run, or of what leads to one). 0, or -errno
 * with a sentence. */
int heap_run_find(const struct proc_root *root, const char *operand, struct heap_run *ret,
                  struct err *err);
/* Makes its supervisor read the heap of PID (0: all) once more; nothing where it has ended. */
int heap_run_refresh(const struct heap_run *run, int32_t pid, struct err *err);

struct heap_file {
    char name[NAME_MAX + 1];
    struct profile *profile;
    struct store_damage damage;
    double live_bytes; /* at its last reading */
};
struct heap_files {
    struct heap_file *at; /* the one with most live bytes first */
    size_t count;
    size_t unreadable;
};
/* Reads the heap files in FOLDER, of PID alone where it is not 0. None: 0 and count 0. */
int heap_files_read(const char *folder, int32_t pid, struct heap_files *ret, struct err *err);
void heap_files_fini(struct heap_files *f);
