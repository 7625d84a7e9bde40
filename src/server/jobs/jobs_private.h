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

/* ---- jobs_state.c: changes, durable where the disk allows, and published ---- */

void jobs_trouble_set(struct jobs *j, enum trouble kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void jobs_trouble_clear(struct jobs *j, enum trouble kind);
/* The wall clock as it was when we first knew of JOB, and has gone on since; never before the job's
 * last change. */
uint64_t job_now_ns(const struct job *job);
/* In memory at once; on disk now, or as soon as that can be. REASON NULL: none. */
void jobs_change(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Only if it can be stored: false, and nothing has changed. */
bool jobs_change_first(struct jobs *j, struct job *job, enum job_state state);
/* The same for what a supervisor reports: on disk within a second or so. */
void jobs_change_soft(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Ends one that was never started, and only if that can be stored: 0, and JOB is gone; or -errno.
 */
int jobs_end_queued(struct jobs *j, struct job *job, enum job_state state, const char *reason,
                    struct err *err);
/* JOB is over; takes ENDING. When it is stored JOB is gone. */
void jobs_end(struct jobs *j, struct job *job, struct job_ending *ending);
/* Tries again what could not be stored. True: something is left to do. */
bool jobs_sync_all(struct jobs *j);
void jobs_publish_job(struct jobs *j, struct job *job, bool is_change);
void jobs_publish_removed(struct jobs *j, int64_t id);
/* KIND of a supervisor's message, which is borrowed. */
void jobs_publish(struct jobs *j, enum jobs_news_kind kind, int64_t id, const json_t *message);
/* At once, unless it was just published: then within a second. */
void jobs_publish_verdict(struct jobs *j, struct job *job);
void jobs_tick_on(struct jobs *j);

/* ---- jobs_ids.c: ids never come again ---- */

int jobs_ids_open(struct jobs *j, int state_fd, struct err *err);
/* ID is about to be given; before the commit. */
int jobs_ids_note(struct jobs *j, int64_t id, struct err *err);

/* ---- jobs_queue.c ---- */

void jobs_kick(struct jobs *j);         /* the queue is looked at soon */
void jobs_plan(struct jobs *j);         /* why each of the queue waits */
void jobs_start_queued(struct jobs *j); /* starts what can be started, some at a time */
/* Nothing of it was started, for a reason that may pass: it waits again. */
void jobs_requeue(struct jobs *j, struct job *job, const char *why);
void jobs_on_kick(void *user, uint64_t now_ns, uint64_t missed);
/* What to set aside where the request does not say. */
void jobs_learn_memory(struct jobs *j, struct job *job);
void jobs_relearn(struct jobs *j, const char *name); /* of those that wait */
void jobs_waits_for(struct jobs *j, const struct job *job, char *ret, size_t size);

/* ---- jobs_after.c: those that come after others ---- */

/* A job has ended: those that come after it go on, or are cancelled, soon. */
void jobs_after_ended(struct jobs *j, int64_t id, enum job_state state);
/* Some of that; true: there is more. */
bool jobs_after_some(struct jobs *j);
/* For all that JOB comes after, by the store. False: JOB is gone. */
bool jobs_check_after(struct jobs *j, struct job *job);
void jobs_check_all_after(struct jobs *j); /* or at some: then it is still unsettled */

/* ---- jobs_follow.c: callbacks of the executor ---- */

extern const struct executor_callbacks jobs_callbacks; /* without user */
/* It was asked to end while it was starting or running. */
void jobs_ask_end(struct jobs *j, struct job *job, const char *reason, uint64_t grace_ns);

/* ---- jobs_end.c: what is kept of an ended job, from its run.json ---- */

enum { ENDING_COUNTS = 10 };
struct job_ending {
    enum job_state state;
    char reason[JOBS_SENTENCE_MAX];
    uint64_t duration_ns; /* 0: not known */
    uint64_t peak_bytes;  /* to ask for next time; 0: not known */
    struct job_facts facts;
    json_t *end; /* for the store */
    struct {
        const char *key;
        double by;
    } counts[ENDING_COUNTS];
    size_t count_count;
};
/* RUN_JSON, NO_START as the executor has them. NULL: out of memory. */
struct job_ending *job_ending_new(const struct job_live *live, const json_t *run_json,
                                  const char *no_start);
void job_ending_free(struct job_ending *e);

/* ---- jobs_json.c ---- */

/* ROW and JOB describe one job; either may be NULL where the other is enough. */
json_t *jobs_row_json(struct jobs *j, const struct store_job *row, const struct job *job);
json_t *jobs_job_json(struct jobs *j, const struct job *job); /* NULL: cannot be read now */
uint64_t job_gpu_bits(const char *text);                      /* of "0,2" or NULL */

/* ---- jobs_adopt.c ---- */

int jobs_adopt(struct jobs *j, struct err *err);
void jobs_adopt_again(struct jobs *j); /* those of which nobody could say */
void jobs_sweep_locks(struct jobs *j); /* of jobs that have ended */

/* ---- jobs_keep.c: what is kept of ended jobs ---- */

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err);
void jobs_keeper_free(struct jobs_keeper *k);
void jobs_keeper_wake(struct jobs_keeper *k); /* something has ended */
/* How long servers have run with this store, all of them together: what ended jobs age by. The wall
 * clock does not come into it: one wrong reading of that would make everything old. */
uint64_t jobs_age_ns(const struct jobs *j);

/* ---- jobs_file.c: the job file, kept current ---- */

int jobs_file_new(struct jobs *j, struct jobs_file **ret);
void jobs_file_free(struct jobs_file *f); /* what is being written is given up */
void jobs_file_check(struct jobs *j, uint64_t now_ns);
