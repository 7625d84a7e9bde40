/* GPU memory per device and per process. NVML is loaded at run time and called in a separate
 * thread. If the driver hangs, only the GPU readings are missing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_MAX = 16, GPU_PROCESS_MAX = 256 };

struct gpu_device {
    char name[64];
    bool memory_known; /* whether the driver reported the memory */
    uint64_t total_bytes, used_bytes;
};
struct gpu_process {
    /* pid reported by the driver. In a pid namespace, this may be the pid that the process has on
     * the host, or the process may be missing. */
    int32_t pid;
    uint32_t device;
    uint64_t used_bytes;
};
struct gpu_snapshot {
    uint64_t t_ns; /* time of the snapshot; 0 if there is none yet */
    size_t devices, processes;
    struct gpu_device device[GPU_MAX];
    /* one entry per (pid, device); processes whose memory the driver does not report are omitted */
    struct gpu_process process[GPU_PROCESS_MAX];
};

/* The interface to one vendor's driver; tests provide their own. PRESENT must be cheap, because
 * gpu_new calls it. If PRESENT is NULL, the driver is assumed to be present. The other functions
 * run in the thread and may be slow. */
struct gpu_vendor {
    const char *name;
    bool (*present)(void);
    /* returns -ENOENT if no such driver is installed, which is not an error */
    int (*open)(void **ret_state);
    int (*read)(void *state,
                /* fills in everything but t_ns; the caller has zeroed *RET */
                struct gpu_snapshot *ret);
    void (*close)(void *state);
};
extern const struct gpu_vendor gpu_vendor_nvml;

struct gpu;
/* Starts a thread that queries VENDOR's driver every PERIOD_NS. Returns -ENOENT if the driver is
 * not present. */
int gpu_new(const struct gpu_vendor *vendor, uint64_t period_ns, struct gpu **ret);
/* Stops the thread. Waits at most 0.2 s for the driver to close; if the driver hangs, its thread is
 * abandoned. G may be NULL. */
void gpu_free(struct gpu *g);
/* Copies the latest snapshot. Returns 1 if it is newer (by t_ns) than the previous content of *RET,
 * else 0. Never blocks. */
int gpu_latest(struct gpu *g, struct gpu_snapshot *ret);
/* Returns 0; -EINPROGRESS until the first call to the driver has returned; or the last error of
 * open (permanent) or read (retried every period). */
int gpu_status(struct gpu *g);
