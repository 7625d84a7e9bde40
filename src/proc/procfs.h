/* Parsers for the files of /proc and cgroupfs. Their input need not end in NUL, and all of them are
 * fuzzed. Each parser returns 0 or -EBADMSG, and leaves the outputs unchanged on failure. read.h
 * reads the files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Root folders of /proc and cgroupfs. Tests use folders of recorded files. */
struct proc_root {
    int proc_fd;         /* /proc */
    int cgroup_fd;       /* /sys/fs/cgroup; -1 if it does not exist */
    uint64_t page_bytes; /* page size of the kernel that created these files */
};
struct err;
int proc_root_open(const char *proc_path, const char *cgroup_path, struct proc_root *ret,
                   struct err *err);
void proc_root_close(struct proc_root *root); /* closes the fds that are not -1 */
/* True if this /proc belongs to another pid namespace (after `unshare -pf` without mounting /proc),
 * so that its pids are not valid for system calls. Checked at each call, because the answer may
 * change after a fork. A folder of recorded files has no "self" and is never treated as foreign. */
bool proc_root_is_foreign(const struct proc_root *root);
/* Sets an error message for PID, which is a thread of process TGID. The message suggests watching
 * TGID instead. Returns -ESRCH. */
int proc_refuse_thread(const struct proc_root *root, int32_t pid, int32_t tgid, struct err *err);

/* Parses /proc/PID/stat. The process name may contain any bytes, including ") Z ". */
struct proc_stat {
    int32_t ppid;
    int32_t pgrp;
    char state;
    uint32_t threads;
    uint64_t minor_faults; /* number of minor page faults: 0 after a fork, not reset by exec */
    uint64_t start_ticks;
    uint64_t size_bytes; /* size of the address space; 0 for zombies and kernel threads */
    uint64_t rss_pages;
    /* start address of the stack, which changes with exec; 0 if permission to read it is missing */
    uint64_t start_stack;
    uint16_t comm_len;
    char comm[64]; /* name of the process, terminated by NUL; may contain any other bytes */
};
static inline bool proc_stat_is_dead(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
}
int proc_stat_parse(const char *s, size_t len, struct proc_stat *ret);

/* Parses /proc/PID/statm: resident and shared pages. All fields are 0 for a zombie. */
struct proc_statm {
    uint64_t size_pages;
    uint64_t rss_pages;
    uint64_t shared_pages;
};
int proc_statm_parse(const char *s, size_t len, struct proc_statm *ret);

/* Bits for the lines found in /proc/PID/status (kernel threads have no Vm lines). */
enum proc_status_bit {
    STATUS_UID = 1,
    STATUS_HWM = 2,
    STATUS_ANON = 4,
    STATUS_FILE = 8,
    STATUS_SHMEM = 16,
    STATUS_SWAP = 32,
    STATUS_TGID = 64,
    STATUS_DATA = 128,
};
struct proc_status {
    uint32_t has;
    uint32_t uid; /* the real uid */
    /* process id; differs from the pid in the path if the path contains a thread id */
    int32_t tgid;
    uint64_t hwm_bytes, anon_bytes, file_bytes, shmem_bytes, swap_bytes;
    uint64_t data_bytes; /* the memory size restricted by RLIMIT_DATA */
};
int proc_status_parse(const char *s, size_t len, struct proc_status *ret);

/* Values of /proc/meminfo in bytes. MemTotal and MemAvailable are required; other values are 0 if
 * their lines are missing. */
struct proc_meminfo {
    uint64_t total_bytes, available_bytes, swap_total_bytes, swap_free_bytes, anon_bytes,
        /* mapped_bytes: pages of files and shared memory, each counted once */
        shmem_bytes, mapped_bytes;
};
int proc_meminfo_parse(const char *s, size_t len, struct proc_meminfo *ret);

/* The avg10 values of a PSI file, in hundredths of a percent. */
struct proc_psi {
    bool has_full;
    uint32_t some_avg10_permyriad, full_avg10_permyriad;
};
int proc_psi_parse(const char *s, size_t len, struct proc_psi *ret);

/* Gets the Pss line of smaps_rollup, in bytes. */
int proc_smaps_rollup_parse(const char *s, size_t len, uint64_t *ret_pss_bytes);

/* One line of /proc/PID/maps. PATH points into the parsed text and is not escaped. */
struct proc_map {
    uint64_t start, end;
    bool readable, writable, executable, shared;
    uint64_t dev_major, dev_minor;
    uint64_t inode; /* inode of the mapped file; 0 if the mapping has no file */
    const char *path;
    size_t path_len;
};
/* Parses the first line of *S and moves *S past it. Returns 1 and sets *ret; 0 at the end; -EBADMSG
 * for a malformed line. */
int proc_maps_next(const char **s, const char *end, struct proc_map *ret);

/* Parses a list of decimal pids ("12 34 "), as in task/TID/children. Returns the number of pids
 * written. */
size_t proc_pids_parse(const char *s, size_t len, int32_t *ret, size_t max);

/* Finds the variable NAME in the text of /proc/PID/environ, which the job may have overwritten.
 * Returns the variable's value, and stores the value's length in *RET_LEN: the value ends at the
 * next NUL or at the end of the text. Returns NULL if the variable is unset or empty. */
const char *proc_environ_find(const char *s, size_t len, const char *name, size_t *ret_len);

/* Parses a cgroup file that contains one number. Sets *ret_unlimited for "max" (v2) and for values
 * of 2^62 and more (unlimited in v1). */
int proc_cgroup_number_parse(const char *s, size_t len, bool *ret_unlimited, uint64_t *ret);
/* Gets the value of KEY from a file of "key value" lines such as memory.stat or memory.events.
 * Returns -ENOENT if the file does not contain KEY. */
int proc_keyed_parse(const char *s, size_t len, const char *key, uint64_t *ret);

/* Gets a path from /proc/PID/cgroup: the path in the v2 hierarchy ("0::/path"), or that in the v1
 * hierarchy with the memory controller ("4:memory:/path"). Returns 0, -ENOENT or -ENAMETOOLONG. */
int proc_cgroup_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* Finds, in the text of /proc/self/mountinfo, the root of the cgroup hierarchy that is mounted
 * below /sys/fs/cgroup. The root is usually "/"; in a container without a cgroup namespace, it is
 * the container's own folder. Returns 0, -ENOENT or -ENAMETOOLONG. */
int proc_mount_parse(const char *s, size_t len, bool v2, char *ret, size_t size);
/* Gets the soft limit NAME from /proc/PID/limits. Returns 0, -ENOENT or -EBADMSG. */
int proc_rlimit_parse(const char *s, size_t len, const char *name, bool *ret_unlimited,
                      uint64_t *ret);
