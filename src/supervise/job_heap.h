/* The parts of ebb that run in the job: the Python package (by PYTHONPATH) and the heap profiler
 * (by LD_PRELOAD), whose tables are collected here. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/pace.h"

struct collect;
struct job;
struct proc_event;

struct job_heap {
    struct collect *collect; /* NULL: the heap is not profiled */
    char library[PATH_MAX];  /* for LD_PRELOAD; "": none */
    char shim[PATH_MAX];     /* the package's folder, for PYTHONPATH; "": none */
    struct pace judging;     /* schedules verdicts on the heap readings of a running job */
    struct err trouble;      /* why the heap cannot be profiled */
};

/* To be called before the first segment. Reports failures to the user. */
void job_heap_begin(struct job *j);
/* To be called before a segment starts: sets PYTHONPATH, and LD_PRELOAD and EBB_HEAP if the heap is
 * profiled. */
void job_heap_environment(const struct job *j);
/* To be called after the job has ended: passes the whole heap profile to the judge. */
void job_heap_ended(struct job *j);
void job_heap_tick(struct job *j, uint64_t now_ns);
void job_heap_process(struct job *j, const struct proc_event *event);
/* Writes a new reading of the heap of PID, or of all processes (0), to disk; returns the number of
 * readings. */
size_t job_heap_refresh(struct job *j, int32_t pid);
/* `heap` of run.json; the caller owns it. */
json_t *job_heap_json(const struct job *j);
