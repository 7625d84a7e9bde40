/* run.json of a job: what is known before, while it runs, and at its end. docs/run-json.md. */
#include "supervise/job.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "mark/receiver.h"
#include "proc/machine.h"
#include "trace/logs.h"
#include "version.h"

enum { COMMAND_MAX = 64 << 10 }; /* of the job's command */

/* A command line may be megabytes: run.json keeps the beginning. */
static json_t *arguments_json(char *const *argv)
{
    size_t left = COMMAND_MAX;
    json_t *list = json_array();
    for (; *argv && left; argv++) {
        size_t len = strlen(*argv);
        len = len < left ? len : left;
        json_array_append_new(list, json_text(*argv, len));
        left -= len;
    }
    return list;
}

json_t *job_facts_json(const struct job *j)
{
    char cwd[4096];
    struct utsname uts = {0};
    const struct rundir *dir = &j->options->rundir;
    bool ended = j->now.ending == ENDED || j->exec_error || j->failure.text[0];
    uname(&uts);
    return json_pack("{s:s,s:o,s:o,s:s,s:o,s:o,s:o,s:o}", "ebb", EBB_VERSION, "host",
                     json_text0(uts.nodename), "kernel", json_text0(uts.release), "state",
                     ended ? "ended" : "running", "name", json_text0(j->options->name), "run_dir",
                     dir->fd >= 0 ? json_text0(dir->path) : json_null(), "command",
                     arguments_json(j->options->argv), "cwd",
                     json_text0(getcwd(cwd, sizeof cwd) ? cwd : NULL));
}

json_t *job_running_json(const struct job *j)
{
    json_t *doc = job_facts_json(j);
    json_object_set_new(doc, "started", json_local_time(j->started_wall_ns));
    json_object_set_new(doc, "started_s",
                        j->started_wall_ns ? json_seconds(j->started_wall_ns) : json_null());
    json_object_set_new(doc, "supervisor_pid", json_integer(getpid()));
    json_object_set_new(doc, "pid", json_integer(j->now.pid));
    json_object_set_new(doc, "socket",
                        j->marks ? json_text0(mark_receiver_path(j->marks)) : json_null());
    json_object_set_new(doc, "control", json_text0(job_control_path(j->control)));
    json_object_set_new(doc, "segment", json_integer(j->now.number));
    return doc;
}

/* ---- the guard ---- */

static json_t *bytes_or_null(uint64_t bytes)
{
    return bytes ? json_u64(bytes) : json_null();
}

static json_t *guard_json(const struct job *j)
{
    const struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    uint64_t limit = g->limit_bytes ? g->limit_bytes : g->effective.limit_bytes;
    uint64_t reserve = g->ladder.rules.reserve_bytes;
    json_t *o = json_pack(
        "{s:b,s:b,s:o,s:b,s:o,s:o,s:o,s:o,s:b,s:b,s:O,s:O}", "on", !set->is_off, "dry_run",
        set->dry_run, "limit_bytes", bytes_or_null(limit), "limit_is_given", g->limit_bytes != 0,
        "reserve_bytes", bytes_or_null(reserve || !limit ? reserve : ladder_default_reserve(limit)),
        "cgroup", g->cgroup_path[0] ? json_text0(g->cgroup_path) : json_null(), "cgroup_peak_bytes",
        bytes_or_null(j->engine ? engine_kernel_peak(j->engine) : 0), "cgroup_trouble",
        g->no_cgroup[0] ? json_text0(g->no_cgroup) : json_null(), "kernel_limit", g->kernel_limit,
        "locked", g->was_locked, "events", g->events, "checkpoints", g->checkpoints);
    if (j->no_restart[0])
        json_object_set_new(o, "not_restarted", json_text0(j->no_restart));
    return o;
}

/* ---- the end ---- */

static void put_measured(struct job *j, json_t *doc)
{
    json_t *measured = j->engine ? engine_summary(j->engine, clock_mono_ns()) : NULL;
    if (measured)
        json_object_update(doc, measured);
    json_decref(measured);
    if (j->marks && json_object_get(doc, "marks")) {
        struct mark_receiver_stats stats;
        mark_receiver_stats(j->marks, &stats);
        json_object_set_new(json_object_get(doc, "marks"), "bad", json_u64(stats.bad));
        json_object_set_new(json_object_get(doc, "marks"), "doubled",
                            json_u64(j->step_sources.left_out));
    }
}

static void put_job_end(struct job *j, json_t *doc)
{
    json_object_set_new(doc, "ended", json_local_time(clock_wall_ns()));
    if (j->now.ended_ns)
        json_object_set_new(doc, "duration_s", json_seconds(j->now.ended_ns - j->started_ns));
    json_object_set_new(doc, "end", job_end_json(j));
    if (j->now.exited)
        json_object_set_new(doc, "peak_process_bytes",
                            json_u64((uint64_t)j->now.usage.ru_maxrss * 1024));
    if (j->spark.count)
        json_object_set_new(doc, "spark", spark_pack(&j->spark));
    if (j->output.log)
        json_object_set_new(doc, "log",
                            json_pack("{s:s,s:o}", "file", "log.txt", "bytes",
                                      json_u64(logs_bytes(j->output.log))));
}

json_t *job_ended_json(struct job *j)
{
    json_t *doc = job_running_json(j);
    put_measured(j, doc);
    put_job_end(j, doc);
    if (!j->started_ns)
        return doc;
    json_object_set(doc, "segments", j->segments);
    json_object_set_new(doc, "guard", guard_json(j));
    json_object_set_new(doc, "heap", job_heap_json(j));
    json_object_set_new(doc, "given_back", memory_returned_json(&j->guard.memory_returned));
    if (j->guard.left)
        json_object_set(doc, "left", j->guard.left);
    return doc;
}
