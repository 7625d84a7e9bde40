/* Reads and writes the facts of a job, driven by tables of their keys. */
#include "run/job_facts.h"

/* The struct members are named after their JSON keys. Absent members are written as null. */
#define FIELD(s, m, type) CODEC_FIELD(struct s, m, #m, CODEC_##type)
#define OR_NULL(s, m, type) CODEC_NULL(struct s, m, #m, CODEC_##type)
#define PART(s, m, of) CODEC_PART_HAS(struct s, m, #m, of, CODEC_OR_NULL)

static const struct codec interval_codec[] = {
    OR_NULL(job_interval, low, REAL), OR_NULL(job_interval, high, REAL), {0}};

const struct codec job_verdict_codec[] = {FIELD(job_verdict, verdict, TEXT),
                                          OR_NULL(job_verdict, leak, BOOL),
                                          OR_NULL(job_verdict, confidence, REAL),
                                          OR_NULL(job_verdict, rate_bytes_per_min, REAL),
                                          OR_NULL(job_verdict, rate_bytes_per_step, REAL),
                                          PART(job_verdict, oom_eta_s, interval_codec),
                                          OR_NULL(job_verdict, sentence, TEXT),
                                          {0}};

const struct codec job_progress_codec[] = {
    OR_NULL(job_progress, step, INT),   OR_NULL(job_progress, max_steps, INT),
    OR_NULL(job_progress, epoch, REAL), OR_NULL(job_progress, steps_per_s, REAL),
    OR_NULL(job_progress, eta_s, REAL), {0}};

const struct codec job_memory_codec[] = {OR_NULL(job_memory, job_bytes, UINT),
                                         OR_NULL(job_memory, peak_bytes, UINT),
                                         OR_NULL(job_memory, unique_bytes, UINT),
                                         OR_NULL(job_memory, limit_bytes, UINT),
                                         OR_NULL(job_memory, headroom_bytes, UINT),
                                         OR_NULL(job_memory, gpu_bytes, UINT),
                                         {0}};

static const struct codec given_back_codec[] = {OR_NULL(job_given_back, host_bytes, UINT),
                                                OR_NULL(job_given_back, shm_bytes, UINT),
                                                OR_NULL(job_given_back, gpu_bytes, UINT),
                                                FIELD(job_given_back, clean, BOOL),
                                                {0}};

const struct codec job_facts_codec[] = {OR_NULL(job_facts, status, INT),
                                        OR_NULL(job_facts, cause, TEXT),
                                        OR_NULL(job_facts, cause_kind, TEXT),
                                        OR_NULL(job_facts, pid, INT),
                                        OR_NULL(job_facts, segment, INT),
                                        PART(job_facts, memory, job_memory_codec),
                                        PART(job_facts, verdict, job_verdict_codec),
                                        PART(job_facts, progress, job_progress_codec),
                                        PART(job_facts, given_back, given_back_codec),
                                        OR_NULL(job_facts, log_bytes, UINT),
                                        {0}};
