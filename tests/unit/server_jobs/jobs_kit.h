/* A server without HTTP for the tests of jobs. Its jobs are run by the stand-in in fake_ebb.h. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/jobs/jobs.h"
#include "server/jobs/store.h"

struct loop;

struct kit {
    char folder[64];
    char list[96]; /* File to which jobs append their ids. */
    struct loop *loop;
    struct jobs *jobs;
    struct jobs_options options;
    unsigned changes, lives, removed; /* Numbers of notifications received, by kind. */
};
extern struct kit kit;

int kit_setup(void **state);
int kit_teardown(void **state);
#define TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
/* Opens and starts the server with kit.options; may be called again after kit_stop. */
void kit_start(void);
void kit_open(void); /* Opens the server without starting it. */
void kit_stop(void);

/* Submits a job with a command of fake_ebb.h. EXTRA is NULL or a JSON object with more keys of the
 * request. */
int64_t kit_submit(const char *extra, const char *word, const char *first, const char *second);
/* Returns -errno if the request is refused, with the message in kit_sentence. */
int64_t kit_try_submit(const char *extra, const char *word, const char *first, const char *second);
int64_t kit_try_rerun(int64_t id);
extern char kit_sentence[512];

typedef bool kit_fn(int64_t id);
void kit_wait(kit_fn *is_so, int64_t id); /* Fails the test after a timeout. */
void kit_wait_state(int64_t id, enum job_state state);
void kit_wait_ended(int64_t id);
void kit_run_ms(unsigned ms);
/* Returns the job as JSON, including its state changes. The object is valid until the next call. */
json_t *kit_get(int64_t id);
const char *kit_text(int64_t id, const char *key);
/* Returns how often ID occurs in kit.list. */
int kit_times(int64_t id);
/* Opens the run folder as jobs_read does. Returns an fd or -errno. */
int kit_open_folder(int64_t id);
struct store *kit_store(void); /* Opens the job store. No server may have the store open. */
void kit_touch(const char *path);
const char *kit_run_path(int64_t id, const char *name, const char *file);
