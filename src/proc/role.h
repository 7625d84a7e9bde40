/* What a process is there for, from its command line, what it has mapped and its relations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"

/* Facts about what is mapped, gathered in one pass over maps. */
struct role_maps {
    bool known;
    bool torch, jax, tensorflow, cuda; /* libtorch*.so, libjax/xla, libtensorflow, libcuda */
    bool python;                       /* libpython or a python executable */
};

struct role_input {
    const struct process_info *process;
    const struct process_info *parent; /* NULL if unknown or outside the tree */
    struct role_maps maps;
    size_t siblings;    /* living ones of the same parent beside it; 0: none, or
                           not counted */
    bool whole_machine; /* all processes are looked at, not one job's */
    bool child_trains;  /* one of its children, or below, is main */
};

struct role_guess {
    enum process_role role;
    char why[128]; /* "libtorch mapped", "its command is torchrun"; printable ASCII */
};

/* Pure: the same facts give the same role. The roles of the parent and of the children are such
 * facts, so a tree is settled from the top down, and once more after a role has changed. */
void role_guess(const struct role_input *in, struct role_guess *ret);
/* One line of maps adds its evidence to a struct role_maps: for proc_read_maps. */
struct proc_map;
void role_maps_add(void *user, const struct proc_map *map);
/* "libtorch", "libtensorflow", "jax": the library by which a process with these maps trains;
 * NULL if none. */
const char *role_maps_library(const struct role_maps *maps);

/* The name of a command that only starts another and waits for it ("uv run", "torchrun", "bash"):
 * accelerate launch, python -m torch.distributed.run, shells, env, nice, time, sudo, timeout, srun…
 * NULL for what is none. Only what is executed counts: an argument `--name torchrun` fools nobody.
 */
const char *role_launcher_name(const char *args, size_t len);
/* True when argv[0] is a Python interpreter. */
bool role_is_python_command(const char *args, size_t len);
/* True for launchers whose children are the ranks of one job (torchrun, mpirun, srun…), unlike a
 * shell's. */
bool role_starts_ranks(const struct process_info *info);
