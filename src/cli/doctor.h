/* The checks of `ebb doctor`. Each adds findings, which the command prints. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "proc/procfs.h"

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_PROBLEM };

struct doctor_finding {
    enum doctor_level level;
    const char *name, *advice; /* ADVICE is NULL if all is well */
    struct buf fact;
    json_t *data; /* may be NULL */
};

struct doctor {
    struct proc_root root;
    struct doctor_finding *findings;
    size_t count, cap;
};

/* Adds a finding about NAME. ADVICE is one sentence with the consequence and the remedy, or NULL
 * if all is well. DATA holds the figures for programs, or is NULL; D takes ownership of it. FACT
 * may contain raw text. NAME and ADVICE are static. */
void doctor_add(struct doctor *d, enum doctor_level level, const char *name, json_t *data,
                const char *advice, const char *fact, ...) __attribute__((format(printf, 6, 7)));

typedef void doctor_look(struct doctor *d);
/* The checks in doctor_machine.c; the others are in doctor.c. */
doctor_look doctor_look_kernel, doctor_look_children, doctor_look_processes, doctor_look_pagemap,
    doctor_look_pressure, doctor_look_ptrace, doctor_look_pidfd, doctor_look_mrelease,
    doctor_look_subreaper, doctor_look_files, doctor_look_locked, doctor_look_limit,
    doctor_look_memory, doctor_look_address_space, doctor_look_overcommit, doctor_look_huge_pages,
    doctor_look_shm;
