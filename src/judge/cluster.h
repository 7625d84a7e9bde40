/* The view of a multi-node job, read from its job folder, which has one run folder per node. Each
 * rank is first judged separately and then compared with its peers (verdict/ranks.h). While the job
 * runs, each refresh reads only the new part of the recordings. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "judge/judge.h"
#include "judge/verdicts.h"
#include "run/outcome.h"
#include "run/run.h"
#include "verdict/ranks.h"

/* X(symbol, word) */
#define CLUSTER_STATES(X)                                                                          \
    X(RUNNING, "running")                                                                          \
    X(ENDED, "ended")                                                                              \
    X(LOST, "lost")       /* the supervisor of the node was killed */                              \
    X(SILENT, "silent")   /* its heartbeat stopped, but the end of its run was not recorded */     \
    X(MISSING, "missing") /* an expected node without a folder */                                  \
    X(UNREADABLE, "unreadable") /* neither its recording nor its run.json can be read */
#define X(symbol, word) NODE_##symbol,
enum cluster_state { CLUSTER_STATES(X) NODE_STATES };
#undef X
const char *cluster_state_name(enum cluster_state state);

/* The heartbeat file of a node. */
struct cluster_beat {
    bool is_known, has_step;
    bool has_changed; /* true if SEQ has changed since the first reading */
    /* true if the run has ended; needed if a full disk prevented the last write of run.json */
    bool has_ended;
    uint64_t seq;
    int64_t step;
    int64_t mtime_ns;    /* modification time, on the clock of the file server or of the node */
    uint64_t changed_ns; /* time of the last change of SEQ, on the reader's clock */
};

struct cluster_node {
    uint32_t number;
    uint32_t part;      /* number K of the node's newest folder, node-NN.K, or 0 for node-NN */
    char *path, *host;  /* NULL if missing or unknown */
    struct err trouble; /* reason why a file of the node cannot be read, or "" */
    bool is_duplicate;  /* true if another folder has the same number */
    bool is_followed;   /* true if FOLLOW has been opened */
    bool is_changed;    /* true if new items were read since the last judgement */
    enum cluster_state state;
    struct cluster_beat beat;
    struct run_follower follow;
    struct judge *judge;
    struct verdicts verdicts;
    json_t *run_json;
    int64_t run_json_mtime_ns;
    bool has_outcome;
    struct outcome outcome;
};

struct cluster_rank {
    /* false if the ranks of the node are unknown; the entry then stands for the whole node */
    bool has_number;
    int64_t number;
    size_t node; /* index in cluster.nodes */
    int32_t pid; /* 0 if unknown */
    uint64_t start_ticks;
    bool is_ended, has_status;
    int64_t status;
    double ended_s; /* seconds since the start of its node's run, or 0 if unknown */
    bool has_judged;
    /* verdict on the rank, with the pid of the process that decided the verdict */
    struct judged judged;
    uint64_t peak_bytes, gpu_peak_bytes; /* 0 if unknown */
    struct ranks_place place;
};

/* Facts of job.json. */
struct cluster_job {
    char *job_id, *step_id, *launcher, *name, *cwd;
    uint32_t nodes, ranks; /* expected numbers of nodes and ranks, or 0 if unknown */
};

struct cluster {
    char *path;
    struct cluster_job job;
    struct err trouble; /* reason why job.json cannot be read, or "" */
    struct run_settings settings;
    struct judge_options options;
    struct cluster_node *nodes; /* sorted by number */
    size_t n_nodes;
    struct cluster_rank *ranks; /* sorted, worst first */
    size_t n_ranks;
    struct ranks_peers peers;
    /* medians over all judged ranks, or 0 if unknown */
    double median_floor_bytes, median_peak_bytes;
    /* The verdicts on the job. The word is that of the worst rank or, if no rank leaks but a
     * node does, that of the node. GPUS lists the GPUs of all nodes. */
    struct verdicts verdicts;
    bool has_worst;
    size_t worst;      /* index in RANKS of the rank that decided the verdict; valid if has_worst */
    size_t worst_node; /* index in NODES of the worst node, or n_nodes if there is none */
    size_t *gpu_node;  /* for each entry of verdicts.gpus, its index in NODES */
    bool is_over;      /* true if the job ended by itself on every node */
};

bool cluster_is_folder(const char *path);
/* Opens the job folder PATH. SETTINGS and OPTIONS are copied; either may be NULL. Returns 0, or
 * -errno with an error. */
int cluster_open(const char *path, const struct run_settings *settings,
                 const struct judge_options *options, struct cluster **ret, struct err *err);
/* Reads new nodes, heartbeats and new items of recordings. NOW_NS is the reader's monotonic clock
 * and WALL_NS its wall clock. STAYS is set by a reader that calls this function repeatedly: its own
 * clock then shows whether a heartbeat has stopped. Otherwise, file times show this. Returns true
 * if anything changed. */
bool cluster_refresh(struct cluster *c, uint64_t now_ns, uint64_t wall_ns, bool stays);
/* Judges everything read so far. HAS_HEAPS means that the heap profiles are read as well, each from
 * its beginning. Returns 0 or -ENOMEM. */
int cluster_judge(struct cluster *c, bool has_heaps);
void cluster_free(struct cluster *c); /* C may be NULL */
/* Opens, reads and judges a job folder once. */
int cluster_read(const char *path, const struct run_settings *settings,
                 const struct judge_options *options, struct cluster **ret, struct err *err);

/* Returns the rank with this number, or NULL. */
const struct cluster_rank *cluster_find_rank(const struct cluster *c, int64_t number);
/* Returns the number of failed ranks, and sets *RET to the rank that failed first. */
size_t cluster_failed_ranks(const struct cluster *c, const struct cluster_rank **ret);
size_t cluster_count(const struct cluster *c, enum cluster_state state);
/* Returns the verdicts, nodes and ranks as JSON, owned by the caller; NULL if out of memory. */
json_t *cluster_json(const struct cluster *c);
