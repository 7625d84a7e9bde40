/* The run folder of one run, ebb-runs/NAME-DATE/, which contains trace.ebb, log.txt and
 * run.json. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct err;

struct rundir {
    int fd;          /* -1: not open */
    char path[4096]; /* absolute */
};

/* Reduces NAME to the characters [A-Za-z0-9._-] and at most 64 bytes. The result is never "." or
 * "..", never begins with "-", and is "run" if NAME is NULL or empty. */
enum { RUNDIR_NAME_MAX = 64 };
void rundir_clean_name(const char *name, char ret[RUNDIR_NAME_MAX + 1]);

/* If PATH is not NULL, creates exactly that folder, which must not exist yet (-EEXIST), and its
 * parents. If PATH is NULL, creates ebb-runs/NAME-YYYYMMDD-HHMMSS[-N] (local time) in the working
 * directory and points ebb-runs/latest to it; NAME is cleaned by rundir_clean_name. Returns 0, or
 * -errno with an error message that contains the folder's path. */
int rundir_create(const char *path, const char *name, uint64_t wall_ns, struct rundir *ret,
                  struct err *err);
/* Points ebb-runs/latest to JOB, the name of the job folder that contains the node's run folder
 * NODE. */
void rundir_point_latest(const struct rundir *node, const char *job);
/* Signs the folder with FOLDER_ID (1 to 64 characters), which identifies its owner. Must be called
 * right after rundir_create, because the folder is removed if signing fails. */
int rundir_sign(struct rundir *dir, const char *folder_id, struct err *err);
/* Opens the run folder PATH if it is signed with FOLDER_ID, or if FOLDER_ID is "" and the folder is
 * not signed. Symbolic links are not followed. Returns an fd; -ENOENT if the folder does not exist
 * or has another signature; -errno if the signature cannot be read. */
int rundir_open_signed(int dirfd, const char *path, const char *folder_id);
void rundir_fini(struct rundir *dir);
/* Replaces run.json atomically and durably, even if the job has created a folder of that name.
 * Accesses DIR only through its fd. */
int rundir_write_json(const struct rundir *dir, const json_t *doc);
