/* The engine's state. Used only in src/engine. */
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

/* Maximum rate of recorded marks: about 1000 marks per second, at 100 to 150 bytes each. */
enum { ENGINE_MARK_BYTES_PER_S = 128 * 1024 };

/* State of a living process in addition to its entity in the run. */
struct engine_process {
    struct run_entity *entity;
    /* highest value of proc_node_unmeasured since the unique memory of the process was last
     * measured */
    uint64_t unmeasured_bytes;
    /* index of the tick in which unmeasured_bytes began to grow, counted like peak.ticks */
    uint64_t unmeasured_from;
    uint64_t status_last_ns;
    uint64_t status_rss_bytes; /* RSS of the process when its status was last read */
};

struct engine_sources {
    struct loop_source *tick, *unique, *flush, *trouble;
};

struct engine_paces {
    struct pace walk, pss, limit, verdict;
    size_t status_cursor;
    uint64_t rest_ns; /* earliest time of the next tick */
    bool is_young;    /* the job is young and sampled more often than options.interval_ns */
};

/* The newest readings. */
struct engine_now {
    struct sample machine;
    struct sample gpu[GPU_MAX];
    struct gpu_snapshot gpus;
    uint32_t gpus_named; /* bit mask of GPUs whose names are in the recording */
    bool has_limit;
    struct machine_limit limit;
    struct proc_tree_memory memory;
    uint64_t unmeasured_bytes; /* sum of proc_node_unmeasured */
    bool is_hurried;
    /* number of complete scans of unique memory at the time when tick_early last requested a
     * tick */
    uint64_t hurried_scans;
};

struct engine_peaks {
    struct peak peak; /* peak of the current segment */
    /* highest peak and highest suggested request of earlier segments */
    uint64_t earlier_bytes, earlier_request_bytes;
    uint64_t kernel_bytes;      /* the kernel's own peak of the cgroup, including file cache */
    uint64_t kernel_last_bytes; /* last value of the kernel's peak, if the kernel cannot reset it */
    /* memory of the process tree at the tick with the highest lower bound */
    struct proc_tree_memory memory;
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
    struct judge *judge;
    bool is_judged; /* the verdicts already include the latest reading and the latest mark */
    struct figures figures;
    struct engine_sources sources;
    struct engine_paces paces;
    struct engine_now now;
    struct engine_peaks peaks;
    struct engine_cost cost;
    struct engine_charge charge; /* the job's own cgroup; the fds are -1 if there is none */
    uint64_t own_limit_bytes;
    bool watching_all;
    bool had_any; /* true after the first process was watched */
    bool is_empty_reported;
    bool stopped;
    uint64_t started_ns, started_wall_ns, last_tick_ns;
    uint64_t newest_ns; /* latest time in the recording */
    uint64_t steps_seen, marks_seen;
    char step_source[16]; /* source of the steps (torch, tqdm, …), if a hook has reported it */
    /* the recording */
    struct trace_writer *writer;
    struct trace_writer_status recorded; /* status of the writer when it was closed */
    bool was_recorded;
    /* folder of the recording, from which the file's size is read at the end; -1 if not
     * recording */
    int record_dir_fd;
    bool is_trouble_reported, is_thinning_reported;
};

static inline struct engine_process *engine_process_of(const struct proc_node *node)
{
    return node->user;
}

void engine_report(struct engine *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

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
const char *engine_gpu_name(const struct engine *e, size_t gpu);
void engine_sample_tree(struct engine *e);
