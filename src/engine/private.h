/* The engine's inside, shared by its own files only. */
#pragma once

#include "engine/engine.h"
#include "engine/figures.h"
#include "engine/memory.h"
#include "engine/pace.h"
#include "engine/peak.h"
#include "judge/judge.h"
#include "proc/gpu.h"
#include "proc/unique.h"
#include "run/run.h"

struct loop_source;

/* Of marks that are recorded: about 1000 a second, of 100 to 150 bytes each. */
enum { ENGINE_MARK_BYTES_PER_S = 128 * 1024 };

/* Beside its entity in the run, for each living process. */
struct engine_process {
    struct run_entity *entity;
    uint64_t unmeasured_bytes; /* the most that has come since its unique memory was measured … */
    uint64_t unmeasured_from;  /* … which was before this tick of struct peak */
    uint64_t status_last_ns;
    uint64_t status_rss_bytes; /* RSS when status was last read */
};

struct engine_sources {
    struct loop_source *tick, *unique, *flush, *psi, *trouble;
    int psi_fd;
    bool psi_tried;
    uint64_t last_psi_ns;
};

struct engine_paces {
    struct pace walk, status, pss, limit, verdict;
    size_t status_cursor;
    uint64_t status_credit_ns; /* turns earned, each STATUS_PERIOD_S long */
    uint64_t status_earned_ns; /* up to then */
    uint64_t rest_ns;          /* no tick before this */
    bool is_young;             /* sampled more often than options.interval_ns says */
};

/* The newest readings. */
struct engine_now {
    struct sample machine;
    struct sample gpu[GPU_MAX];
    struct gpu_snapshot gpus;
    bool gpus_are_named; /* in the recording */
    bool has_limit;
    struct machine_limit limit;
    struct proc_tree_memory memory;
    uint64_t unmeasured_bytes; /* sum of proc_node_unmeasured */
    bool is_hurried;
    uint64_t hurried_scans; /* processes measured when the last hurried tick was asked for */
};

struct engine_peaks {
    struct peak peak; /* of the present segment, and of those before: */
    uint64_t earlier_bytes, earlier_request_bytes;
    uint64_t kernel_bytes;          /* of the cgroup, by its own count; file cache is in it */
    uint64_t kernel_last_bytes;     /* as it was last read where it cannot be reset */
    struct proc_tree_memory memory; /* as it was when the tree's lower bound was highest */
    uint64_t tree_high_bytes, unique_sum_bytes;
};

struct engine_cost {
    uint64_t ticks, total_ns, longest_ns;
};

struct engine {
    struct loop *loop;
    struct engine_options options;
    struct engine_callbacks callbacks;
    struct proc_tree *tree;
    struct proc_unique *unique;
    struct machine *machine;
    struct gpu *gpu;
    struct run *run;
    struct judge *judge; /* observes it */
    bool is_judged;      /* since the last reading or mark */
    struct figures figures;
    struct engine_sources sources;
    struct engine_paces paces;
    struct engine_now now;
    struct engine_peaks peaks;
    struct engine_cost cost;
    struct engine_charge charge; /* of the job's own cgroup; its fds are -1 where it has none */
    uint64_t own_limit_bytes;
    bool watching_all;
    bool had_any; /* some process was there */
    bool is_empty_reported;
    bool stopped;
    uint64_t started_ns, started_wall_ns, last_tick_ns;
    uint64_t newest_ns; /* the latest time that was recorded */
    uint64_t steps_seen, marks_seen;
    /* the recording */
    struct trace_writer *writer;
    struct trace_writer_status recorded; /* as it was when it was closed */
    bool was_recorded;
    int record_dir_fd; /* a copy, to read the file's size at the end; -1 none */
    bool is_trouble_reported, is_thinning_reported;
};

static inline struct engine_process *engine_process_of(const struct proc_node *node)
{
    return node->user;
}

void engine_say(struct engine *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- engine.c ---- */

void engine_judge_now(struct engine *e, uint64_t now_ns);

/* ---- engine_sample.c ---- */

void engine_sample_status(struct engine *e, uint64_t now_ns, bool all);
void engine_sample_pss(struct engine *e, uint64_t now_ns);
void engine_sample_limit(struct engine *e, uint64_t now_ns);
bool engine_read_charge(const struct engine *e, uint64_t *ret);
void engine_sample_charge(struct engine *e);
void engine_apply_own_limit(struct engine *e);
void engine_sample_gpus(struct engine *e, uint64_t now_ns);
void engine_sample_tree(struct engine *e);
