/* What of ebb goes into the job by its environment: the Python package by PYTHONPATH, and the heap
 * profiler by LD_PRELOAD, whose tables are collected here. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct collect;
struct job;
struct proc_event;

struct job_heap {
    struct collect *collect; /* NULL: not profiled */
    char library[PATH_MAX];  /* as LD_PRELOAD can hold it; "" none */
    char shim[PATH_MAX];     /* the package's folder, as PYTHONPATH can hold it; "" none */
    struct err trouble;      /* why the heap is not profiled although it could be */
};

/* Before the first segment. Trouble is reported to the user, never returned. */
void job_heap_begin(struct job *j);
/* Before a segment starts: PYTHONPATH, and LD_PRELOAD and EBB_HEAP where the heap is profiled. */
void job_heap_environment(const struct job *j);
/* The job has ended: if it sent no figures itself, the judge gets what is known of its heap. */
void job_heap_ended(struct job *j);
void job_heap_tick(struct job *j, uint64_t now_ns);
void job_heap_process(struct job *j, const struct proc_event *event);
/* Writes a fresh reading of PID's heap, or of all (0), to disk; returns how many. */
size_t job_heap_refresh(struct job *j, int32_t pid);
/* `heap` of run.json; the caller owns it. */
json_t *job_heap_json(const struct job *j);
