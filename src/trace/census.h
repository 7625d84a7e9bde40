/* The census files of a run folder, census/NNNN-PID-STEP.json, where NNNN counts the files of each
 * process. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct census_file {
    int32_t pid;
    char *path; /* owned */
};
struct census_files {
    struct census_file *v; /* oldest first */
    size_t count;
};

/* Lists the census files of process PID in FOLDER, or of all processes if PID is 0. The list is
 * empty if the folder cannot be read. */
void census_files_list(const char *folder, int32_t pid, struct census_files *ret);
void census_files_fini(struct census_files *files);
/* Reads a census file. Its content is not trusted, because the job wrote it. Returns a JSON object,
 * or NULL and sets ERR. */
json_t *census_file_read(const char *path, struct err *err);
