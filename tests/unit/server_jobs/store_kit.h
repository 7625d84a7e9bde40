/* A temporary folder with a job store and jobs, for the tests of the store. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "server/jobs/store.h"

/* Path of the store, in a folder that exists during one test. */
extern char store_kit_path[128];
extern char store_kit_folder[64];
int store_kit_setup(void **state);
int store_kit_teardown(void **state);

/* These functions fail the test on an error. */
struct store *store_kit_open(void);
void store_kit_refused(int code, const char *part); /* The error message must contain PART. */
int64_t store_kit_add(struct store *s, const char *name, enum job_state state);
void store_kit_change(struct store *s, int64_t id, enum job_state state, uint64_t at_ns);
/* Returns the size of the file, or -1 if it does not exist. */
off_t store_kit_size(const char *suffix);

struct store_kit_seen {
    int64_t ids[64];
    size_t count, stop_at;
};
int store_kit_see(void *user, const struct store_job *job);
