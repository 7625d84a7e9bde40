/* Parsers for the files of /proc and cgroupfs, each on bytes that need not end in NUL, and each
 * fuzzable: 0 or -EBADMSG, outputs untouched on failure. Reading is elsewhere. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The roots, so that tests can point at a folder of recorded files. */
struct proc_root {
    int proc_fd;         /* /proc */
    int cgroup_fd;       /* /sys/fs/cgroup; -1 where there is none */
    uint64_t page_bytes; /* of the kernel whose files these are */
};
struct err;
int proc_root_open(const char *proc_path, const char *cgroup_path, struct proc_root *ret,
                   struct err *err);
void proc_root_close(struct proc_root *root); /* accepts a zeroed-with--1 or half-open root */
/* This /proc is of another pid namespace (unshare -pf without a /proc of its own), so that its
 * numbers are not those that the system calls of this process take. Asked anew at each call, as a
 * fork may change the answer. Recorded files, which have no "self", are not foreign. */
bool proc_root_is_foreign(const struct proc_root *root);
/* Says that PID is a thread of process TGID, which may be watched instead: -ESRCH. */
int proc_refuse_thread(const struct proc_root *root, int32_t pid, int32_t tgid, struct err *err);

/* /proc/PID/stat. The name may hold anything, ") Z " included. */
struct proc_stat {
    int32_t ppid;
    int32_t pgrp;
    int32_t session;
    char state;
    uint32_t threads;
    uint64_t minor_faults; /* 0 in a new fork; exec keeps them */
    uint64_t start_ticks;
    uint64_t size_bytes; /* of the address space; 0 for zombies and threads of the kernel */
    uint64_t rss_pages;
    uint64_t start_stack; /* 0 where we may not know; a new one means exec */
    uint16_t comm_len;
    char comm[64]; /* ends in NUL; may hold any other byte */
};
static inline bool proc_stat_is_dead(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
}
int proc_stat_parse(const char *s, size_t len, struct proc_stat *ret);

/* /proc/PID/statm: resident and shared pages. A zombie has all zeroes. */
struct proc_statm {
    uint64_t size_pages;
    uint64_t rss_pages;
    uint64_t shared_pages;
};
int proc_statm_parse(const char *s, size_t len, struct proc_statm *ret);

/* /proc/PID/status; a bit per line that was there (kernel threads have no Vm lines). */
enum proc_status_bit {
    STATUS_UID = 1,
    STATUS_HWM = 2,
    STATUS_ANON = 4,
    STATUS_FILE = 8,
    STATUS_SHMEM = 16,
    STATUS_SWAP = 32,
    STATUS_THREADS = 64,
    STATUS_TRACER = 128,
    STATUS_TGID = 256,
    STATUS_DATA = 512,
};
struct proc_status {
    uint32_t has;
    uint32_t uid; /* real */
    uint32_t threads;
    int32_t tracer_pid;
    int32_t tgid; /* the process; of a thread that was asked for by its own number */
    uint64_t hwm_bytes, anon_bytes, file_bytes, shmem_bytes, swap_bytes;
    uint64_t data_bytes; /* what RLIMIT_DATA counts */
};
int proc_status_parse(const char *s, size_t len, struct proc_status *ret);

/* /proc/meminfo, bytes. MemTotal and MemAvailable must be there; the others are 0 if not. */
struct proc_meminfo {
    uint64_t total_bytes, available_bytes, swap_total_bytes, swap_free_bytes, anon_bytes,
        shmem_bytes, mapped_bytes; /* mapped: pages of files and shared memory, each once */
};
int proc_meminfo_parse(const char *s, size_t len, struct proc_meminfo *ret);

/* A PSI file's avg10 in hundredths of a percent, and totals in microseconds. */
struct proc_psi {
    bool has_full;
    uint32_t some_avg10_permyriad, full_avg10_permyriad;
    uint64_t some_total_us, full_total_us;
};
int proc_psi_parse(const char *s, size_t len, struct proc_psi *ret);

/* Pss line of smaps_rollup, bytes. */
int proc_smaps_rollup_parse(const char *s, size_t len, uint64_t *ret_pss_bytes);

/* One line of /proc/PID/maps. PATH points into S, raw. */
struct proc_map {
    uint64_t start, end;
    bool readable, writable, executable, shared;
    uint64_t dev_major, dev_minor;
    uint64_t inode; /* 0: no file */
    const char *path;
    size_t path_len;
};
/* Takes the first line off *S. 1 and *ret, 0 at the end, -EBADMSG on a line that is none. */
int proc_maps_next(const char **s, const char *end, struct proc_map *ret);

/* A list of decimal pids ("12 34 "), as in task/TID/children. Returns how many were written. */
size_t proc_pids_parse(const char *s, size_t len, int32_t *ret, size_t max);

/* The value of NAME in /proc/PID/environ, as the job may have overwritten it since: *RET_LEN bytes
 * of S, up to the next NUL or the end. NULL where it is not set, or empty. */
const char *proc_environ_find(const char *s, size_t len, const char *name, size_t *ret_len);

/* A cgroup number file: "max" (v2) and values of 2^62 and more (v1's unlimited) are *ret_unlimited.
 */
int proc_cgroup_number_parse(const char *s, size_t len, bool *ret_unlimited, uint64_t *ret);
/* KEY of a "key value" file such as memory.stat or memory.events; -ENOENT if absent. */
int proc_keyed_parse(const char *s, size_t len, const char *key, uint64_t *ret);

/* /proc/PID/cgroup: the path in the v2 hierarchy ("0::/path"), or in the v1 hierarchy that has
 * the memory controller ("4:memory:/path"). 0, -ENOENT, -ENAMETOOLONG. */
int proc_cgroup_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* /proc/self/mountinfo: which folder of the hierarchy is mounted below /sys/fs/cgroup: "/", or in
 * a container without a cgroup namespace the container's own. 0, -ENOENT, -ENAMETOOLONG. */
int proc_mount_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* /proc/PID/limits: the soft limit called NAME. 0, -ENOENT, -EBADMSG. */
int proc_rlimit_parse(const char *s, size_t len, const char *name, bool *ret_unlimited,
                      uint64_t *ret);
