/* The summary of a run. Every text begins with the lead: the answer (how the job ended and the
 * verdict), the place (the allocating line) and the advice. The end of `ebb run` adds a few
 * facts and the next command; `ebb show` adds all facts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct diagnosis;
struct doc;
struct earlier;
struct outcome;
struct outcome_measured;
struct profile_failure;
struct profile_frame;
struct profile_row;
struct series;
struct verdicts;

/* The facts of a summary. Missing facts are omitted from the text. All pointers may be NULL. */
struct summary {
    const struct outcome *outcome;
    const struct verdicts *verdicts;
    const struct profile_row *growing; /* call sites that grow */
    size_t n_growing;
    const struct diagnosis *diagnosis;
    const struct series *spark;                /* memory over time */
    const struct profile_failure *gpu_failure; /* the first GPU request that failed */
    uint64_t gpu_failures;                     /* number of failed GPU requests in all processes */
    /* Why the lines that allocated GPU memory are unknown, as one sentence. */
    const char *gpu_trouble;
    int64_t planned_steps;         /* planned number of steps of the job; 0: unknown */
    const struct earlier *earlier; /* runs of the same name, including this one */
};

/* Adds the lead (lead.c). LABEL is "ebb" if the text appears among the job's own output, otherwise
 * NULL. Returns the number of pieces of advice in the lead, 0 or 1. */
size_t summary_lead(struct doc *d, const struct summary *s, const char *label);
/* Returns the code of the diagnosis that the lead names, for `ebb explain`, or NULL. */
const char *summary_code(const struct summary *s);
/* Returns true if the job ended in any other way than by finishing. */
bool summary_has_failed(const struct outcome *o);
/* Renders the end of `ebb run`: two lines for a healthy job, otherwise about ten. */
void summary_brief(struct doc *d, const struct summary *s);
/* Renders the output of `ebb show`. */
void summary_full(struct doc *d, const struct summary *s);

/* Appends how long the job took, such as "finished in 12 s, 200 steps". */
void summary_add_end(struct buf *out, const struct outcome *o);
/* Returns PATH relative to the working directory, as one would type it. */
const char *summary_path(const char *path);
/* Appends "ebb show" and the operand for this run. The default run needs no operand; if WITH_PATH,
 * its path is appended as a separate item. */
void summary_add_show(struct buf *out, const char *run_dir, bool with_path);
/* Appends the operand that makes a command read this run, or nothing if this run is the default. */
void summary_add_operand(struct buf *out, const char *run_dir);

/* Adds a line of the program, such as "train.py:25 in main()". The path is as one would type it in
 * the folder where the job was started. O may be NULL. */
void summary_put_place(struct doc *d, const struct profile_frame *p, const struct outcome *o);
/* Adds failed GPU requests, each with its line and a remedy (lead.c). Adds fragmentation of GPU
 * memory if the lead does not name it. */
void summary_gpu(struct doc *d, const struct summary *s);

/* Adds segments, the guard's actions, and leftovers (summary_guard.c). */
void summary_guard(struct doc *d, const struct outcome *o);
/* Adds the guard's actions in one line, or nothing if the guard did nothing. */
void summary_guard_brief(struct doc *d, const struct outcome *o);
/* Adds files left in /dev/shm, and memory that was not freed. If IS_BRIEF, only memory
 * of GPUs is added: other processes also change the machine's totals of host and shared memory. */
void summary_leftovers(struct doc *d, const struct outcome *o, bool is_brief);
/* Adds the largest of the processes that run.json lists. */
void summary_processes(struct doc *d, const struct outcome_measured *m);
/* Adds the segments of a restarted job, or nothing if there was only one. If IS_BRIEF, the table
 * has fewer columns, so that it fits into a summary. */
void summary_segments(struct doc *d, const struct outcome *o, bool is_brief);

/* ---- the suggested memory request, in the syntax of the job's scheduler ---- */

enum request_words { REQUEST_SLURM, REQUEST_KUBERNETES };
/* Returns the syntax of Kubernetes if this process runs in a pod and outside Slurm, otherwise the
 * syntax of Slurm, which users of other schedulers understand too. */
enum request_words request_words_here(void);

/* Sizes are per node, with a margin. A size of 0 is unknown. */
struct request {
    enum request_words words;
    bool is_per_node; /* true if the job runs on several nodes */
    double bytes;     /* memory that is enough for a run like this one */
    /* BYTES is enough for 98 % of this many runs of the same name; 0 if BYTES is based on this run
     * only */
    size_t runs;
    /* A leaking run needs more memory the longer it runs: BYTES for STEPS steps, PLANNED_BYTES for
     * PLANNED_STEPS steps. Without the leak, the run would need FIXED_BYTES. */
    bool is_leak;
    int64_t steps, planned_steps; /* 0: unknown */
    double planned_bytes, fixed_bytes;
};
/* Adds the fact "request", or nothing if no size is known. */
void request_put(struct doc *d, const struct request *r);
/* Returns the suggested memory request for a run. */
struct request summary_request(const struct summary *s);
