/* Guesses the role of a process from its command line, its mappings, its parent and its
 * children. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proc/sample.h"

/* Evidence from the files that a process has mapped, collected while reading its maps once. */
struct role_maps {
    bool known;
    bool torch, jax, tensorflow, cuda; /* libtorch*.so, libjax/xla, libtensorflow, libcuda */
    bool python;                       /* libpython or a python executable */
};

struct role_input {
    const struct process_info *process;
    const struct process_info *parent; /* the parent process; NULL if unknown or outside the tree */
    struct role_maps maps;
    size_t siblings;    /* number of other living processes with the same parent; 0 if unknown */
    bool whole_machine; /* the tree contains all processes of the machine, not one job */
    bool child_trains;  /* a descendant of the process has the role main */
    bool sends_steps;   /* the process sent a step mark */
};

struct role_guess {
    enum process_role role;
    /* the reason in printable ASCII, such as "libtorch mapped" or "the command is torchrun" */
    char why[128];
};

/* Guesses a role. The result depends only on the input. The input includes the roles of the parent
 * and the children, so a tree is processed from the top down, and again after a role has
 * changed. */
void role_guess(const struct role_input *in, struct role_guess *ret);
/* Adds the evidence from one line of maps to USER, a struct role_maps. This is a callback for
 * proc_read_maps. */
struct proc_map;
void role_maps_add(void *user, const struct proc_map *map);
/* Returns the mapped library that suggests that the process trains: "libtorch", "libtensorflow" or
 * "jax". Returns NULL if there is none. */
const char *role_maps_library(const struct role_maps *maps);

/* Returns the name of the launcher that a command runs ("uv run", "torchrun", "bash"); NULL for any
 * other command. Launchers are accelerate launch, python -m torch.distributed.run, shells, env,
 * nice, time, sudo, timeout, srun… Only the executed program is checked, not an argument such as
 * `--name torchrun`. */
const char *role_launcher_name(const char *args, size_t len);
/* True if argv[0] is a Python interpreter. */
bool role_is_python_command(const char *args, size_t len);
/* True for launchers whose children are the ranks of one job (torchrun, mpirun, srun…); false for
 * shells. */
bool role_starts_ranks(const struct process_info *info);
