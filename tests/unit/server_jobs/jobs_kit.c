/* Provides a server for tests, with its folder and event loop, and functions that wait for
 * conditions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"
#include "jobs_kit.h"

enum { PATIENCE_S = 180 };

struct kit kit;
char kit_sentence[512];
static json_t *last;

static void on_news(void *user, const struct jobs_news *news)
{
    (void)user;
    bool has_doc = news->kind != JOBS_NEWS_REMOVED && news->kind != JOBS_NEWS_ANSWER;
    assert_int_equal(json_is_object(news->doc), has_doc);
    kit.changes += news->kind == JOBS_NEWS_JOB && news->is_change;
    kit.lives += news->kind >= JOBS_NEWS_SAMPLE;
    kit.removed += news->kind == JOBS_NEWS_REMOVED;
}

int kit_setup(void **state)
{
    static char program[512];
    (void)state;
    kit = (struct kit){.folder = "/tmp/ebb-test-jobs.XXXXXX"};
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0 || !mkdtemp(kit.folder))
        return -1;
    program[n] = '\0';
    snprintf(kit.list, sizeof kit.list, "%s/list", kit.folder);
    kit.options = (struct jobs_options){
        .state_dir = kit.folder, .slots = 2, .grace_ns = 5 * NS_PER_S, .program = program};
    return 0;
}

int kit_teardown(void **state)
{
    char command[400];
    (void)state;
    kit_stop();
    json_decref(last);
    last = NULL;
    /* Jobs that run `hold` exit when this file appears. */
    snprintf(
        command, sizeof command,
        "for d in '%s'/runs/*/; do [ -d \"$d\" ] && : >\"$d/finish\"; done; i=0; "
        "until rm -rf '%s' 2>/dev/null; do i=$((i+1)); [ $i -lt 900 ] || exit 1; sleep 0.1; done",
        kit.folder, kit.folder);
    return system(command) == 0 ? 0 : -1;
}

void kit_open(void)
{
    struct err err = {""};
    assert_int_equal(loop_new(&kit.loop), 0);
    if (jobs_open(kit.loop, &kit.options, &kit.jobs, &err) < 0)
        fail_msg("%s", err.text);
    jobs_listen(kit.jobs, on_news, &kit);
}

void kit_start(void)
{
    struct err err = {""};
    kit_open();
    if (jobs_start(kit.jobs, &err) < 0)
        fail_msg("%s", err.text);
}

void kit_stop(void)
{
    jobs_close(kit.jobs);
    kit.jobs = NULL;
    loop_free(kit.loop);
    kit.loop = NULL;
}

struct submission {
    struct jobs_submission base;
    int64_t id; /* or -errno */
};

static void on_submitted(struct jobs_submission *base, int r, json_t *job, const struct err *err)
{
    struct submission *s = (struct submission *)base;
    s->id = r < 0 ? r : json_integer_value(json_object_get(job, "id"));
    snprintf(kit_sentence, sizeof kit_sentence, "%s", err->text);
    json_decref(job);
}

static void keep_submission(struct jobs_submission *base)
{
    (void)base; /* nothing to free: the submission is on the stack */
}

int64_t kit_try_submit(const char *extra, const char *word, const char *first, const char *second)
{
    struct submission s = {.base = {.done = on_submitted, .free = keep_submission}};
    struct task *task;
    json_t *request = extra ? json_loads(extra, 0, NULL) : json_object();
    json_t *command = json_pack("[s]", word);
    assert_non_null(request);
    if (first)
        json_array_append_new(command, json_string(first));
    if (second)
        json_array_append_new(command, json_string(second));
    json_object_set_new(request, "command", command);
    assert_int_equal(jobs_submit(kit.jobs, request, 0, &s.base, &task), 0);
    assert_null(task); /* jobs that run on this machine are submitted at once */
    json_decref(request);
    return s.id;
}

int64_t kit_try_rerun(int64_t id)
{
    struct submission s = {.base = {.done = on_submitted, .free = keep_submission}};
    struct task *task;
    assert_int_equal(jobs_submit(kit.jobs, NULL, id, &s.base, &task), 0);
    assert_null(task);
    return s.id;
}

int64_t kit_submit(const char *extra, const char *word, const char *first, const char *second)
{
    int64_t id = kit_try_submit(extra, word, first, second);
    if (id <= 0)
        fail_msg("%s", kit_sentence);
    return id;
}

void kit_wait(kit_fn *is_so, int64_t id)
{
    uint64_t until_ns = clock_mono_ns() + PATIENCE_S * NS_PER_S;
    while (!is_so(id)) {
        if (clock_mono_ns() > until_ns)
            fail_msg("timed out waiting for job %lld, which is %s", (long long)id,
                     job_state_word(jobs_state(kit.jobs, id)));
        loop_once(kit.loop, 20);
    }
}

static enum job_state wanted;

static bool is_wanted(int64_t id)
{
    return jobs_state(kit.jobs, id) == wanted;
}

void kit_wait_state(int64_t id, enum job_state state)
{
    wanted = state;
    kit_wait(is_wanted, id);
}

static bool is_ended(int64_t id)
{
    return job_state_is_final(jobs_state(kit.jobs, id));
}

void kit_wait_ended(int64_t id)
{
    kit_wait(is_ended, id);
}

void kit_run_ms(unsigned ms)
{
    uint64_t until_ns = clock_mono_ns() + ms * NS_PER_MS;
    while (clock_mono_ns() < until_ns)
        loop_once(kit.loop, 5);
}

json_t *kit_get(int64_t id)
{
    struct err err = {""};
    json_t *doc = NULL;
    if (jobs_get(kit.jobs, id, true, &doc, &err) < 0)
        fail_msg("%s", err.text);
    json_decref(last);
    last = doc;
    return doc;
}

const char *kit_text(int64_t id, const char *key)
{
    const char *text = json_string_value(json_object_get(kit_get(id), key));
    return text ? text : "";
}

int kit_times(int64_t id)
{
    long long seen;
    int times = 0;
    FILE *f = fopen(kit.list, "re");
    if (!f)
        return 0;
    while (fscanf(f, "%lld", &seen) == 1)
        times += seen == id;
    fclose(f);
    return times;
}

struct kit_reading {
    struct jobs_reading base;
    int fd;
};

static void kit_read(struct jobs_reading *r, int folder)
{
    ((struct kit_reading *)r)->fd = folder < 0 ? folder : fcntl(folder, F_DUPFD_CLOEXEC, 0);
}

static void kit_ignore_reading(struct jobs_reading *r)
{
    (void)r;
}

int kit_open_folder(int64_t id)
{
    struct kit_reading r = {
        .base = {.read = kit_read, .done = kit_ignore_reading, .free = kit_ignore_reading}};
    struct task *task;
    assert_int_equal(jobs_read(kit.jobs, id, &r.base, &task), 0);
    assert_null(task); /* the tests' server runs jobs on this machine */
    return r.fd;
}

void kit_touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    close(fd);
}

const char *kit_run_path(int64_t id, const char *name, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/runs/%lld-%s/%s", kit.folder, (long long)id, name, file);
    return path;
}

struct store *kit_store(void)
{
    char path[128];
    struct err err = {""};
    struct store *s = NULL;
    snprintf(path, sizeof path, "%s/jobs.db", kit.folder);
    if (store_open(path, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}
