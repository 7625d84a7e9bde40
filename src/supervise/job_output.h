/* The job's output: from its pipes and its terminal to log.txt and to the client. */
#pragma once

#include <stdbool.h>

struct job;
struct logs;
struct loop_source;
struct spawn_streams;

/* Numbered as the job's own, with its terminal in place of standard input. */
enum { JOB_STREAMS = 3 };
struct job_stream {
    struct job *j;
    int fd;
    struct loop_source *source;
    /* of the pipes */
    bool is_large;
    int client_fd;                   /* pipe to the client; -1 none */
    bool is_full;                    /* the client's pipe has no room: */
    struct loop_source *room_source; /* waits for some */
    bool is_by_channel;              /* the rest goes to the client over its channel */
};

struct job_output {
    struct job_stream streams[JOB_STREAMS];
    bool is_paused;   /* client or log is behind */
    struct logs *log; /* NULL: none */
    struct loop_source *log_source, *log_timer;
    bool log_is_behind; /* log.txt waits for the disk */
    bool log_is_stuck;  /* it was waited for long enough: the job goes on */
    bool log_trouble_is_reported;
};

void job_log_start(struct job *j);
int job_streams_start(struct job *j, const struct spawn_streams *streams);
bool job_streams_open(const struct job_output *o);
/* Sets anew what the loop waits for on a stream. */
void job_stream_want(struct job_stream *st);
/* Pauses all streams while client or log is behind, and resumes them. */
void job_streams_pause(struct job *j);
/* The client is gone: the output goes to log.txt alone. */
void job_streams_leave_client(struct job_output *o);
/* The job is gone: its last output is no longer held back for a slow reader. */
void job_streams_drain(struct job *j);
void job_streams_close(struct job_output *o);
/* A process of the job may have its terminal open again. */
void job_terminal_resume(struct job *j);
