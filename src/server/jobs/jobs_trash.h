/* Folders that are to go: moved out of sight at once, removed a little at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct trash {
    int fd; /* -1: closed */
    bool is_full;
    bool has_stuck;  /* some of it could not be removed, and was put aside within it */
    bool with_stuck; /* that is tried as well, the next time */
    unsigned moved;
    uint64_t removed, freed_bytes; /* so far */
};

/* RUNS/.trash, made where it is not there; what an earlier server left in it is still to go. */
int trash_open(int runs_fd, struct trash *ret);
void trash_close(struct trash *t);
/* Moves RUNS/NAME into it: 0, -ENOENT, -errno. */
int trash_put(struct trash *t, int runs_fd, const char *name);
/* A folder of ours that nobody may enter or move is made one that we may. */
void trash_open_up(int dir, const char *name);
/* Removes up to about BUDGET entries; t->is_full says whether there is more. -errno: some could
 * not be removed; it is put aside, so that the rest can go on. */
int trash_empty_some(struct trash *t, unsigned budget);
/* What was put aside is to be tried again. */
void trash_try_stuck(struct trash *t);
