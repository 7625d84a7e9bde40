/* Facts about a running or ended job for which the database has no columns. The server writes
 * them, and `ebb show` reads them. The API uses the same keys. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/codec.h"

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

/* Memory returned to the machine after the job ended. */
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
extern const struct codec job_memory_codec[], job_progress_codec[], job_verdict_codec[];
extern const struct codec job_facts_codec[];
