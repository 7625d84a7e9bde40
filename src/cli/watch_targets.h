/* The targets of `ebb watch`: processes by pid, the training job that it finds, or all processes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/cli.h"

struct proc_root;

enum { WATCH_NOTICE_MAX = 512 };

struct watch_choice {
    struct option_texts pids;
    bool find_training, system; /* exactly one of pids, find_training and system must be set */
};

/* The processes to watch. A zeroed struct is valid and empty. */
struct watch_targets {
    int32_t pids[OPTION_TEXTS_MAX]; /* empty with --system */
    size_t count;
    char notice[WATCH_NOTICE_MAX]; /* why these processes were chosen, or "" */
};

/* Chooses the processes to watch. Returns 0, -errno and an error, or the exit status after printing
 * the candidates to choose from. */
int watch_targets_choose(const struct watch_choice *choice, const struct proc_root *root,
                         struct watch_targets *ret, struct err *err);
void watch_notice_add(struct watch_targets *t, const char *sentence);
