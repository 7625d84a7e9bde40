/* run.json: the facts of a run and its end (docs/reference/run-json.md). The engine and the
 * supervisor write it; views and the job server read it. The members "verdict", "heap", "diagnosis"
 * and "spark" have their own types and are not part of struct outcome. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- how the run ended ---- */

enum outcome_kind {
    OUTCOME_UNKNOWN = 0,
    OUTCOME_EXITED,
    OUTCOME_SIGNALLED,
    OUTCOME_NOT_STARTED,
    OUTCOME_LOST,
    OUTCOME_GONE,        /* `ebb watch`: the last watched process exited */
    OUTCOME_WATCH_ENDED, /* `ebb watch`: ebb was stopped before the job ended */
};

struct outcome_sample {
    double before_end_s;
    uint64_t job_bytes;
    bool has_room_bytes;
    uint64_t room_bytes;
};

struct outcome_end {
    enum outcome_kind kind;
    bool has_status, has_signal, has_signal_number, has_core, has_left_behind;
    bool has_outlived_supervisor;
    int64_t status;
    char signal[24];
    int32_t signal_number;
    bool core, outlived_supervisor;
    uint64_t left_behind;
    char *error, *by; /* error, by, cause and cause_kind are NULL if unknown */
    /* cause is a sentence, cause_kind one of the words in docs/reference/run-json.md */
    char *cause, *cause_kind;
    struct outcome_sample *last_samples;
    size_t last_sample_count;
};

struct outcome_segment {
    uint32_t segment;
    int32_t pid;
    char *started;
    double duration_s;
    bool has_first_step, has_last_step, has_checkpoint_step;
    int64_t first_step, last_step, checkpoint_step;
    uint64_t peak_bytes;
    char *verdict; /* verdict word, or NULL */
    struct outcome_end end;
};

/* ---- the guard, and memory returned to the machine ---- */

struct outcome_event {
    double t_s; /* seconds since the start of the run */
    uint32_t segment;
    char act[24], trigger[24];
    char *why;
    bool dry_run;
    bool has_gpu;
    uint32_t gpu; /* the GPU whose memory made the guard act */
};

struct outcome_checkpoint {
    uint64_t id;
    uint32_t segment;
    double asked_t_s, took_s;
    char heard_by[16];
    char *path; /* NULL if not reported */
    bool has_step;
    int64_t step;
    uint64_t rise_bytes;
};

struct outcome_guard {
    bool on, dry_run, limit_is_given, kernel_limit, locked;
    bool has_limit_bytes, has_reserve_bytes, has_cgroup_peak_bytes;
    uint64_t limit_bytes, reserve_bytes, cgroup_peak_bytes;
    char *cgroup, *cgroup_trouble, *not_restarted;
    struct outcome_event *events;
    size_t event_count;
    struct outcome_checkpoint *checkpoints;
    size_t checkpoint_count;
};

/* Memory in use on the whole machine, before and after the job. */
struct outcome_returned {
    bool has_before_bytes, has_peak_bytes, has_after_bytes, has_freed_bytes;
    uint64_t before_bytes, peak_bytes, after_bytes, freed_bytes;
};

struct outcome_given_back {
    bool has_host, has_shm;
    struct outcome_returned host, shm;
    struct outcome_returned *gpus;
    size_t gpu_count;
};

/* A file of the job that is still in /dev/shm. */
struct outcome_left {
    char *name;
    uint64_t bytes;
    bool in_use, removed;
    /* true if the file belongs to the job; earlier versions also listed other jobs' files */
    bool has_is_jobs, is_jobs;
};

/* ---- memory ---- */

/* Statistics over all readings of the job or of one process. Baseline, growth and rate come from
 * the verdict on the job or process. */
struct outcome_series {
    uint64_t samples;
    bool has_start_bytes, has_end_bytes, has_mean_bytes, has_peak_bytes;
    bool has_floor_bytes, has_growth_bytes, has_rate_bytes_per_min;
    uint64_t start_bytes, end_bytes, mean_bytes, peak_bytes;
    struct outcome_floor {
        bool has_first, has_last;
        uint64_t first, last;
    } floor_bytes;
    int64_t growth_bytes;
    double rate_bytes_per_min;
};

struct outcome_tree {
    struct outcome_series series;
    bool has_peak_high_bytes, has_unique_bytes, has_shared_bytes, has_unique_peak_bytes;
    bool has_rss_sum_bytes;
    uint64_t peak_high_bytes, unique_bytes, shared_bytes, unique_peak_bytes, rss_sum_bytes;
};

struct outcome_process {
    int32_t pid, ppid;
    uint64_t start_ticks;
    char role[24];
    /* name of the process; neither this name nor the words of its command are escaped */
    char *name;
    char **command;
    size_t command_count;
    bool alive;
    double alive_s;
    struct outcome_series series;
    bool has_unique_bytes, has_anon_bytes, has_file_bytes, has_shmem_bytes, has_swap_bytes;
    bool has_gpu_bytes, has_gpu_peak_bytes;
    uint64_t unique_bytes, anon_bytes, file_bytes, shmem_bytes, swap_bytes;
    uint64_t gpu_bytes, gpu_peak_bytes;
};

struct outcome_role {
    char role[24];
    uint64_t count;
    bool has_largest_bytes, has_unique_bytes;
    uint64_t largest_bytes, unique_bytes;
};

struct outcome_largest {
    int32_t pid;
    char *name;
    char role[24];
    bool has_peak_bytes;
    uint64_t peak_bytes;
};

struct outcome_gpu {
    char *name;
    bool has_total_bytes, has_used_bytes, has_job_bytes, has_job_peak_bytes;
    uint64_t total_bytes, used_bytes, job_bytes, job_peak_bytes;
};

struct outcome_limit {
    char *kind, *where;
    bool soft;
    bool has_limit_bytes, has_used_bytes, has_headroom_bytes, has_peak_bytes;
    uint64_t limit_bytes, used_bytes, headroom_bytes, peak_bytes;
};

/* ---- several nodes ---- */

/* One node of a job on several nodes; NODES is the expected number of nodes. */
struct outcome_node {
    uint32_t number, nodes;
};

/* A rank of the job on this node. Each rank is a command started by its own `ebb run`. */
struct outcome_rank {
    uint32_t rank, local_rank; /* rank number in the whole job, and on this node */
    /* First process of the rank, identified by pid and start_ticks as in `processes`. */
    int32_t pid;
    uint64_t start_ticks;
    char state[12]; /* "running" or "ended" */
    bool has_status, has_signal, has_ended_t_s;
    int64_t status; /* exit status; 128 + N if killed by signal N */
    int32_t signal;
    double started_t_s, ended_t_s; /* seconds since the start of the run */
};

/* ---- everything else ---- */

/* Facts that are known at the start of a run. */
struct outcome_about {
    char *ebb, *host, *kernel, *state, *name, *run_dir, *cwd, *started;
    char **command;
    size_t command_count;
    bool has_pid, has_supervisor_pid, has_started_s, has_segment, has_attached;
    bool attached; /* true if the job was already running when ebb attached to it at `started` */
    int32_t pid, supervisor_pid;
    double started_s;
    char *socket, *control;
    char **cgroup;
    size_t cgroup_count;
    uint32_t segment;
};

struct outcome_recording {
    char *file, *error;
    uint64_t readings, blocks_lost, marks_left_out;
    bool has_bytes;
    uint64_t bytes;
};

struct outcome_marks {
    uint64_t received, steps;
    bool has_last_step, has_bad, has_doubled;
    int64_t last_step;
    uint64_t bad, doubled;
    char *source; /* source of the steps if a hook counts them, such as "torch" or "tqdm" */
};

struct outcome_cost {
    bool has_cpu_s, has_cpu_permyriad, has_rss_bytes, has_longest_unique_call_ms;
    double cpu_s;
    int64_t cpu_permyriad;
    uint64_t rss_bytes, ticks;
    double longest_tick_ms, longest_unique_call_ms;
};

struct outcome_log {
    char *file;
    uint64_t bytes;
};

struct outcome_left_list {
    struct outcome_left *shm;
    size_t shm_count;
};

/* Facts that the engine measured up to the end of a run. */
struct outcome_measured {
    bool has_duration_s, has_interval_s, has_limit, has_tree, has_ask_bytes, has_processes_seen;
    bool has_largest, has_recording, has_marks, has_gaps, has_cost;
    double duration_s, interval_s;
    struct outcome_limit limit;
    /* totals over the whole job; not set when a whole machine is watched */
    struct outcome_tree tree;
    uint64_t ask_bytes, processes_seen, gaps;
    struct outcome_process *processes;
    size_t process_count;
    struct outcome_role *roles;
    size_t role_count;
    struct outcome_largest largest;
    struct outcome_gpu *gpus;
    size_t gpu_count;
    struct outcome_recording recording;
    struct outcome_marks marks;
    struct outcome_cost cost;
};

struct outcome {
    struct outcome_about about;
    bool has_measured, has_end, has_guard, has_given_back, has_left, has_log;
    bool has_peak_process_bytes, has_node;
    struct outcome_measured measured;
    char *ended; /* local time */
    struct outcome_end end;
    uint64_t peak_process_bytes;
    struct outcome_segment *segments;
    size_t segment_count;
    struct outcome_guard guard;
    struct outcome_given_back given_back;
    struct outcome_left_list left;
    struct outcome_log log;
    struct outcome_node node; /* set for a job on several nodes */
    struct outcome_rank *ranks;
    size_t rank_count;
};

/* Splits LEN bytes of words that are separated by NUL, as in /proc/PID/cmdline, into an array.
 * Returns NULL if there are no words or memory is exhausted. */
char **outcome_words(const char *args, size_t len, size_t *ret_count);
double outcome_seconds(uint64_t ns); /* converts to seconds, rounded to microseconds */
/* Sets the facts that begin every run.json: version, host, working folder. */
void outcome_about_start(struct outcome_about *ret, const char *name, const char *run_dir);
/* replaces *AT with a copy of TEXT, which may be NULL, and frees the old text */
void outcome_set_text(char **at, const char *text);

/* Adds the members of O to DOC, replacing existing keys. Returns 0 or -ENOMEM. */
int outcome_put(const struct outcome *o, json_t *doc);
json_t *outcome_end_json(const struct outcome_end *end); /* returns NULL if out of memory */
/* Converts a wait status to the kind of end, exit status and signal. */
struct outcome_end outcome_end_of_status(int status);
json_t *outcome_event_json(const struct outcome_event *event);
/* Reads DOC into *RET, which must be zeroed. The job itself may have changed the document, so
 * invalid members are treated as missing. Returns 0, or -ENOMEM with nothing to free. */
int outcome_read(const json_t *doc, struct outcome *ret);
/* Reads run.json in the folder DIRFD, if it is at most MAX bytes long. Follows no link and does not
 * block on a pipe. The caller frees both results; RET_JSON may be NULL. Returns 0, -ENOENT,
 * -EBADMSG or -errno, and zeroes RET on failure. */
int outcome_read_folder(int dirfd, size_t max, json_t **ret_json, struct outcome *ret);
void outcome_fini(struct outcome *o);
/* Returns true if the run has not ended, according to its run.json. */
bool outcome_is_running(const struct outcome *o);
/* Returns true if nearly all memory used by the job was returned to the machine, or if this is
 * unknown. */
bool outcome_is_returned(const struct outcome_returned *r);
