/* Reads GPUs through NVIDIA's management library (NVML), which is loaded at run time. The library
 * need not be installed. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/gpu.h"

/* The part of nvml.h that this file needs. */
typedef void *nvml_device;
struct nvml_memory {
    unsigned long long total, free, used;
};
/* The struct used by the _v2 and _v3 functions that list processes. The functions without a suffix
 * use a shorter struct; with the wrong struct, pid and memory would be garbled. */
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
enum { NVML_SUCCESS = 0 };
typedef int nvml_list_fn(nvml_device, unsigned *, struct nvml_process *);

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*memory)(nvml_device, struct nvml_memory *);
    /* functions that list processes; NULL if the driver does not have them */
    nvml_list_fn *compute, *graphics;
    struct nvml_process list[GPU_PROCESS_MAX];
};

static bool nvml_present(void)
{
    /* /dev/dxg is the device file in WSL */
    return access("/dev/nvidiactl", F_OK) == 0 ||
           access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* dlsym returns an object pointer; POSIX guarantees that its bytes are the function's address. */
static bool load_symbol(struct nvml *n, const char *symbol, void *ret_function)
{
    void *address = dlsym(n->library, symbol);
    memcpy(ret_function, &address, sizeof address);
    return address;
}

static bool load_symbols(struct nvml *n)
{
    if (!load_symbol(n, "nvmlDeviceGetComputeRunningProcesses_v3", &n->compute))
        load_symbol(n, "nvmlDeviceGetComputeRunningProcesses_v2", &n->compute);
    if (!load_symbol(n, "nvmlDeviceGetGraphicsRunningProcesses_v3", &n->graphics))
        load_symbol(n, "nvmlDeviceGetGraphicsRunningProcesses_v2", &n->graphics);
    return load_symbol(n, "nvmlInit_v2", &n->init) &&
           load_symbol(n, "nvmlShutdown", &n->shutdown) &&
           load_symbol(n, "nvmlDeviceGetCount_v2", &n->count) &&
           load_symbol(n, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
           load_symbol(n, "nvmlDeviceGetName", &n->name) &&
           load_symbol(n, "nvmlDeviceGetMemoryInfo", &n->memory);
}

static int nvml_open(void **ret_state)
{
    struct nvml *n = calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    int r = -ENOENT;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        goto fail;
    r = -ENOSYS; /* libnvidia-ml does not have a required function */
    if (!load_symbols(n))
        goto fail;
    r = -EIO; /* libnvidia-ml found no working driver */
    if (n->init() != NVML_SUCCESS)
        goto fail;
    *ret_state = n;
    return 0;
fail:
    if (n->library)
        dlclose(n->library);
    free(n);
    return r;
}

static void nvml_close(void *state)
{
    struct nvml *n = state;
    n->shutdown();
    dlclose(n->library);
    free(n);
}

/* Adds the memory of one process. Entries from index FIRST_OF_LIST on come from the list being
 * read. If such an entry has the same pid, the process uses several MIG instances, and their memory
 * is added up. If an earlier entry has the same pid, another list has reported the same memory, and
 * the larger value is used. */
static void add_nvml_process(struct gpu_snapshot *s, uint32_t device, size_t first_of_list,
                             const struct nvml_process *p)
{
    /* ULLONG_MAX means that the value is not available */
    if (p->used == ULLONG_MAX || p->pid > INT32_MAX)
        return;
    for (size_t i = 0; i < s->processes; i++) {
        struct gpu_process *have = &s->process[i];
        if (have->device != device || have->pid != (int32_t)p->pid)
            continue;
        if (i >= first_of_list)
            have->used_bytes += p->used;
        else if (have->used_bytes < p->used)
            have->used_bytes = p->used;
        return;
    }
    if (s->processes < GPU_PROCESS_MAX)
        s->process[s->processes++] =
            (struct gpu_process){(int32_t)p->pid, device, (uint64_t)p->used};
}

static void read_process_list(struct nvml *n, nvml_list_fn *list, nvml_device handle,
                              uint32_t device, struct gpu_snapshot *ret)
{
    unsigned count = GPU_PROCESS_MAX;
    size_t first = ret->processes;
    if (!list)
        return;
    int r = list(handle, &count, n->list);
    /* If the array is too small for all processes, NVML returns NVML_ERROR_INSUFFICIENT_SIZE. The
     * list is then ignored. */
    if (r != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count && i < GPU_PROCESS_MAX; i++)
        add_nvml_process(ret, device, first, &n->list[i]);
}

static int nvml_read(void *state, struct gpu_snapshot *ret)
{
    struct nvml *n = state;
    unsigned count;
    if (n->count(&count) != NVML_SUCCESS)
        return -EIO;
    for (unsigned i = 0; i < count && i < GPU_MAX; i++) {
        struct gpu_device *d = &ret->device[i];
        struct nvml_memory memory;
        nvml_device handle;
        /* devices keep the driver's indices, even if another device is lost */
        ret->devices = i + 1;
        if (n->handle(i, &handle) != NVML_SUCCESS)
            continue;
        if (n->name(handle, d->name, sizeof d->name) != NVML_SUCCESS)
            snprintf(d->name, sizeof d->name, "NVIDIA %u", i);
        d->memory_known = n->memory(handle, &memory) == NVML_SUCCESS;
        if (d->memory_known) {
            d->total_bytes = memory.total;
            d->used_bytes = memory.used;
        }
        read_process_list(n, n->compute, handle, i, ret);
        read_process_list(n, n->graphics, handle, i, ret);
    }
    return 0;
}

const struct gpu_vendor gpu_vendor_nvml = {
    .name = "NVIDIA",
    .present = nvml_present,
    .open = nvml_open,
    .read = nvml_read,
    .close = nvml_close,
};
