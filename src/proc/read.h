/* Reads the files that procfs.h parses: the files of a process, the pids in a folder, maps, and
 * cgroup files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/procfs.h"

/* Open or read /proc/PID/NAME (PID 0: this process). Errors are those of openat and
 * io_read_small. */
int proc_open(const struct proc_root *root, int32_t pid, const char *name, int flags);
ssize_t proc_read(const struct proc_root *root, int32_t pid, const char *name, char *buf,
                  size_t size);
/* Reads /proc/PID/stat. Returns 0, -ENOENT or -ESRCH if there is no such process, or -errno. */
int proc_read_stat(const struct proc_root *root, int32_t pid, struct proc_stat *ret);
int proc_read_statm(const struct proc_root *root, int32_t pid, struct proc_statm *ret);
int proc_read_meminfo(const struct proc_root *root, struct proc_meminfo *ret);

/* Open, read or write the file NAME in the cgroup folder DIR, a path below root's cgroup_fd. Return
 * an fd, a length or 0; or -errno. */
int cgroup_open(const struct proc_root *root, const char *dir, const char *name, int flags);
ssize_t cgroup_read(const struct proc_root *root, const char *dir, const char *name, char *buf,
                    size_t size);
int cgroup_write(const struct proc_root *root, const char *dir, const char *name, const char *text);
/* Reads a cgroup file that contains one number. Returns false if the file does not exist or
 * contains "max". */
bool cgroup_read_number(const struct proc_root *root, const char *dir, const char *name,
                        uint64_t *ret);

/* Lists the numeric names in a folder of /proc: pids, thread ids or fds. */
struct pid_dir {
    int fd; /* owned */
    size_t len, at;
    char buf[8192] __attribute__((aligned(8)));
};
int pid_dir_open(struct pid_dir *d, int dirfd, const char *path);
bool pid_dir_next(struct pid_dir *d, int32_t *ret); /* returns false at the end */
void pid_dir_close(struct pid_dir *d);

/* Calls FN for each line of a maps file until MAX_BYTES have been read. Reads are small, because
 * the kernel holds the process's lock during each read. The next read continues at the address
 * after the last mapping, so mappings may change between two reads. */
typedef void proc_map_fn(void *user, const struct proc_map *map);
void proc_read_maps(int fd, size_t max_bytes, proc_map_fn *fn, void *user);
