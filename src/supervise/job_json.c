/* Writes a job's run.json at its start and at its end (docs/reference/run-json.md). */
#include "supervise/job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "mark/receiver.h"
#include "run/spark.h"
#include "trace/logs.h"

enum { COMMAND_MAX = 64 << 10 }; /* maximum length of a command in run.json */

/* Copies the command. A command line may be megabytes long, so only its beginning is stored in
 * run.json. */
static void copy_command(char *const *argv, struct outcome_about *ret)
{
    size_t left = COMMAND_MAX, count = 0;
    while (argv[count])
        count++;
    ret->command = calloc(count + 1, sizeof(char *));
    for (; ret->command && *argv && left; argv++) {
        char *word = strndup(*argv, left);
        left -= word ? strlen(word) : left;
        ret->command[ret->command_count++] = word;
    }
}

double job_seconds(const struct job *j, uint64_t t_ns)
{
    return outcome_seconds(u64_minus(t_ns, j->started_ns));
}

void job_about_start(struct job *j)
{
    const struct rundir *dir = &j->options->rundir;
    outcome_about_start(&j->outcome.about, j->options->name, dir->fd >= 0 ? dir->path : NULL);
    copy_command(j->options->argv, &j->outcome.about);
}

json_t *job_header_json(const struct job *j)
{
    json_t *doc = json_object();
    outcome_put(&j->outcome, doc);
    return doc;
}

json_t *job_running_json(struct job *j)
{
    struct outcome_about *a = &j->outcome.about;
    char text[TEXT_LOCAL_MAX];
    bool ended = j->now.ending == ENDED || j->exec_error || j->failure.text[0];
    outcome_set_text(&a->state, ended ? "ended" : "running");
    outcome_set_text(&a->started, text_local_time(text, j->started_wall_ns));
    a->has_started_s = j->started_wall_ns != 0;
    a->started_s = outcome_seconds(j->started_wall_ns);
    a->has_supervisor_pid = a->has_pid = a->has_segment = true;
    a->supervisor_pid = (int32_t)getpid();
    a->pid = (int32_t)j->now.pid;
    a->segment = j->now.number;
    outcome_set_text(&a->socket, j->marks ? mark_receiver_path(j->marks) : NULL);
    outcome_set_text(&a->control, job_control_path(j->control));
    return job_header_json(j);
}

/* ---- the guard ---- */

static void fill_guard(struct job *j)
{
    const struct job_guard *g = &j->guard;
    const struct guard_settings *set = &j->options->guard;
    struct outcome_guard *o = &j->outcome.guard;
    uint64_t limit = g->limit_bytes ? g->limit_bytes : g->effective.limit_bytes;
    uint64_t reserve = g->ladder.rules.reserve_bytes;
    j->outcome.has_guard = true;
    o->on = !set->is_off;
    o->dry_run = set->dry_run;
    o->limit_is_given = g->limit_bytes != 0;
    o->limit_bytes = limit;
    o->has_limit_bytes = limit != 0;
    o->reserve_bytes = reserve || !limit ? reserve : ladder_default_reserve(limit);
    o->has_reserve_bytes = o->reserve_bytes != 0;
    o->cgroup_peak_bytes = j->engine ? engine_kernel_peak(j->engine) : 0;
    o->has_cgroup_peak_bytes = o->cgroup_peak_bytes != 0;
    outcome_set_text(&o->cgroup_trouble, g->no_cgroup[0] ? g->no_cgroup : NULL);
    outcome_set_text(&o->not_restarted, j->no_restart[0] ? j->no_restart : NULL);
}

/* ---- the end ---- */

static void fill_measured(struct job *j)
{
    struct outcome_measured *m = &j->outcome.measured;
    struct mark_receiver_stats stats;
    j->outcome.has_measured = engine_measure(j->engine, clock_mono_ns(), m) == 0;
    if (j->marks) {
        mark_receiver_stats(j->marks, &stats);
        m->marks.has_bad = m->marks.has_doubled = true;
        m->marks.bad = stats.bad;
        m->marks.doubled = j->step_sources.left_out;
    }
    if (j->now.ended_ns)
        m->duration_s = outcome_seconds(j->now.ended_ns - j->started_ns);
}

static void fill_outcome(struct job *j)
{
    struct outcome *o = &j->outcome;
    char text[TEXT_LOCAL_MAX];
    outcome_set_text(&o->ended, text_local_time(text, clock_wall_ns()));
    o->has_peak_process_bytes = j->now.exited;
    o->peak_process_bytes = (uint64_t)j->now.usage.ru_maxrss * 1024;
    o->has_log = j->output.log;
    outcome_set_text(&o->log.file, "log.txt");
    o->log.bytes = j->output.log ? logs_bytes(j->output.log) : 0;
    o->has_given_back = j->started_ns != 0 && !j->is_attached;
    if (j->started_ns)
        fill_guard(j);
}

json_t *job_ended_json(struct job *j)
{
    fill_outcome(j);
    if (j->engine)
        fill_measured(j);
    json_t *doc = job_running_json(j);
    if (j->outcome.has_measured)
        json_object_set_new(doc, "verdict", judge_json(engine_verdict(j->engine)));
    json_object_set_new(doc, "end", outcome_end_json(job_outcome_end(j)));
    const struct series *memory = j->engine ? engine_run(j->engine)->job.signal[JOB_MEMORY] : NULL;
    if (memory)
        json_object_set_new(doc, "spark", spark_pack(memory));
    if (!j->started_ns)
        return doc;
    json_object_set_new(doc, "heap", job_heap_json(j));
    return doc;
}
