/* Folders that are to go: moved out of sight at once, removed a little at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trash {
    int fd; /* -1: closed */
    bool is_full;
    unsigned moved;
    uint64_t removed, freed_bytes; /* so far */
};

/* RUNS/.trash, made where it is not there; what an earlier server left in it is still to go. */
int trash_open(int runs_fd, struct trash *ret);
void trash_close(struct trash *t);
/* Moves RUNS/NAME into it: 0, -ENOENT, -errno. */
int trash_put(struct trash *t, int runs_fd, const char *name);
/* Removes up to about BUDGET entries; t->is_full tells whether there is more. -errno: some could
 * not be removed. */
int trash_empty_some(struct trash *t, unsigned budget);
