/* The jobs of a server: accepted, queued, started, followed, ended, kept. On one loop. Everything
 * that was answered with "yes" is on disk. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/facts.h"
#include "server/jobs/plan.h"
#include "server/jobs/spec.h"
#include "server/jobs/state.h"
#include "server/jobs/store.h"

struct err;
struct jobs;
struct loop;

/* --keep: what ended and goes beyond any of these is removed, oldest first; 0: no bound. */
struct jobs_keep {
    uint64_t age_ns, bytes;
    unsigned count;
};

/* Texts must live as long as the jobs. */
struct jobs_options {
    const char *state_dir; /* absolute; made with mode 0700 */
    unsigned slots;
    uint64_t memory_bytes; /* for all jobs; 0: not limited */
    unsigned gpus;
    struct jobs_keep keep;
    uint64_t log_bytes;   /* cap of a job's log */
    uint64_t interval_ns; /* of samples where a request does not say */
    uint64_t grace_ns;    /* of a cancel that does not say */
    const char *job_file; /* kept current; NULL: none */
    const char *program;
    uint64_t files_max; /* soft limit of open files for the jobs; 0: the server's own */
    uint64_t force_ns; /* a job that outlives a cancel's grace by so much: its supervisor is killed;
                          0: half a minute */
};

/* What happens, as it happens, on the loop. */
enum jobs_news_kind {
    JOBS_NEWS_JOB,     /* DOC is the job as the API has it; STATE and the two after it are set */
    JOBS_NEWS_REMOVED, /* no DOC */
    JOBS_NEWS_ANSWER,  /* to a request for a checkpoint; no DOC */
    /* messages of a supervisor, with the job's id */
    JOBS_NEWS_SAMPLE,
    JOBS_NEWS_MARK,
    JOBS_NEWS_VERDICT,
    JOBS_NEWS_EVENT,
    JOBS_NEWS_LOG,
};
struct jobs_news {
    enum jobs_news_kind kind;
    int64_t id;
    const json_t *doc; /* borrowed */
    enum job_state state;
    const char *reason; /* "": none */
    bool is_change;     /* of state or verdict */
};
typedef void jobs_news_fn(void *user, const struct jobs_news *news);

int jobs_open(struct loop *loop, const struct jobs_options *options, struct jobs **ret,
              struct err *err);
/* Adopts, accounts, starts: after this the queue moves. */
int jobs_start(struct jobs *jobs, struct err *err);
void jobs_close(struct jobs *jobs); /* lets go of what runs: it runs on */
/* At most 8. FN NULL: USER listens no more. */
void jobs_listen(struct jobs *jobs, jobs_news_fn *fn, void *user);

/* REQUEST borrowed. *RET is the job as the API has it, the caller's. -EINVAL the request, -ENOSPC
 * and others: not accepted. */
int jobs_submit(struct jobs *jobs, const json_t *request, json_t **ret, struct err *err);
int jobs_rerun(struct jobs *jobs, int64_t id, json_t **ret, struct err *err);
/* -ENOENT, -EALREADY (it has ended). A queued one is cancelled at once, or not at all (-ENOSPC and
 * others). One that is stopping already may be given less time. GRACE_NS UINT64_MAX: as
 * configured. */
int jobs_cancel(struct jobs *jobs, int64_t id, const char *reason, uint64_t grace_ns,
                struct err *err);
/* -ENOENT, -EALREADY (it does not run), -ENOTCONN (its supervisor cannot be reached now). */
int jobs_checkpoint(struct jobs *jobs, int64_t id, struct err *err);
/* What came of it: 0 it is under way, -EINPROGRESS (nobody has answered yet), -EALREADY and why
 * not.
 */
int jobs_checkpoint_answer(struct jobs *jobs, int64_t id, struct err *err);

int jobs_get(struct jobs *jobs, int64_t id, bool with_changes, json_t **ret, struct err *err);
/* What was asked for, whole, with the values of its variables: *RET is the caller's. */
int jobs_request(struct jobs *jobs, int64_t id, json_t **ret, struct err *err);
struct jobs_query {
    unsigned states; /* bits; 0: all */
    const char *name;
    int64_t before;
    unsigned limit;
};
int jobs_list(struct jobs *jobs, const struct jobs_query *query, json_t **ret, struct err *err);
enum job_state jobs_state(struct jobs *jobs, int64_t id); /* JOB_STATES: there is none */
/* The run folder: an fd, the caller's, or -ENOENT. PATH_SIZE bytes of its absolute path. */
int jobs_folder(struct jobs *jobs, int64_t id, char *ret_path, size_t path_size);

/* Slots, memory and GPUs in use and in all, and trouble worth a sentence (a full disk). */
json_t *jobs_room_json(const struct jobs *jobs);
json_t *jobs_trouble(const struct jobs *jobs); /* list of sentences */
/* For metrics; pointers are valid until the loop goes on. */
struct jobs_metrics {
    uint64_t by_state[JOB_STATES];
    const struct plan_room *room;
    struct store_counter *counters;
    size_t counter_count;
    struct jobs_running {
        int64_t id;
        uint64_t started_ns; /* wall clock; 0: not known */
        const struct job_facts *facts;
    } * running;
    size_t running_count;
};
void jobs_metrics(struct jobs *jobs, struct jobs_metrics *ret);
void jobs_metrics_fini(struct jobs_metrics *m);

/* A job file as other servers keep it ({"ID": {"status", …}} or a list): ended and running ones are
 * taken over as history, queued ones with a command are queued: all of them or, where that fails,
 * none. The same content is taken in once. Returns how many. */
int jobs_import(struct jobs *jobs, const char *path, struct err *err);
