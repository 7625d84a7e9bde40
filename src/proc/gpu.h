/* GPU memory by device and by process. NVML is loaded at run time and called in a thread of its
 * own: if the driver hangs, only the GPU numbers are missing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_MAX = 16, GPU_PROCESS_MAX = 256 };

struct gpu_device {
    char name[64];
    bool memory_known; /* false: the driver did not report it */
    uint64_t total_bytes, used_bytes;
};
struct gpu_process {
    /* as the driver reports it: in a pid namespace it may be the host's pid, or missing */
    int32_t pid;
    uint32_t device;
    uint64_t used_bytes;
};
struct gpu_snapshot {
    uint64_t t_ns; /* 0: no snapshot yet */
    size_t devices, processes;
    struct gpu_device device[GPU_MAX];
    struct gpu_process process[GPU_PROCESS_MAX]; /* one per (pid, device); left out if the driver
                                                    does not report its memory */
};

/* The interface to one vendor's driver. Tests provide their own. PRESENT is cheap and called by
 * gpu_new (NULL means present); the other functions run in the thread and may be slow. */
struct gpu_vendor {
    const char *name;
    bool (*present)(void);
    /* -ENOENT: there is no such driver on this machine, which is not an error */
    int (*open)(void **ret_state);
    int (*read)(void *state,
                struct gpu_snapshot *ret); /* *RET is zeroed by the caller; t_ns must not be set */
    void (*close)(void *state);
};
extern const struct gpu_vendor gpu_vendor_nvml;

struct gpu;
/* -ENOENT if VENDOR is not present. */
int gpu_new(const struct gpu_vendor *vendor, uint64_t period_ns, struct gpu **ret);
/* Waits at most 0.2 s for the driver to close; a driver that hangs is abandoned. G may be NULL. */
void gpu_free(struct gpu *g);
/* Copies the newest finished snapshot. Returns 1 if it is newer than *ret (by t_ns), else 0. Never
 * blocks. */
int gpu_latest(struct gpu *g, struct gpu_snapshot *ret);
/* 0; -EINPROGRESS until the driver has answered for the first time; or the last error of open
 * (final) or read (retried every period). */
int gpu_status(struct gpu *g);
