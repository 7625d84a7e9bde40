/* Copies the job's output from its pipes and its terminal to log.txt and the client. */
#pragma once

#include <stdbool.h>

struct job;
struct logs;
struct loop_source;
struct spawn_streams;

/* The index of a stream is the job's fd number; index 0 is the job's terminal. */
enum { JOB_STREAMS = 3 };
struct job_stream {
    struct job *j;
    int fd;
    struct loop_source *source;
    /* for pipes: */
    bool is_large;
    int client_fd; /* write end of a pipe to the client, or -1 */
    bool is_full;  /* the client's pipe is full, so this stream is not read */
    /* event source that waits for space in the client's pipe */
    struct loop_source *room_source;
    bool is_by_channel; /* the rest of the output is sent to the client over its channel */
};

struct job_output {
    struct job_stream streams[JOB_STREAMS];
    bool is_paused;   /* all streams are paused, because the client or the log is behind */
    struct logs *log; /* NULL if there is no log */
    struct loop_source *log_source, *log_timer;
    bool log_is_behind; /* the log waits for the disk, so the job is paused */
    bool log_is_stuck;  /* the disk hangs, so the job is no longer paused for it */
    bool log_trouble_is_reported;
};

void job_log_start(struct job *j);
int job_streams_start(struct job *j, const struct spawn_streams *streams);
bool job_streams_open(const struct job_output *o);
/* Updates the events for which the loop waits. */
void job_stream_want(struct job_stream *st);
/* Pauses all streams while the client or the log is behind, and resumes them afterwards. */
void job_streams_pause(struct job *j);
/* Call this when the client has disconnected: from then on, output goes only to log.txt. */
void job_streams_leave_client(struct job_output *o);
/* Call this when the job has exited: from then on, the rest of the job's output is copied without
 * waiting for a slow client. */
void job_streams_drain(struct job *j);
void job_streams_close(struct job_output *o);
/* Call this when a process of the job may have opened its terminal again. */
void job_terminal_resume(struct job *j);
