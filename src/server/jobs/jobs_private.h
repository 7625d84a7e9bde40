/* What the files of the jobs share. A job that has ended, durably, costs no memory: it is a row of
 * the store and a folder. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/spark.h"
#include "server/jobs/executor.h"
#include "server/jobs/facts.h"
#include "server/jobs/jobs.h"
#include "server/jobs/plan.h"
#include "server/jobs/spec.h"
#include "server/jobs/state.h"
#include "server/jobs/store.h"

struct err;
struct loop_source;

enum {
    JOBS_LISTENERS = 8,
    JOBS_SENTENCE_MAX = 512,
};

enum job_checkpoint { CHECKPOINT_UNANSWERED = 0, CHECKPOINT_UNDER_WAY, CHECKPOINT_REFUSED };

/* A change that a newer one followed before it was on disk. */
struct job_note {
    enum job_state state;
    uint64_t at_ns;
    char reason[JOBS_SENTENCE_MAX];
};
enum { JOB_NOTES = 16 };

/* What is only known of one that has been started. */
struct job_live {
    struct executor_run *run; /* NULL: over */
    json_t *request;
    char folder[JOB_FOLDER_MAX];
    char folder_id[JOB_FOLDER_ID_SIZE]; /* what it is signed with; "": made by an ebb of before */
    uint64_t gpus;
    uint64_t started_ns;                /* wall clock; 0: not yet */
    uint64_t spawned_ns, start_took_ns; /* monotonic; 0: not known */
    char reason[JOBS_SENTENCE_MAX];
    bool is_alone;          /* nobody else ran at any time of it */
    bool was_asked;         /* to end, by request */
    unsigned changes;       /* reported by the supervisor */
    struct job_note *notes; /* JOB_NOTES of them, or NULL */
    unsigned note_count;
    /* reported by the supervisor */
    struct job_facts facts;
    enum job_checkpoint checkpoint; /* what became of the newest request for one */
    char checkpoint_error[FACTS_TEXT];
    struct series spark;       /* of its memory */
    uint64_t published_ns;     /* when it was last published without a change */
    bool has_news;             /* since then */
    struct job_ending *ending; /* it is over; to be stored */
};

/* One that has not ended, or whose end is not on disk yet. */
struct job {
    int64_t id;
    enum job_state state;
    int priority;
    unsigned gpus_wanted;
    uint64_t memory_bytes;
    const char *memory_from; /* one of three words; NULL */
    char *name;
    int64_t rerun_of; /* 0: none */
    uint64_t submitted_ns;
    int64_t *after; /* still waited for */
    size_t after_count;
    struct plan_verdict verdict;
    enum plan_why published_why;
    uint64_t changed_ns; /* wall clock of the newest change */
    /* The two clocks when we first knew of it. Its times count from there: the wall clock may be
     * set meanwhile, and a job would seem to have run for years, or to have ended before it began.
     */
    uint64_t wall_ns, boot_ns;
    bool is_dirty;         /* the newest is not on disk */
    bool has_room;         /* a slot and the rest are its own */
    struct job_live *live; /* NULL: it has not been started */
};

enum trouble {
    TROUBLE_STORE,
    TROUBLE_START,
    TROUBLE_FILE,
    TROUBLE_KEEP,
    TROUBLE_STRAYS, /* jobs run of which the store knows nothing */
    TROUBLES
};

struct jobs_listener {
    jobs_news_fn *fn;
    void *user;
};

struct jobs {
    struct loop *loop;
    struct jobs_options options;
    char *runs_path, *cwd;
    int runs_fd, locks_fd, ids_fd;
    struct store *store;
    uint64_t age_ns, age_boot_ns; /* the store's age when this server began, and when that was */
    uint64_t age_kept_ns;         /* what is on disk of it */
    struct executor executor;

    struct job **active; /* by id */
    size_t active_count, active_cap;
    struct job **queue; /* by turn: priority, then id */
    size_t queue_count, queue_cap;
    struct plan_room room;
    bool is_planned; /* the verdicts of the queue are of now */
    bool is_started; /* the queue moves */

    struct loop_source *kick_timer; /* the queue is looked at */
    struct loop_source *tick_timer; /* once a second while anything is to do */
    bool is_ticking;
    uint64_t hold_ns, hold_wait_ns; /* nothing is started before; monotonic */

    struct jobs_listener listener[JOBS_LISTENERS];
    char trouble[TROUBLES][JOBS_SENTENCE_MAX];

    struct jobs_keeper *keeper;
    struct jobs_file *file; /* NULL: none is kept */
    bool is_file_due;       /* something has changed since the last one was begun */
    struct jobs_ended {     /* others may have waited for them */
        int64_t id;
        enum job_state state;
    } * news;
    size_t news_count, news_cap, news_at; /* of the first: how far the queue was looked through */
    bool is_unsettled; /* some of that was lost, or could not be stored: look at all again */
    bool is_unsure;    /* of some nobody could say whether they live */
    uint64_t unsure_ns;
    unsigned ended; /* since memory was last given back */
};

/* ---- jobs_table.c: the jobs that have not ended ---- */

struct job *jobs_find(const struct jobs *j, int64_t id); /* NULL: none, or ended */
/* Takes JOB, whatever comes of it. 0 or -ENOMEM. */
int jobs_insert(struct jobs *j, struct job *job);
void jobs_delete(struct jobs *j, struct job *job);
int jobs_enqueue(struct jobs *j, struct job *job);
void jobs_dequeue(struct jobs *j, struct job *job);
bool jobs_is_queued(const struct jobs *j, const struct job *job);
struct job *job_new(const struct store_job *row, const struct job_spec *spec);
struct job_live *job_live_new(json_t *request); /* takes REQUEST */
/* A name and an id for the run folder of a job that is about to be started. */
int jobs_choose_folder(const struct jobs *j, int64_t id, const char *name, struct job_live *live);
bool job_has_folder(const struct jobs *j, const struct job *job);
/* The folder of that name where the job of FOLDER_ID made it: fd, -ENOENT, or -errno where nobody
 * can say. */
int jobs_open_folder(const struct jobs *j, const char *folder, const char *folder_id);
void job_unlive(struct job *job); /* it has not been started after all */
void job_free(struct job *job);
/* Slot, memory and GPUs are taken, or free again. */
void jobs_occupy(struct jobs *j, struct job *job);
void jobs_vacate(struct jobs *j, struct job *job);

/* ---- jobs_json.c ---- */

/* ROW and JOB describe one job; either may be NULL where the other is enough. */
json_t *jobs_row_json(struct jobs *j, const struct store_job *row, const struct job *job);
json_t *jobs_job_json(struct jobs *j, const struct job *job); /* NULL: cannot be read now */
uint64_t job_gpu_bits(const char *text);                      /* of "0,2" or NULL */
