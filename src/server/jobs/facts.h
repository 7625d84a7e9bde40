/* The facts of a job, from its supervisor's messages while it runs, from its run.json at its end.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/job_facts.h"

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
