/* Every process of the machine in one pass over /proc, with its relations and role. For find.c
 * alone: a tree that is watched is read through kept fds, by tree.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/role.h"
#include "proc/sample.h"

enum { SCAN_NONE = -1 };

struct scan_process {
    struct process_info info;
    uint64_t rss_bytes;
    int parent; /* index, or SCAN_NONE */
    size_t children;
    bool excluded; /* ourselves, or above us */
    bool denied;   /* looked at, and not allowed to */
    struct role_maps maps;
    bool child_trains;
    char why[128];   /* of its role */
    char device[32]; /* the first GPU device file it has open; "" if none */
    bool device_is_nvidia;
};

struct proc_scan {
    struct scan_process *v; /* by pid, ascending */
    size_t n;
};

/* Living processes that have memory: names and relations. 0 or -errno. */
int proc_scan_read(const struct proc_root *root, struct proc_scan *ret);
void proc_scan_fini(struct proc_scan *s);                   /* accepts a zeroed one */
int proc_scan_find(const struct proc_scan *s, int32_t pid); /* index, or SCAN_NONE */
/* True when ABOVE is a (strict) ancestor of I. */
bool proc_scan_is_below(const struct proc_scan *s, size_t i, size_t above);
/* Reads what I has mapped and, with DEVICES, open. Costs up to a few ms for a large process, in
 * short reads. */
void proc_scan_look(const struct proc_root *root, struct proc_scan *s, size_t i, bool devices);
/* Works out all roles from what has been read so far. */
void proc_scan_roles(struct proc_scan *s);
