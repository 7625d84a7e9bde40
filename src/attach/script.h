/* The Python scripts that run inside the job, as files in a private folder. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct err;

struct script {
    int32_t pid;         /* the process for which the script is meant; a forked child ignores it */
    const char *folder;  /* folder for the script */
    const char *socket;  /* socket that receives marks */
    const char *package; /* folder of ebb's Python package */
    const char *run_dir; /* run folder, or NULL */
    const char *library; /* path of libebb-heap.so, or NULL */
    uint64_t heap_interval_bytes;
};

enum { SCRIPT_PATH_MAX = 160 };
/* Write a script and return its path. The start script loads ebb._attach and calls start(); the
 * stop script calls stop(). When a script ends, it sends KIND=attach with STATUS=done, or with
 * STATUS=failed and REASON=. */
int script_write_start(const struct script *s, char ret_path[SCRIPT_PATH_MAX], struct err *err);
int script_write_stop(const struct script *s, char ret_path[SCRIPT_PATH_MAX], struct err *err);
