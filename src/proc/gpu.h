/* GPU memory by device and by process. NVML is loaded at run time and asked in a thread of its
 * own, so that a driver that hangs costs us nothing but its numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GPU_MAX = 16, GPU_PROCESS_MAX = 256 };

struct gpu_device {
    char name[64];
    bool memory_known; /* false: the driver did not say */
    uint64_t total_bytes, used_bytes;
};
struct gpu_process {
    int32_t pid; /* as the driver says: in a pid namespace maybe the host's, or none at all */
    uint32_t device;
    uint64_t used_bytes;
};
struct gpu_snapshot {
    uint64_t t_ns; /* 0: none yet */
    size_t devices, processes;
    struct gpu_device device[GPU_MAX];
    struct gpu_process process[GPU_PROCESS_MAX]; /* one for each (pid, device); one whose memory
                                                    the driver does not tell is left out */
};

/* One vendor's way in. Tests bring their own. PRESENT is cheap and asked by the caller of
 * gpu_new (NULL: yes); the others run in the thread and may take their time. */
struct gpu_vendor {
    const char *name;
    bool (*present)(void);
    int (*open)(void **ret_state); /* 0; -ENOENT: not on this machine, silently */
    int (*read)(void *state, struct gpu_snapshot *ret); /* *RET comes zeroed; leaves t_ns alone */
    void (*close)(void *state);
};
extern const struct gpu_vendor gpu_vendor_nvml;

struct gpu;
/* -ENOENT where VENDOR has nothing here. */
int gpu_new(const struct gpu_vendor *vendor, uint64_t period_ns, struct gpu **ret);
/* Gives a driver that answers 0.2 s to let go, and does not wait for one that hangs. NULL is fine.
 */
void gpu_free(struct gpu *g);
/* The newest finished snapshot: 1 if newer than *ret was (by t_ns), else 0. Never blocks. */
int gpu_latest(struct gpu *g, struct gpu_snapshot *ret);
/* How the driver stands: 0, -EINPROGRESS until it has first answered, or the last error of open
 * (final) or read (tried again every period). */
int gpu_status(struct gpu *g);
