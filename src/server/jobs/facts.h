/* What is known of a job beside its row: while it runs from its supervisor's messages, at its end
 * from its run.json. The API has it with the same keys. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FACTS_TEXT = 501 };

struct job_progress {
    bool has_step, has_max_steps, has_epoch, has_steps_per_s, has_eta_s;
    int64_t step, max_steps;
    double epoch, steps_per_s, eta_s;
};

struct job_memory {
    bool has_job_bytes, has_peak_bytes, has_unique_bytes, has_limit_bytes, has_headroom_bytes,
        has_gpu_bytes;
    uint64_t job_bytes, peak_bytes, unique_bytes, limit_bytes, headroom_bytes, gpu_bytes;
};

/* On the whole job. */
struct job_verdict {
    char verdict[33];
    bool has_leak, has_confidence, has_rate_bytes_per_min, has_rate_bytes_per_step, has_oom_eta_s,
        has_sentence;
    bool leak;
    double confidence, rate_bytes_per_min, rate_bytes_per_step;
    struct job_interval {
        bool has_low, has_high;
        double low, high;
    } oom_eta_s;
    char sentence[FACTS_TEXT];
};

/* Memory that the machine got back after the end. */
struct job_given_back {
    bool has_host_bytes, has_shm_bytes, has_gpu_bytes, clean;
    uint64_t host_bytes, shm_bytes, gpu_bytes;
};

struct job_facts {
    bool has_status, has_cause, has_cause_kind, has_pid, has_segment, has_memory, has_verdict,
        has_progress, has_given_back, has_log_bytes;
    int64_t status, pid, segment;
    char cause[FACTS_TEXT], cause_kind[65];
    struct job_memory memory;
    struct job_verdict verdict;
    struct job_progress progress;
    struct job_given_back given_back;
    uint64_t log_bytes;
};
/* Puts all its keys into DOC. 0 or -ENOMEM. */
int job_facts_put(const struct job_facts *f, json_t *doc);

/* ---- messages of a supervisor (docs/api.md) ---- */

enum job_message_type {
    MESSAGE_OTHER = 0,
    MESSAGE_SAMPLE,
    MESSAGE_MARK,
    MESSAGE_VERDICT,
    MESSAGE_EVENT,
    MESSAGE_LOG,
    MESSAGE_STATE,
    MESSAGE_ANSWER,
    MESSAGE_SPARK,
};

/* The keys of all types; has_… of those that a message has. */
struct job_message {
    enum job_message_type type;
    char state[16], reason[FACTS_TEXT], answers[16], error[FACTS_TEXT];
    bool has_state, has_reason, has_answers, has_ok, has_error, has_pid, has_segment, has_t_s,
        has_started_s, has_bytes, has_log_bytes, has_peak_bytes, has_progress, has_verdict;
    bool ok;
    int64_t pid, segment;
    double t_s, started_s;
    uint64_t bytes, log_bytes, peak_bytes;
    struct job_memory memory;
    struct job_progress progress;
    struct job_verdict verdict;
    struct job_message_gpu {
        bool has_job_bytes;
        uint64_t job_bytes;
    } * gpus;
    size_t gpu_count;
};
/* 0 or -ENOMEM. The caller frees it. */
int job_message_read(const json_t *doc, struct job_message *ret);
void job_message_fini(struct job_message *m);

/* ---- the end ---- */

struct outcome;
/* Brings F, as it was while the job ran, to its end: RUN is run.json as a document and O its facts.
 * GPUS are the job's, as bits; IS_ALONE: no other job ran beside it. */
void job_facts_end(struct job_facts *f, const json_t *run, const struct outcome *o, uint64_t gpus,
                   bool is_alone);
/* FROM (NULL: "") into SIZE bytes, cut at a character. */
void facts_copy_text(char *to, size_t size, const char *from);
