/* What the guard did, for the recording, the user and run.json. */
#include "supervise/job_guard.h"

#include "base/clock.h"
#include "base/json.h"

enum {
    KEPT_MOST = 1000, /* events, checkpoints */
    KEPT_FIRST = 200,
};

static double since_start_s(const struct job *j, uint64_t now_ns)
{
    return now_ns > j->started_ns ? (double)(now_ns - j->started_ns) / (double)NS_PER_S : 0;
}

/* A job may run for weeks with memory near its limit: the first and the newest are kept. */
static void keep(json_t *list, json_t *o)
{
    if (json_array_size(list) >= KEPT_MOST)
        json_array_remove(list, KEPT_FIRST);
    json_array_append_new(list, o);
}

void job_guard_put_event(struct job *j, uint64_t now_ns, const char *act, const char *trigger,
                         const char *why)
{
    struct buf text = {0};
    json_t *o = json_pack("{s:f,s:i,s:s,s:s,s:o,s:b}", "t_s", since_start_s(j, now_ns), "segment",
                          (int)j->now.number, "act", act, "trigger", trigger, "why",
                          json_text0(why), "dry_run", j->options->guard.dry_run ? 1 : 0);
    if (!o)
        return;
    json_print(&text, o, 0);
    buf_add(&text, "", 1);
    engine_note(j->engine, "guard", text.data);
    buf_fini(&text);
    keep(j->guard.events, o);
    job_control_event(j, now_ns, act, why);
}

void job_guard_put_checkpoint(struct job *j, uint64_t now_ns)
{
    const struct ask *a = &j->guard.ask;
    const struct job_segment *n = &j->now;
    keep(j->guard.checkpoints,
         json_pack("{s:o,s:i,s:f,s:o,s:s,s:o,s:o,s:o}", "id", json_u64(a->id), "segment",
                   (int)n->number, "asked_t_s", since_start_s(j, a->asked_ns), "took_s",
                   json_seconds(now_ns - a->asked_ns), "heard_by", a->by, "path",
                   a->path[0] ? json_text0(a->path) : json_null(), "step",
                   n->has_step ? json_integer(n->last_step) : json_null(), "rise_bytes",
                   json_u64(j->guard.tempo.save_rise_bytes)));
}
