/* Shared by the files of the Slurm executor.
 *
 * In Slurm, a job is named NAME.FOLDER_ID. FOLDER_ID is the random signature of its run folder and
 * is stored before sbatch runs, so a job is found by its name even if the server was killed before
 * it received Slurm's job number. sbatch inherits the job's lock and writes that number into the
 * lock file. If it is uncertain whether a job was submitted, it is submitted again with the same
 * name and folder. `ebb run` fails if the folder exists, so only one of two submissions can run. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/jobs/command.h"
#include "server/jobs/executor.h"
#include "server/jobs/slurm.h"

struct loop_source;
struct task;

/* ---- slurm_list.c ---- */

enum slurm_phase {
    SLURM_ABSENT, /* not listed */
    SLURM_PENDING,
    SLURM_RUNNING, /* running, suspended, configuring or completing */
    SLURM_ENDED
};

enum { SLURM_STATE_MAX = 24, SLURM_DETAIL_MAX = 64 };
/* One line of squeue or sacct. */
struct slurm_line {
    int64_t number; /* Slurm's number of the job */
    enum slurm_phase phase;
    char state[SLURM_STATE_MAX];   /* "OUT_OF_MEMORY" */
    char detail[SLURM_DETAIL_MAX]; /* why the job is pending; "" if there is no reason */
    char folder_id[JOB_FOLDER_ID_SIZE];
};
/* Parses "NUMBER|STATE|DETAIL|NAME". Returns 0, or -EBADMSG if it is not a job of an ebb server. */
int slurm_parse_line(const char *line, size_t len, struct slurm_line *ret);
/* Reads the output of sbatch --parsable, "17" or "17;cluster". Returns 0 or -EBADMSG. */
int slurm_parse_number(const char *text, size_t len, int64_t *ret);
/* ERROR is an error message of sbatch. True if a later submission may succeed: Slurm does not
 * respond now, or a limit is reached. */
bool slurm_is_temporary(const char *error);

/* ---- slurm.c ---- */

/* MessageTimeout of Slurm in seconds: a request may still be processed this long after its sender
 * was killed. */
enum { SLURM_SETTLE_S = 10 };

enum slurm_stage {
    SLURM_WAITS,      /* certainly not submitted; waits until fewer sbatch processes run */
    SLURM_SUBMITTING, /* sbatch runs */
    SLURM_UNSURE,     /* sbatch may or may not have submitted the job */
    SLURM_SUBMITTED
};

struct slurm_run {
    struct executor_run base;
    TAILQ_ENTRY(slurm_run) link;
    struct slurm *slurm;
    enum slurm_stage stage;
    struct job_launch launch; /* the command line of sbatch; empty for a job of an earlier server */
    struct command *submit, *kill, *account; /* sbatch, scancel and sacct while they run */
    uint64_t known_ns;                       /* time since which the stage is SLURM_SUBMITTED */
    uint64_t unsure_ns;                      /* time since which the stage is SLURM_UNSURE */
    /* the job is submitted again if squeue does not list it for this long after unsure_ns */
    uint64_t settle_ns;
    int64_t number; /* Slurm's number of the job; 0 if unknown */
    enum slurm_phase phase;
    unsigned listed; /* number of lines about this job in the last output of squeue */
    char state[SLURM_STATE_MAX], detail[SLURM_DETAIL_MAX];
    char waits[EXECUTOR_SENTENCE_MAX]; /* last reported reason why the job waits */
    bool has_folder, is_start_reported, is_accounted;
    bool has_no_lock;   /* the job has no lock file, so sbatch never ran */
    uint64_t gone_ns;   /* time since which Slurm no longer runs the job; 0: Slurm may run it */
    struct task *probe; /* probe of the run folder, a task that may hang; NULL: none */
    uint64_t check_ns;  /* time of the next probe */
    /* start of the first probe since the last one that reached the folder; 0: no such probe */
    uint64_t silent_ns;
    bool is_silent; /* the folder is unreachable, and this was reported */
    bool wants_checkpoint;
    uint64_t state_stamp; /* version of state.json that was read last */
};

struct slurm {
    struct executor *x;
    char sbatch[PATH_MAX], squeue[PATH_MAX], scancel[PATH_MAX], sacct[PATH_MAX];
    char script[PATH_MAX]; /* the batch script, which is the same for all jobs */
    TAILQ_HEAD(, slurm_run) runs;
    size_t count;
    unsigned submitting; /* number of sbatch processes */
    struct loop_source *timer;
    bool is_ticking;
    struct command *list; /* squeue while it runs */
    /* monotonic start times of squeue: the running call, the last successful call, the next call */
    uint64_t list_ns, listed_ns, next_ns;
    bool has_failed; /* the last call of squeue failed */
};

void slurm_tick_on(struct slurm *s);
/* Starts one of Slurm's commands with the server's environment, and collects its output. */
int slurm_command(const struct slurm *s, char *const *argv, unsigned limit_s, command_done_fn *fn,
                  void *user, struct command **ret);
/* Frees RUN and calls `over`. */
void slurm_end(struct slurm_run *run, const struct executor_end *end);
void slurm_run_free(struct slurm_run *run);
/* Reports the reason for which the job waits, if it has changed. */
void slurm_waits(struct slurm_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- slurm_submit.c ---- */

/* Builds the command line of sbatch. Returns 0 or -ENOMEM. */
int slurm_launch(struct slurm_run *run, const struct job_spec *spec);
int slurm_check_spec(const struct executor *x, const struct job_spec *spec, struct err *err);
void slurm_submit(struct slurm_run *run); /* runs sbatch */
/* Sets run->number to Slurm's number of the job if the lock file contains it. */
void slurm_read_number(struct slurm_run *run);
/* Sets RET to the path of the file with the standard error of the batch script. */
int slurm_error_path(const struct slurm_run *run, char ret[PATH_MAX]);

void slurm_list(struct slurm *s, uint64_t now_ns); /* runs squeue if it is due */
void slurm_account(struct slurm_run *run);         /* runs sacct once for a job */

/* ---- slurm_run.c ---- */

/* Decides what to do next for a job, and starts a probe of its folder if it is due. May free
 * RUN. */
void slurm_check(struct slurm_run *run, uint64_t now_ns);
/* Changes the stage to SLURM_SUBMITTED; Slurm has known the job since KNOWN_NS. */
void slurm_become_submitted(struct slurm_run *run, uint64_t known_ns);
/* Members of executor_kind: */
int slurm_cancel(struct executor_run *base);
int slurm_checkpoint(struct executor_run *base);
