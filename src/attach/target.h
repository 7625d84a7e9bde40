/* A running process to read or to attach to. Its memory is read through /proc/PID/mem while it
 * runs. Errors explain why a process is refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/optin.h"
#include "proc/procfs.h"

struct err;

struct attach_target {
    const struct proc_root *root;
    int32_t pid;
    uint64_t start_ticks; /* start time; identifies the process, together with the pid */
    /* Descriptor for the address space at the time of opening. After an exec or an exit, reading
     * and writing fail, so ebb never changes the memory of a different program. -1 if the process
     * has opted in. */
    int mem_fd;
    uid_t uid;
    char name[64];              /* escaped */
    char optin[OPTIN_PATH_MAX]; /* socket of a process that has opted in; "" if it has not */
};

enum attach_access {
    ATTACH_READ,  /* for `ebb stack` */
    ATTACH_WRITE, /* for attaching; refuses processes in which ebb's code would fail or do harm */
};

/* Opens the process. Returns 0, or -errno with a message that names the remedy. */
int attach_target_open(const struct proc_root *root, int32_t pid, enum attach_access access,
                       struct attach_target *ret, struct err *err);
void attach_target_close(struct attach_target *t); /* accepts a target whose mem_fd is -1 */
/* True if the process still runs. A zombie does not. */
bool attach_target_lives(const struct attach_target *t);
/* Sets the error for a process that has disappeared. Returns -ESRCH. */
int attach_target_gone(const struct attach_target *t, struct err *err);
/* True if the process sees the same file at the absolute PATH as ebb does. */
bool attach_target_sees(const struct attach_target *t, const char *path);
/* Reads /proc/PID/NAME, and appends it to RET. */
struct buf;
/* to be passed as MAX if NAME is "environ" or "maps" */
enum { ATTACH_ENVIRON_MAX = 64 << 20, ATTACH_MAPS_MAX = 64 << 20 };
int attach_target_file(const struct attach_target *t, const char *name, size_t max,
                       struct buf *ret);

/* Reads or writes LEN bytes at ADDRESS. Returns false if not all bytes could be transferred. */
bool attach_read(int mem_fd, uint64_t address, void *ret, size_t len);
bool attach_write(int mem_fd, uint64_t address, const void *data, size_t len);
/* Read 64 or 32 bits at ADDRESS. */
bool attach_read_word(int mem_fd, uint64_t address, uint64_t *ret);
bool attach_read_int(int mem_fd, uint64_t address, uint32_t *ret);
