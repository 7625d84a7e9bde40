/* A job in its supervisor: what the parts of the supervisor share. For them alone. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "supervise/channel.h"
#include "engine/spark.h"
#include "supervise/speakers.h"
#include "supervise/supervisor.h"
#include "guard/ask.h"
#include "guard/cgroup.h"
#include "guard/death.h"
#include "guard/giveback.h"
#include "guard/ladder.h"
#include "guard/leavings.h"
#include "guard/reflex.h"
#include "guard/sentinel.h"
#include "guard/sweep.h"
#include "guard/tempo.h"
#include "proc/tree.h"

struct collect;
struct job;
struct job_control;
struct logs;
struct loop_source;

/* How far the end of a segment has come. */
enum job_ending { RUNNING, SETTLING, TERMINATING, KILLING, DRAINING, ENDED };

/* Numbered as the job's own, with its terminal in place of standard input. */
enum { JOB_STREAMS = 3 };
struct job_stream {
    struct job *j;
    int fd;
    struct loop_source *source;
    /* of the pipes */
    bool is_large;
    int client_fd;                   /* pipe to the client; -1 none */
    bool is_full;                    /* and there is no room in it: */
    struct loop_source *room_source; /* we wait for some */
    bool is_by_channel;              /* the rest goes to the client that way */
};

enum { JOB_LAST_SAMPLES = 8 };

/* One life of the job's first process. With --restart there may be several, one after another. */
struct job_segment {
    unsigned number;
    pid_t pid; /* its process group has the same number */
    int pidfd; /* of it, to the end of the segment; -1 */
    bool exited;
    int status; /* as wait gives it */
    struct rusage usage;
    uint64_t started_ns, started_wall_ns, ended_ns;
    enum job_ending ending;
    uint64_t deadline_ns; /* of the present ending */
    unsigned left_behind;
    const char *ended_by; /* NULL: by itself */
    int operator_signal;  /* the last one passed on that ends programs; 0 none */
    bool is_cancelled;    /* the operator wants an end, of which this one is the last life */
    bool guard_stop;      /* the guard sent it away */
    bool is_planned;      /* because a restart was due */
    char guard_why[LADDER_WHY_MAX];
    bool has_step;
    int64_t first_step, last_step, max_steps; /* max_steps 0: not told */
    bool has_epoch;
    double epoch;
    bool counts_anew; /* its steps are those of this segment alone */
    bool has_checkpoint;
    bool checkpoint_has_step;
    int64_t checkpoint_step; /* done when the checkpoint was acknowledged */
    struct death_ooms ooms;
    struct job_look {
        uint64_t t_ns, job_bytes, room_bytes;
    } look[JOB_LAST_SAMPLES]; /* the last ticks, in a ring */
    uint32_t looks;
};

/* The guard of the job: what watches, what was decided, what was said. */
struct job_guard {
    struct guard_cgroup cgroup;
    struct reflex *reflex;
    struct loop_source *reflex_source, *alert_timer;
    struct ladder ladder;
    bool is_alert;     /* the alert timer runs */
    bool is_requested; /* the checkpoint under way was asked for from outside */
    struct tempo tempo;
    struct ask ask;
    struct leavings *leavings;
    struct loop_source *leavings_source;
    struct giveback giveback;
    struct death_tail tail;
    uint64_t limit_bytes; /* the user's line; 0: none given */
    struct machine_limit effective;
    bool effective_known;
    char effective_dir[4096];       /* below the cgroup root; "" if it is none of a cgroup */
    struct limit_fds effective_fds; /* for the reflex */
    struct reflex_gauge gauge[REFLEX_GAUGES]; /* as the reflex has them */
    bool has_left; /* processes of the job are outside its cgroup, which does not count them */
    char no_cgroup[256]; /* why there is none, or none that counts; "" */
    /* as it was, for run.json */
    char cgroup_path[GUARD_CGROUP_PATH];
    bool was_locked, kernel_limit;
    json_t *events; /* what it did, for run.json */
    json_t *checkpoints;
};

struct job {
    const struct supervisor_options *options;
    struct loop *loop;
    struct engine *engine;
    struct mark_receiver *marks;
    struct collect *heap;                   /* NULL: not profiled */
    char shim[PATH_MAX], library[PATH_MAX]; /* as the job's environment can hold them; "" none */
    struct sentinel_note *note;
    struct job_control *control; /* NULL: nobody can ask for anything */

    struct channel client;
    struct loop_source *client_source, *wake_timer;
    int client_pidfd;    /* to wake it when the job goes on after a stop */
    bool client_stopped; /* it was told to stop, and has not said that it goes on */
    bool client_gone;
    struct job_stream streams[JOB_STREAMS];
    bool client_behind, log_behind; /* frames wait for the client, or log.txt for the disk */
    bool paused;
    struct buf input;

    struct logs *log; /* NULL: none */
    struct loop_source *log_source, *log_timer;
    bool log_stuck; /* it was waited for long enough: the job goes on */
    bool said_log;

    int exec_error;
    struct err failure;   /* why we ourselves could not start it */
    struct err no_marks;  /* why there is no socket for marks */
    struct err no_heap;   /* why the heap is not profiled although it could be */
    bool is_announced;    /* run.json says that it runs, and where it can be reached; else */
    uint64_t announce_ns; /* when to try next */
    bool waits_for_room;  /* it is over, and the disk too full to say so */
    bool blind;           /* /proc is another namespace's: only our own child can be reached */
    struct loop_source *sweep_timer, *cancel_timer;
    struct guard_kill kill; /* of this segment, once it is KILLING */
    char stuck[200];        /* "waiting for process …": one that SIGKILL does not end; "" none */
    char cancelled[160];    /* "cancelled: REASON"; "" it is not */
    uint64_t cancel_deadline_ns;          /* 0: nobody has asked for it */
    uint64_t started_ns, started_wall_ns; /* of the first segment */
    struct job_segment now;
    struct job_guard guard;
    json_t *segments;   /* those that have ended */
    struct spark spark; /* memory over all of them */
    struct speakers speakers;
    char no_restart[160]; /* why no further segment was begun although --restart was given; "" */
};

/* ---- job_client.c: the client ---- */

void job_say(void *user, const char *sentence); /* an engine_say_fn; USER is the job */
void job_sayf(struct job *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int job_client_start(struct job *j);
/* A detached job has started: the client is told, and goes. */
void job_client_leave(struct job *j);
/* Sends what is queued; notices that the client is gone. */
void job_client_flush(struct job *j);
/* The client was told to stop with the job and must not stay so. */
void job_client_wake(struct job *j);
bool job_client_sleeps(const struct job *j);
/* Gives the job's terminal what was typed, as far as there is room. */
void job_input_write(struct job *j);

/* ---- job_output.c: the job's streams ---- */

void job_log_start(struct job *j);
struct spawn_streams;
int job_streams_start(struct job *j, const struct spawn_streams *streams);
bool job_streams_open(const struct job *j);
/* What the loop waits for is set anew; whether somebody is behind, and the job has to wait. */
void job_stream_want(struct job_stream *st);
void job_streams_pause(struct job *j);
/* The client is gone: the output goes to log.txt alone. */
void job_streams_leave_client(struct job *j);
/* The job is gone: nobody waits any more for somebody to take what it left. */
void job_streams_drain(struct job *j);
void job_stream_close(struct job_stream *st);
void job_streams_close(struct job *j);
/* Somebody of the job may have its terminal open again. */
void job_terminal_look(struct job *j);

/* ---- job_end.c: signals, the dead, the end of everything below ---- */

/* As the operator's: to the job's process group where a terminal would do so. */
void job_signal(struct job *j, int signo);
/* What is typed at the job's terminal: once the job has gone there is nobody to whom that would
 * make Ctrl-C a signal, and while it is being stopped we would not know of it. */
void job_keys(struct job *j, const char *keys, size_t len);
void job_begin_ending(struct job *j, enum job_ending how);
/* SIGTERM for those of the job that decide: not for workers, whose death would look like a crash
 * to the ones that are about to save. */
void job_term(struct job *j);
/* By request: SIGTERM as above, and after GRACE_NS SIGKILL for everything that is left. The job is
 * not started again. A second request can only shorten the wait. REASON may be "". */
void job_cancel(struct job *j, const char *reason, size_t reason_len, uint64_t grace_ns);
int job_signals_start(struct job *j);
/* With the loop the signal mask goes back: what is still pending must not end us then. */
void job_signals_ignore(void);

/* ---- job_guard.c ---- */

/* Before the job is there: cgroup, what memory there was. Trouble is said, never returned. */
void job_guard_begin(struct job *j);
/* Before a segment starts: a limit that is too low for it takes it in its first moment. */
void job_guard_ooms(struct job *j);
/* A segment has started. */
void job_guard_segment(struct job *j);
void job_guard_process(struct job *j, const struct proc_event *event);
void job_guard_mark(struct job *j, const struct mark *mark);
void job_guard_tick(struct job *j, uint64_t now_ns);
/* Asks for a checkpoint by request. 0, -EALREADY (it is ending), or -ESRCH: nobody could be asked,
 * and why. */
int job_guard_checkpoint(struct job *j, char why[ASK_TEXT_MAX]);
/* A child of ours that is not of the job: the command that makes a checkpoint. */
void job_guard_reaped(struct job *j, pid_t pid, int status);
/* The job's first process has ended: perhaps by the reflex, of which nobody has heard yet. */
void job_guard_exited(struct job *j);
/* The processes still there are about to be ended. */
void job_guard_left_behind(struct job *j);
/* When nothing of the job is left: gives everything back and measures it. */
void job_guard_end(struct job *j);
void job_guard_free(struct job *j);

/* ---- job_parts.c: what of ebb goes into the job by its environment ---- */

/* Before the job is there. Trouble is said, never returned. */
void job_parts_begin(struct job *j);
/* Before a segment starts: PYTHONPATH, and LD_PRELOAD where the heap is profiled. */
void job_parts_put_shim(const struct job *j);
void job_parts_put_library(const struct job *j);

/* ---- job_heap.c: the profiler of the job's heap ---- */

/* Before the job is there. Trouble is said, never returned. */
void job_heap_begin(struct job *j);
/* Before a segment starts: EBB_HEAP, and the library. */
void job_heap_environment(const struct job *j);
/* The job has ended: if it told nothing itself, the verdict hears what is known of its heap. */
void job_heap_ended(struct job *j);
void job_heap_tick(struct job *j, uint64_t now_ns);
void job_heap_process(struct job *j, const struct proc_event *event);
/* A fresh reading of PID's heap, or of all (0), is on disk when this returns: how many. */
size_t job_heap_refresh(struct job *j, int32_t pid);
/* What run.json says of it; the caller owns it. */
json_t *job_heap_json(const struct job *j);

/* ---- job_query.c ---- */

/* Answers a question of the job's; false if the mark is none. A question is no part of the
 * recording. Never blocks. */
bool job_query(struct job *j, const struct mark *mark);

/* ---- job_control.c: the socket for the job server ---- */

/* Beside the socket for marks; where there is none, there is no control either. */
void job_control_start(struct job *j);
void job_control_free(struct job *j);
const char *job_control_path(const struct job *j); /* NULL: none */
/* All of these cost nothing while nobody is connected. */
void job_control_tick(struct job *j, uint64_t now_ns);
void job_control_mark(struct job *j, const struct mark *mark);
void job_control_event(struct job *j, uint64_t now_ns, const char *act, const char *why);
void job_control_log(struct job *j); /* the job has written something */
/* Something about the state may have changed. */
void job_control_state(struct job *j);

/* ---- job_news.c: what is told there. docs/api.md; the caller owns them ---- */

const char *job_state_name(const struct job *j);
const char *job_state_reason(const struct job *j); /* NULL: none */
json_t *job_news_state(struct job *j);
json_t *job_news_spark(const struct job *j); /* what a newcomer has missed */
json_t *job_news_sample(struct job *j, uint64_t now_ns);
json_t *job_news_verdict(struct job *j, uint64_t now_ns); /* NULL until it is judged */
json_t *job_news_mark(const struct job *j, const struct mark *mark);
json_t *job_news_event(const struct job *j, uint64_t now_ns, const char *act, const char *why);
/* Of the log, as far as it can be read already. */
uint64_t job_news_log_bytes(const struct job *j);

/* ---- job_segment.c ---- */

int job_segment_start(struct job *j, struct err *err);
/* The segment is over: begins the next one, or stops the loop. */
void job_segment_over(struct job *j);
/* What the run exits with, from the last segment. */
int job_status(const struct job *j);
json_t *job_end_json(const struct job *j);

/* ---- job_json.c: run.json ---- */

json_t *job_facts_json(const struct job *j); /* known before anything was measured */
json_t *job_running_json(const struct job *j);
json_t *job_ended_json(struct job *j);
