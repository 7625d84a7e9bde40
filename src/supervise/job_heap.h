/* The parts of ebb that run inside the job: ebb's Python package (through PYTHONPATH) and the heap
 * profiler (through LD_PRELOAD), whose tables are collected here. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/pace.h"

struct collect;
struct job;
struct proc_event;

struct job_heap {
    struct collect *collect; /* the profiler's tables; NULL if the heap is not profiled */
    char library[PATH_MAX];  /* path to put into LD_PRELOAD; "" if there is none */
    /* folder of ebb's Python package, for PYTHONPATH; "" if there is none */
    char shim[PATH_MAX];
    struct pace judging; /* schedules the verdicts on the heap of the running job */
    struct err trouble;  /* reason why the heap cannot be profiled */
};

/* Starts to collect the profiler's tables. Call this before the first segment. Reports failures to
 * the user. */
void job_heap_begin(struct job *j);
/* Call this before a segment starts: sets PYTHONPATH. If the heap is profiled, also sets LD_PRELOAD
 * and EBB_HEAP. */
void job_heap_environment(const struct job *j);
/* Sets the variables of the job environment (PYTHONPATH, LD_PRELOAD, EBB_HEAP) for a process that
 * the caller is about to start. If SHIM or LIBRARY is "", its variables are not set. */
struct job_heap_environment {
    const char *shim, *library;
    uint64_t interval_bytes;
    bool python;
};
void job_heap_set_environment(const struct job_heap_environment *e);
/* Call this after the job has ended: passes the complete heap profile to the judge. */
void job_heap_ended(struct job *j);
void job_heap_tick(struct job *j, uint64_t now_ns);
void job_heap_process(struct job *j, const struct proc_event *event);
/* Writes a new heap reading of process PID, or of all processes if PID is 0, to the run folder.
 * Returns the number of readings. */
size_t job_heap_refresh(struct job *j, int32_t pid);
/* The value of "heap" in run.json, owned by the caller. */
json_t *job_heap_json(const struct job *j);
