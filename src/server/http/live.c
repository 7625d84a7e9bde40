/* The hub of the live stream: converts each change of a job to one message, and sends the
 * message to all subscribed viewers. */
#include "server/http/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/http/live_private.h"

struct live_times live_times = {
    .check_ns = 2 * NS_PER_S,
    .ping_ns = 20 * NS_PER_S,
    .silent_ns = 60 * NS_PER_S,
    .stuck_ns = 60 * NS_PER_S,
    .closing_ns = 10 * NS_PER_S,
};

/* ---- messages ---- */

struct live_message *live_message_of(enum live_kind kind, int64_t id, json_t *doc)
{
    char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    struct live_message *m = text ? live_message_new(kind, id, text, strlen(text)) : NULL;
    free(text);
    json_decref(doc);
    return m;
}

static struct live_message *message_of_id(enum live_kind kind, const char *type, int64_t id,
                                          json_t *job)
{
    json_t *doc = job ? json_pack("{s:s, s:O}", "type", type, "job", job)
                      : json_pack("{s:s, s:I}", "type", type, "id", (json_int_t)id);
    return live_message_of(kind, id, doc);
}

struct live_message *live_message_of_job(struct live *l, int64_t id)
{
    json_t *job = NULL;
    int r = jobs_get(l->jobs, id, false, &job, NULL);
    struct live_message *m = NULL;
    if (r == 0)
        m = message_of_id(LIVE_JOB, "job", id, job);
    else if (r == -ENOENT)
        m = message_of_id(LIVE_REMOVED, "removed", id, NULL);
    json_decref(job);
    return m;
}

struct live_message *live_message_skipped(int64_t id, enum live_kind kind)
{
    static const char *const words[] = {
        [LIVE_SAMPLE] = "sample", [LIVE_MARK] = "mark", [LIVE_EVENT] = "event", [LIVE_LOG] = "log"};
    return live_message_of(
        LIVE_SKIPPED, id,
        json_pack("{s:s, s:I, s:s}", "type", "skipped", "id", (json_int_t)id, "what", words[kind]));
}

/* ---- publishing ---- */

static bool is_subscribed(const struct live_viewer *v, enum live_kind kind, int64_t id)
{
    if (v->state != VIEWER_OPEN)
        return false;
    switch (kind) {
    case LIVE_MACHINE:
        return v->wants_machine;
    case LIVE_JOB:
    case LIVE_REMOVED:
        return v->wants_jobs || v->job == id;
    case LIVE_LOG:
        return v->tail && v->tail->id == id;
    default:
        return v->job == id;
    }
}

/* True if any viewer is subscribed to messages of KIND about job ID. ID is 0 if the message is not
 * about a job. A message without subscribers need not be built. */
static bool is_wanted(const struct live *l, enum live_kind kind, int64_t id)
{
    const struct live_viewer *v;
    LIST_FOREACH(v, &l->viewers, link)
    {
        if (is_subscribed(v, kind, id))
            return true;
    }
    return false;
}

void live_publish(struct live *l, struct live_message *m)
{
    struct live_viewer *v;
    l->busy++;
    LIST_FOREACH(v, &l->viewers, link)
    {
        if (is_subscribed(v, m->kind, m->id))
            live_viewer_send(v, m);
    }
    l->busy--;
    live_message_drop(m);
}

void live_sweep(struct live *l)
{
    if (!l->has_dead || l->busy)
        return;
    l->has_dead = false;
    for (struct live_viewer *v = LIST_FIRST(&l->viewers), *next; v; v = next) {
        next = LIST_NEXT(v, link);
        if (v->state == VIEWER_DEAD)
            live_viewer_free(v);
    }
}

/* ---- changes of jobs ---- */

static void live_news(void *user, const struct jobs_news *news)
{
    static const enum live_kind kinds[] = {
        [JOBS_NEWS_JOB] = LIVE_JOB,         [JOBS_NEWS_REMOVED] = LIVE_REMOVED,
        [JOBS_NEWS_SAMPLE] = LIVE_SAMPLE,   [JOBS_NEWS_MARK] = LIVE_MARK,
        [JOBS_NEWS_VERDICT] = LIVE_VERDICT, [JOBS_NEWS_EVENT] = LIVE_EVENT,
        [JOBS_NEWS_LOG] = LIVE_LOG};
    struct live *l = user;
    struct live_message *m = NULL;
    enum live_kind kind = kinds[news->kind];
    json_t *doc = (json_t *)(uintptr_t)news->doc;
    /* the answer to a checkpoint request concerns the client that sent the request, not the
     * viewers */
    if (news->kind == JOBS_NEWS_ANSWER)
        return;
    /* also reads the log at the end of a job, which may write output just before it ends */
    if (kind == LIVE_LOG || (kind == LIVE_JOB && news->is_change))
        live_tail_read(l, news->id);
    if (kind != LIVE_LOG && is_wanted(l, kind, news->id))
        m = kind == LIVE_JOB || kind == LIVE_REMOVED
                ? message_of_id(kind, kind == LIVE_JOB ? "job" : "removed", news->id, doc)
                : live_message_of(kind, news->id, json_incref(doc));
    if (m)
        live_publish(l, m);
    live_sweep(l);
}

static void on_check(void *user, uint64_t now_ns)
{
    struct live *l = user;
    struct live_viewer *v;
    if (is_wanted(l, LIVE_MACHINE, 0)) {
        json_t *doc = l->machine(l->machine_user);
        if (doc)
            json_object_set_new(doc, "type", json_string("machine"));
        struct live_message *m = live_message_of(LIVE_MACHINE, 0, doc);
        if (m)
            live_publish(l, m);
    }
    l->busy++;
    LIST_FOREACH(v, &l->viewers, link)
    {
        live_viewer_check(v, now_ns);
    }
    l->busy--;
    live_sweep(l);
}

/* ---- subscriptions ---- */

struct subscription {
    bool jobs, machine, log;
    int64_t job;
};

static int read_subscription(const json_t *doc, struct subscription *ret, struct err *err)
{
    struct subscription w = {0};
    const char *key;
    json_t *value;
    if (!json_is_object(doc))
        return err_set(
            err, -EINVAL,
            "a subscription must be an object like {\"jobs\": true, \"job\": 17, \"log\": "
            "true}");
    json_object_foreach((json_t *)(uintptr_t)doc, key, value)
    {
        bool is_job = strcmp(key, "job") == 0, is_null = json_is_null(value);
        bool *flag = strcmp(key, "jobs") == 0      ? &w.jobs
                     : strcmp(key, "machine") == 0 ? &w.machine
                     : strcmp(key, "log") == 0     ? &w.log
                                                   : NULL;
        if (!flag && !is_job)
            return err_set(err, -EINVAL, "unknown key \"%.60s\"; use jobs, machine, job or log",
                           key);
        if (flag && !json_is_boolean(value) && !is_null)
            return err_set(err, -EINVAL, "%s: must be true or false", key);
        if (is_job && !is_null && (!json_is_integer(value) || json_integer_value(value) < 1))
            return err_set(err, -EINVAL, "job: must be a job id or null");
        if (flag)
            *flag = json_is_true(value);
        else
            w.job = json_integer_value(value);
    }
    *ret = w;
    return 0;
}

static void watch(struct live_viewer *v, const struct subscription *w)
{
    struct live *l = v->live;
    struct live_tail *tail = w->job && w->log ? live_tail_watch(l, w->job) : NULL;
    if (v->job != w->job)
        live_queue_leave(&v->queue, v->job);
    live_tail_leave(l, v->tail);
    v->tail = tail;
    v->wants_jobs = w->jobs;
    v->wants_machine = w->machine;
    v->job = w->job;
}

void live_viewer_subscribe(struct live_viewer *v, const char *text, size_t len)
{
    struct err err = {""};
    struct subscription w = {0};
    struct live_message *m = NULL;
    json_t *doc = json_parse(text, len, &err);
    int r = doc ? read_subscription(doc, &w, &err) : -EINVAL;
    json_decref(doc);
    if (r == 0 && w.job && !(m = live_message_of_job(v->live, w.job)))
        r = err_set(&err, -EIO, "cannot read job %lld; try again", (long long)w.job);
    if (r < 0)
        m = live_message_of(
            LIVE_ERROR, 0,
            json_pack("{s:s, s:o}", "type", "error", "message", json_text0(err.text)));
    else
        watch(v, &w);
    live_viewer_send_new(v, m);
}

/* ---- the hub ---- */

int live_new(struct loop *loop, struct jobs *jobs, live_machine_fn *machine, void *user,
             unsigned viewers_max, struct live **ret, struct err *err)
{
    struct live *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    *l = (struct live){.loop = loop,
                       .jobs = jobs,
                       .machine = machine,
                       .machine_user = user,
                       .times = live_times,
                       .viewers_max = viewers_max};
    int r = io_random_hex((sizeof l->boot - 1) / 2, l->boot);
    if (r < 0)
        err_set(err, r, "cannot read random bytes: %s", strerror(-r));
    else
        r = wslay_load(&l->wslay, err);
    if (r == 0) {
        r = loop_add_timer(loop, clock_mono_ns() + l->times.check_ns, l->times.check_ns, on_check,
                           l, &l->timer);
        if (r < 0)
            err_set(err, r, "cannot create a timer: %s", strerror(-r));
    }
    if (r < 0) {
        live_free(l);
        return r;
    }
    jobs_listen(jobs, live_news, l);
    *ret = l;
    return 0;
}

void live_free(struct live *l)
{
    struct live_viewer *v;
    if (!l)
        return;
    jobs_listen(l->jobs, NULL, l);
    LIST_FOREACH(v, &l->viewers, link)
    {
        live_viewer_close(v, WSLAY_CODE_GOING_AWAY, "the server is shutting down");
        live_viewer_flush(v);
    }
    while (!LIST_EMPTY(&l->viewers))
        live_viewer_free(LIST_FIRST(&l->viewers));
    loop_remove(l->timer);
    wslay_unload(&l->wslay);
    free(l);
}

void live_counts(const struct live *l, struct live_counts *ret)
{
    *ret = l->counts;
}
