/* The engine's inside, shared by its own files only. */
#pragma once

#include "engine/engine.h"
#include "engine/figures.h"
#include "engine/history.h"
#include "judge/judge.h"
#include "engine/pace.h"
#include "engine/peak.h"
#include "proc/gpu.h"
#include "proc/unique.h"

struct loop_source;

/* Of marks that are recorded: about 1000 a second, of 100 to 150 bytes each. */
enum { ENGINE_MARK_BYTES_PER_S = 128 * 1024 };

struct engine {
    struct loop *loop;
    struct engine_options options;
    struct engine_callbacks callbacks;
    struct proc_tree *tree;
    struct proc_unique *unique;
    struct machine *machine;
    struct gpu *gpu;
    struct trace_writer *writer;
    struct loop_source *tick_timer, *unique_timer, *flush_timer, *psi_source, *trouble_source;
    int psi_fd;
    bool watching_all;
    bool had_any; /* some process was there */
    bool told_empty;
    uint64_t rest_ns; /* no tick before this */
    bool is_young;    /* looked at more often than options.interval_ns says */
    bool stopped;
    uint64_t started_ns, started_wall_ns, last_tick_ns, last_psi_ns;
    uint64_t told_ns; /* the latest time that was written down or told to the judge */
    uint64_t ticks, gaps;
    struct pace walk, status, pss, limit, verdict;
    struct run *run;
    struct judge *judge; /* observes it */
    struct figures figures;
    bool is_judged; /* since the last reading or mark */
    size_t status_cursor;
    uint64_t status_credit_ns; /* turns earned, each STATUS_PERIOD_S long */
    uint64_t status_earned_ns; /* up to then */
    bool psi_tried;
    struct sample machine_sample;
    struct sample gpu_sample[GPU_MAX];
    struct gpu_snapshot gpu_now;
    bool gpu_named;
    bool limit_known;
    struct machine_limit limit_now;
    struct engine_charge charge; /* of the job's own cgroup; its fds are -1 where it has none */
    uint64_t kernel_peak_bytes;  /* of the cgroup, by its own count; file cache is in it */
    uint64_t kernel_last_bytes;  /* as it was last read where it cannot be reset */
    struct peak peak;            /* of the present segment, and of those before: */
    uint64_t earlier_peak_bytes, earlier_request_bytes;
    uint64_t own_limit_bytes;
    struct track tree_track; /* the best estimate: the lower bound once unique memory is known */
    uint64_t tree_high_peak_bytes;
    uint64_t gpu_job_peak_bytes[GPU_MAX];
    struct proc_tree_memory memory, memory_at_peak;
    uint64_t unmeasured_bytes; /* sum of proc_node_unmeasured */
    bool is_hurried;
    uint64_t hurried_scans; /* processes measured when the last hurried tick was asked for */
    uint64_t unique_sum_peak_bytes;
    uint64_t processes_seen;
    struct history_gone gone;
    bool step_known;
    int64_t step;
    uint64_t steps_seen, marks_seen;
    uint64_t tick_cost_ns_total, tick_cost_ns_longest;
    struct trace_writer_status recorded; /* as it was when the recording was closed */
    bool was_recorded;
    int record_dir_fd; /* a copy, to look at the file's size at the end; -1 none */
    bool said_trouble, said_thinned;
};

static inline struct history *history_of(const struct proc_node *node)
{
    return node->user;
}

json_t *limit_json(const struct machine_limit *limit);
void engine_say(struct engine *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- engine.c ---- */

void engine_judge_now(struct engine *e, uint64_t now_ns);

/* ---- engine_look.c ---- */

void engine_look_at_status(struct engine *e, uint64_t now_ns, bool all);
void engine_look_at_pss(struct engine *e, uint64_t now_ns);
void engine_look_at_limit(struct engine *e, uint64_t now_ns);
bool engine_read_charge(const struct engine *e, uint64_t *ret);
void engine_look_at_charge(struct engine *e);
void engine_look_at_own_limit(struct engine *e);
void engine_look_at_gpu(struct engine *e, uint64_t now_ns);
void engine_look_at_whole(struct engine *e, uint64_t now_ns);
