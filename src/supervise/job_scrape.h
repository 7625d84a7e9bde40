/* Exports the job's metrics: over HTTP (`ebb run --metrics`), and as a file for node_exporter
 * (`--metrics-file`). */
#pragma once

#include <stdint.h>

struct job;
struct job_scrape;

/* Starts serving metrics if --metrics or --metrics-file was given. An error is reported to the
 * user, and the job runs without metrics. */
void job_scrape_start(struct job *j);
void job_scrape_tick(struct job *j, uint64_t now_ns);
void job_scrape_free(struct job *j); /* removes the metrics file */
