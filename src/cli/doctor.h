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

/* Adds a finding about NAME. ADVICE states the consequence and the remedy; it is NULL if all is
 * well. DATA is the finding for `--json`, or NULL; D takes ownership of DATA. FACT may contain raw
 * text. NAME and ADVICE are not copied. */
void doctor_add(struct doctor *d, enum doctor_level level, const char *name, json_t *data,
                const char *advice, const char *fact, ...) __attribute__((format(printf, 6, 7)));

typedef void doctor_check(struct doctor *d);
/* The checks in doctor_machine.c; the others are in doctor.c. */
doctor_check doctor_check_kernel, doctor_check_children, doctor_check_processes,
    doctor_check_pagemap, doctor_check_pressure, doctor_check_ptrace, doctor_check_pidfd,
    doctor_check_mrelease, doctor_check_subreaper, doctor_check_files, doctor_check_locked,
    doctor_check_limit, doctor_check_memory, doctor_check_address_space, doctor_check_overcommit,
    doctor_check_huge_pages, doctor_check_shm;
