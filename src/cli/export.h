/* What the two halves of `ebb export` share: recordings, and heaps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct err;
struct stat;

struct export_options {
    bool csv, jsonl, pprof, collapsed, speedscope;
    int64_t pid; /* 0: not given */
    bool debuginfod;
    const char *sysroot;
    const char *output;
};

/* Standard output, or what -o names; what was in it is gone only once we know that it is not INPUT.
 */
int export_open(const struct export_options *options, const struct stat *input, FILE **ret,
                struct err *err);
/* Writes all that is left, R being the result so far: 0 or -errno with a sentence. */
int export_close(const struct export_options *options, FILE *out, int r, struct err *err);
/* The exit status of R. */
int export_status(const struct export_options *options, int r, const struct err *err);
/* A heap of the run at PATH in the form asked for: the exit status. */
int export_heap(const char *path, const struct export_options *options);
