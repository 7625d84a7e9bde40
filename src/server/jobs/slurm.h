/* Runs jobs through Slurm: sbatch, squeue, sacct and scancel, which run as child processes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLURM_ALLOWED_MAX = 64 };

/* The operator's settings. */
struct slurm_options {
    /* names of sbatch options that requests may set besides partition and time, such as "qos" */
    const char *allowed[SLURM_ALLOWED_MAX + 1];
};

/* True if a request may set the sbatch option NAME, which consists of lower case letters, digits
 * and "-". Options that ebb sets itself are refused. */
bool slurm_is_option(const char *name);
