/* The censuses that a run folder keeps: census/NNNN-PID-STEP.json, the number counted by each
 * process for itself. */
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
    struct census_file *v; /* the oldest first */
    size_t count;
};

/* Those in FOLDER (of PID alone, where it is not 0). A folder that cannot be read has none. */
void census_files_list(const char *folder, int32_t pid, struct census_files *ret);
void census_files_fini(struct census_files *files);
/* A file of the job's own, whatever is in it: an object, or NULL with a sentence. */
json_t *census_file_read(const char *path, struct err *err);
