/* Creates the folder, store and jobs of the tests. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "server/jobs/store.h"
#include "store_kit.h"

char store_kit_path[128];
char store_kit_folder[64];

int store_kit_setup(void **state)
{
    (void)state;
    strcpy(store_kit_folder, "/tmp/ebb-test-store.XXXXXX");
    if (!mkdtemp(store_kit_folder))
        return -1;
    snprintf(store_kit_path, sizeof(store_kit_path), "%s/jobs.db", store_kit_folder);
    return 0;
}

int store_kit_teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", store_kit_folder);
    return system(command) == 0 ? 0 : -1;
}

struct store *store_kit_open(void)
{
    struct store *s = NULL;
    struct err err = {""};
    if (store_open(store_kit_path, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

void store_kit_refused(int code, const char *part)
{
    struct store *s = NULL;
    struct err err = {""};
    assert_int_equal(store_open(store_kit_path, &s, &err), code);
    assert_null(s);
    if (!strstr(err.text, part) || !strstr(err.text, store_kit_path))
        fail_msg("\"%s\" has no \"%s\"", err.text, part);
}

int64_t store_kit_add(struct store *s, const char *name, enum job_state state)
{
    struct err err = {""};
    int64_t id = 0;
    struct store_job job = {.state = state,
                            .name = name,
                            .request = "{\"command\":[\"x\"]}",
                            .submitted_ns = 1000000000};
    if (store_add(s, &job, &id, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

void store_kit_change(struct store *s, int64_t id, enum job_state state, uint64_t at_ns)
{
    struct err err = {""};
    struct store_change c = {.state = state, .at_ns = at_ns};
    if (store_change(s, id, &c, &err) < 0)
        fail_msg("%s", err.text);
}

off_t store_kit_size(const char *suffix)
{
    char name[160];
    struct stat st;
    snprintf(name, sizeof(name), "%s%s", store_kit_path, suffix);
    return stat(name, &st) < 0 ? -1 : st.st_size;
}

int store_kit_see(void *user, const struct store_job *job)
{
    struct store_kit_seen *seen = user;
    assert_true(seen->count < 64);
    seen->ids[seen->count++] = job->id;
    return seen->count == seen->stop_at;
}
