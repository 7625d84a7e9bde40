/* Writes state.json and reads request.json in a separate thread, because access to a shared disk
 * may hang. */
#include "supervise/job_folder.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/thread.h"
#include "supervise/job.h"

enum {
    FOLDER_S = 1, /* interval between two checks for a request */
    /* interval at which state.json is written again although the state has not changed */
    STATE_S = 5,
    FOLDER_REQUEST_MAX = 64 << 10,
    FOLDER_STACK_BYTES = 128 << 10,
    FOLDER_JOIN_S = 2, /* maximum wait for the thread to end, because its disk access may hang */
};

struct job_folder {
    struct loop_source *timer;
    pthread_t thread;
    bool has_thread;
    uint64_t state_ns; /* time at which state.json was last generated */
    const char *state; /* the state in the last state.json */
    /* answer to the last request, until it is written to state.json; otherwise NULL */
    json_t *answer;
    json_int_t id;        /* id of the last request, so that the request is not carried out twice */
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct buf text;    /* state.json, ready to be written */
    struct buf request; /* content of request.json, to be handled by the loop */
    bool is_stopped;
};

/* ---- the thread ---- */

/* Reads and removes a request file. The loop keeps the id of the last request, so that the request
 * is not carried out twice if its file cannot be removed. */
static void read_request_file(int folder, struct buf *ret)
{
    if (io_read_plain(folder, JOB_FOLDER_REQUEST, FOLDER_REQUEST_MAX, ret) < 0 || ret->len == 0)
        buf_clear(ret);
    else
        unlinkat(folder, JOB_FOLDER_REQUEST, 0);
}

static void *use_folder(void *user)
{
    const struct job *j = user;
    struct job_folder *f = j->folder;
    int folder = j->options->rundir.fd;
    pthread_mutex_lock(&f->lock);
    while (!f->is_stopped) {
        struct buf text = f->text, request = {0};
        f->text = (struct buf){0};
        pthread_mutex_unlock(&f->lock);
        if (text.len)
            (void)io_replace_file(folder, JOB_FOLDER_STATE, text.data, text.len);
        buf_fini(&text);
        read_request_file(folder, &request);
        pthread_mutex_lock(&f->lock);
        if (request.len && !f->request.len)
            f->request = request;
        else
            buf_fini(&request);
        struct timespec until = thread_deadline(FOLDER_S * NS_PER_S);
        if (!f->is_stopped && !f->text.len)
            pthread_cond_timedwait(&f->changed, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    /* state.json is no longer needed, because run.json now contains the end of the job */
    unlinkat(folder, JOB_FOLDER_STATE, 0);
    unlinkat(folder, JOB_FOLDER_REQUEST, 0);
    return NULL;
}

/* ---- the loop ---- */

/* Carries out a request that the thread has read. Returns true if there was one. */
static bool take_folder_request(struct job *j, struct job_folder *f)
{
    pthread_mutex_lock(&f->lock);
    struct buf text = f->request;
    f->request = (struct buf){0};
    pthread_mutex_unlock(&f->lock);
    json_auto_t *doc = text.len ? json_parse(text.data, text.len, NULL) : NULL;
    buf_fini(&text);
    json_int_t id = json_integer_value(json_object_get(doc, "id"));
    bool is_new = doc && (id == 0 || id != f->id);
    if (is_new) {
        f->id = id;
        json_decref(f->answer);
        f->answer = job_control_answer(j, doc);
    }
    return is_new;
}

static void add_message(json_t *list, json_t *message)
{
    if (message)
        json_array_append_new(list, message);
}

/* Generates the next version of state.json. The answer to a request is written only once. */
static void publish_folder(struct job *j, struct job_folder *f, uint64_t now_ns)
{
    struct buf text = {0}, old;
    json_t *list = json_array(), *doc = json_object();
    const struct job_message log = {.type = MESSAGE_LOG,
                                    .log = {.has_bytes = true, .bytes = job_log_readable_bytes(j)}};
    f->state_ns = now_ns;
    f->state = job_state_name(j);
    add_message(list, job_message_state(j));
    add_message(list, job_message_sample(j, now_ns));
    add_message(list, job_message_verdict(j, now_ns));
    if (engine_run(j->engine)->job.signal[JOB_MEMORY])
        add_message(list, job_message_spark(j));
    add_message(list, job_message_json(&log));
    add_message(list, f->answer);
    f->answer = NULL;
    json_object_set_new(doc, "messages", list);
    if (json_print(&text, doc, 0) < 0)
        buf_clear(&text);
    json_decref(doc);
    pthread_mutex_lock(&f->lock);
    old = f->text;
    f->text = text;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    buf_fini(&old);
}

static void on_folder(void *user, uint64_t now_ns)
{
    struct job *j = user;
    struct job_folder *f = j->folder;
    bool is_due = take_folder_request(j, f) || now_ns - f->state_ns >= STATE_S * NS_PER_S;
    if (is_due || strcmp(f->state, job_state_name(j)) != 0)
        publish_folder(j, f, now_ns);
}

/* ---- start and end ---- */

void job_folder_start(struct job *j)
{
    if (!j->options->folder_control || j->options->rundir.fd < 0)
        return;
    struct job_folder *f = j->folder = calloc(1, sizeof *f);
    int r = f ? 0 : -ENOMEM;
    if (f) {
        f->state = "";
        pthread_mutex_init(&f->lock, NULL);
        thread_cond_init(&f->changed);
        r = loop_add_timer(j->loop, clock_mono_ns(), FOLDER_S * NS_PER_S, on_folder, j, &f->timer);
    }
    if (r == 0) {
        r = thread_start(FOLDER_STACK_BYTES, use_folder, j, &f->thread);
        f->has_thread = r == 0;
    }
    if (r < 0)
        job_notifyf(j, "the job server cannot follow this job: %s", strerror(-r));
}

void job_folder_free(struct job *j)
{
    struct job_folder *f = j->folder;
    if (!f)
        return;
    loop_remove(f->timer);
    pthread_mutex_lock(&f->lock);
    f->is_stopped = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FOLDER_JOIN_S;
    if (f->has_thread && pthread_timedjoin_np(f->thread, NULL, &until) != 0)
        return; /* the thread still uses F; the process is about to exit */
    j->folder = NULL;
    json_decref(f->answer);
    buf_fini(&f->text);
    buf_fini(&f->request);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
