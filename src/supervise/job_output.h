/* Moves the job's output from its pipes and its terminal to log.txt and the client. */
#pragma once

#include <stdbool.h>

struct job;
struct logs;
struct loop_source;
struct spawn_streams;

/* Streams are numbered like the job's fds; number 0 is its terminal. */
enum { JOB_STREAMS = 3 };
struct job_stream {
    struct job *j;
    int fd;
    struct loop_source *source;
    /* for pipes: */
    bool is_large;
    int client_fd; /* pipe to the client, or -1 */
    bool is_full;  /* the client's pipe is full */
    /* event source that waits for space in the client's pipe */
    struct loop_source *room_source;
    bool is_by_channel; /* the rest of the stream is sent to the client over its channel */
};

struct job_output {
    struct job_stream streams[JOB_STREAMS];
    bool is_paused;   /* all streams are paused, because the client or the log is behind */
    struct logs *log; /* NULL: no log */
    struct loop_source *log_source, *log_timer;
    bool log_is_behind; /* log.txt waits for the disk, and the job waits for log.txt */
    bool log_is_stuck;  /* the disk hangs, so the job no longer waits for it */
    bool log_trouble_is_reported;
};

void job_log_start(struct job *j);
int job_streams_start(struct job *j, const struct spawn_streams *streams);
bool job_streams_open(const struct job_output *o);
/* Updates the events for which the loop waits. */
void job_stream_want(struct job_stream *st);
/* Pauses all streams while the client or the log is behind, and resumes them afterwards. */
void job_streams_pause(struct job *j);
/* Call this when the client has disconnected: output then goes only to log.txt. */
void job_streams_leave_client(struct job_output *o);
/* Call this when the job has exited: the rest of its output must not wait for a slow reader. */
void job_streams_drain(struct job *j);
void job_streams_close(struct job_output *o);
/* Call this when a process of the job may have opened its terminal again. */
void job_terminal_resume(struct job *j);
