/* One run is one folder: ebb-runs/NAME-DATE/ with trace.ebb, log.txt, run.json. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct err;

struct rundir {
    int fd;          /* -1 where there is none */
    char path[4096]; /* absolute */
};

/* NAME cleaned to [A-Za-z0-9._-], at most 64 bytes, never "." or ".." and no leading "-"; "run"
 * where it is NULL or empty. */
enum { RUNDIR_NAME_MAX = 64 };
void rundir_clean_name(const char *name, char ret[RUNDIR_NAME_MAX + 1]);

/* With PATH: exactly that folder, which must not exist yet (-EEXIST) and whose parents are made.
 * Without: ebb-runs/NAME-YYYYMMDD-HHMMSS[-N] below the working directory (local time), and
 * ebb-runs/latest is pointed at it. NAME is cleaned. 0, or -errno with a sentence that names the
 * folder. */
int rundir_create(const char *path, const char *name, uint64_t wall_ns, struct rundir *ret,
                  struct err *err);
/* Signs the folder with FOLDER_ID (1 to 64 characters): whose it is. Where that fails the folder,
 * which must be as rundir_create made it, is removed. */
int rundir_sign(struct rundir *dir, const char *folder_id, struct err *err);
/* Opens the run folder PATH where it is the one that was signed with FOLDER_ID ("": one that was
 * never signed). Links are not followed. fd, -ENOENT where there is none or it is another's,
 * -errno where that cannot be read. */
int rundir_open_signed(int dirfd, const char *path, const char *folder_id);
void rundir_fini(struct rundir *dir);
/* run.json, replaced atomically and durably, whatever a job has put into its folder. Of DIR the fd
 * is enough. */
int rundir_write_json(const struct rundir *dir, const json_t *doc);
