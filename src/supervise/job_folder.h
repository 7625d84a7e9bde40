/* The run folder as the connection to a job server on another machine (`--folder-control`): the
 * supervisor keeps state.json up to date and receives requests through request.json. Both files
 * contain messages in the format of the control socket (docs/reference/api.md). */
#pragma once

#define JOB_FOLDER_STATE "state.json"
#define JOB_FOLDER_REQUEST "request.json"

struct job;
struct job_folder;

/* If --folder-control is given, starts the thread. An error is reported to the user, and the job
 * continues. */
void job_folder_start(struct job *j);
void job_folder_free(struct job *j);
