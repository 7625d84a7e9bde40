/* Messages from a supervisor to the job server, as structs and as JSON (docs/reference/api.md). The
 * supervisor writes them and the server reads them with the same codec. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"
#include "run/job_facts.h"

enum job_message_type {
    MESSAGE_OTHER = 0,
    MESSAGE_SAMPLE,
    MESSAGE_MARK,
    MESSAGE_VERDICT,
    MESSAGE_EVENT,
    MESSAGE_LOG,
    MESSAGE_STATE,
    MESSAGE_ANSWER,
    MESSAGE_SPARK, /* a time series of memory, to be read by spark_unpack */
    MESSAGE_TYPES
};

struct job_message_sample {
    bool has_job_bytes, has_unique_bytes, has_rss_sum_bytes, has_limit_bytes, has_headroom_bytes;
    bool has_step;
    /* seconds since the job's start, also in the other messages that have this member */
    double t_s;
    uint64_t job_bytes, unique_bytes, rss_sum_bytes, limit_bytes, headroom_bytes;
    int64_t step;
    struct job_message_gpu {
        bool has_job_bytes, has_used_bytes;
        int64_t index;
        uint64_t job_bytes, used_bytes;
    } * gpus;
    size_t gpu_count;
    struct job_message_process {
        int64_t pid;
        char name[PROCESS_COMM_MAX + 1], role[24];
        bool has_rss_bytes, has_unique_bytes;
        uint64_t rss_bytes, unique_bytes;
    } * processes;
    size_t process_count;
};

struct job_message_state {
    bool has_reason, has_pid, has_segment, has_started_s, has_log_bytes;
    bool has_limit_bytes, has_progress, has_verdict, has_peak_bytes;
    char state[16], reason[FACTS_TEXT];
    int64_t pid, segment;
    double started_s; /* wall clock */
    uint64_t log_bytes, limit_bytes, peak_bytes;
    struct job_progress progress;
    struct job_verdict verdict;
};

struct job_message {
    enum job_message_type type;
    union { /* only the member that corresponds to TYPE is set */
        struct job_message_sample sample;
        struct job_message_state state;
        struct job_message_mark {
            bool has_step, has_epoch;
            double t_s, epoch;
            char kind[64];
            int64_t step;
        } mark;
        struct job_message_verdict {
            bool has_verdict;
            double t_s;
            struct job_verdict verdict;
        } verdict;
        struct job_message_event {
            double t_s;
            char act[24], why[FACTS_TEXT];
        } event;
        struct job_message_log {
            bool has_bytes;
            uint64_t bytes;
        } log;
        struct job_message_answer {
            bool has_error, ok;
            char request[16], error[FACTS_TEXT];
        } answer;
    };
};

/* A request from the job server to the supervisor. */
struct job_request {
    char action[16]; /* "cancel" or "checkpoint" */
    bool has_reason, has_grace_s;
    char reason[FACTS_TEXT];
    double grace_s;
};
/* returns a JSON object that the caller owns */
json_t *job_request_json(const struct job_request *request);
void job_request_read(const json_t *doc, struct job_request *ret);

/* Converts a message to a JSON object owned by the caller. Returns NULL if out of memory. */
json_t *job_message_json(const struct job_message *m);
/* Reads a message. Returns 0 or -ENOMEM. The caller frees RET with job_message_fini. */
int job_message_read(const json_t *doc, struct job_message *ret);
void job_message_fini(struct job_message *m);

struct verdict_result;
/* Converts a verdict to the form used in messages and job_facts. SENTENCE may be NULL. */
struct job_verdict job_verdict_of(const struct verdict_result *r, const char *sentence);
