/* `ebb doctor`: checks the environment of a job: GPUs, the allocator, Python and torch, ebb's
 * own parts. */
#include "cli/doctor.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/place.h"
#include "base/text.h"
#include "cli/run_program.h"
#include "proc/gpu.h"

enum { GPU_WAIT_MS = 3000, GPU_LOOK_MS = 20 };

static bool wait_for_gpus(struct gpu *gpu, struct gpu_snapshot *ret)
{
    for (int waited_ms = 0; waited_ms < GPU_WAIT_MS; waited_ms += GPU_LOOK_MS) {
        if (gpu_latest(gpu, ret) == 1)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = GPU_LOOK_MS * (long)NS_PER_MS}, NULL);
    }
    return false;
}

static void add_gpus(struct doctor *d, const struct gpu_snapshot *snapshot)
{
    char total[TEXT_SIZE_MAX], used[TEXT_SIZE_MAX];
    json_t *list = json_array();
    struct buf text = {0};
    buf_printf(&text, "%zu by NVML", snapshot->devices);
    for (size_t i = 0; i < snapshot->devices; i++) {
        const struct gpu_device *gpu = &snapshot->device[i];
        buf_printf(&text, "%s %s with %s, of which %s is used", i ? ";" : ":", gpu->name,
                   text_size(total, gpu->total_bytes), text_size(used, gpu->used_bytes));
        json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "name", json_text0(gpu->name),
                                              "total_bytes", json_u64(gpu->total_bytes),
                                              "used_bytes", json_u64(gpu->used_bytes)));
    }
    doctor_add(d, DOCTOR_OK, "GPU", json_pack("{s:o}", "gpus", list), NULL, "%s", buf_str(&text));
    buf_fini(&text);
}

static void add_no_nvml(struct doctor *d)
{
    if (access("/dev/nvidiactl", F_OK) == 0)
        doctor_add(
            d, DOCTOR_NOTE, "GPU", NULL,
            "ebb cannot read GPU memory: install the driver's libnvidia-ml.so.1, or start the "
            "container with `docker run --gpus all`.",
            "an NVIDIA device exists, but NVML cannot be loaded");
    else
        doctor_add(d, DOCTOR_OK, "GPU", json_pack("{s:[]}", "gpus"), NULL,
                   "no GPU with NVML found");
}

void doctor_look_gpu(struct doctor *d)
{
    struct gpu *gpu = NULL;
    struct gpu_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return;
    if (gpu_new(&gpu_vendor_nvml, NS_PER_S, &gpu) < 0) {
        add_no_nvml(d);
    } else {
        if (wait_for_gpus(gpu, snapshot))
            add_gpus(d, snapshot);
        else
            doctor_add(
                d, DOCTOR_PROBLEM, "GPU", NULL,
                "ebb continues without reading GPU memory. Check whether `nvidia-smi` answers, "
                "and look for Xid errors in `dmesg`.",
                "NVML is installed but did not answer within 3 s");
        gpu_free(gpu);
    }
    free(snapshot);
}

/* Environment variables that change how malloc retains memory. */
static const char *const malloc_variables[] = {
    "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",  "MALLOC_CONF",
    "GLIBC_TUNABLES",   "PYTHONMALLOC",           "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
};

static const char *preloaded_allocator(void)
{
    static const char *const names[] = {"jemalloc", "tcmalloc", "mimalloc"};
    const char *preload = getenv("LD_PRELOAD");
    for (size_t i = 0; preload && i < sizeof names / sizeof names[0]; i++) {
        if (strstr(preload, names[i]))
            return names[i];
    }
    return NULL;
}

void doctor_look_malloc(struct doctor *d)
{
    struct buf text = {0};
    json_t *data = json_object();
    const char *allocator = preloaded_allocator();
    for (size_t i = 0; i < sizeof malloc_variables / sizeof malloc_variables[0]; i++) {
        const char *value = getenv(malloc_variables[i]);
        if (!value)
            continue;
        buf_printf(&text, ", %s=%s", malloc_variables[i], value);
        json_object_set_new(data, malloc_variables[i], json_text0(value));
    }
    json_object_set_new(data, "preloaded", json_text0(allocator));
    doctor_add(d, DOCTOR_OK, "malloc", data, NULL, "%s%s",
               allocator ? allocator : "the C library's allocator",
               text.len ? buf_str(&text) : ", with default settings");
    buf_fini(&text);
}

static bool find_python(char ret[PATH_MAX])
{
    return run_program_find("python3", ret) == 0 || run_program_find("python", ret) == 0;
}

void doctor_look_python(struct doctor *d)
{
    char path[PATH_MAX];
    if (find_python(path))
        doctor_add(d, DOCTOR_OK, "Python", json_pack("{s:o}", "path", json_text0(path)), NULL, "%s",
                   path);
    else
        doctor_add(d, DOCTOR_OK, "Python", NULL, NULL, "none on PATH");
}

/* Finds torch/version.py for PYTHON: next to its bin folder (a virtual environment or an
 * installation), in the system's folders, or in the user's. */
static bool find_torch(const char *python, char ret[PATH_MAX])
{
    char target[PATH_MAX];
    const char *real = realpath(python, target) ? target : python, *home = getenv("HOME");
    struct buf pattern = {0};
    glob_t found = {0};
    for (int i = 0; i < 4 && found.gl_pathc == 0; i++) {
        const char *program = i == 0 ? python : real, *slash = strrchr(program, '/');
        buf_clear(&pattern);
        if (i < 2)
            buf_printf(&pattern, "%.*s/..", slash ? (int)(slash - program) : 1,
                       slash ? program : ".");
        else
            buf_printf(&pattern, "%s", i == 2 ? "/usr/local" : home ? home : "");
        buf_printf(&pattern, "%s/lib/python3*/*-packages/torch/version.py",
                   i == 3 ? "/.local" : "");
        if (glob(buf_str(&pattern), GLOB_APPEND, NULL, &found) == 0)
            snprintf(ret, PATH_MAX, "%s", found.gl_pathv[0]);
    }
    bool is_found = found.gl_pathc > 0;
    globfree(&found);
    buf_fini(&pattern);
    return is_found;
}

/* ---- GPU memory by line ---- */

enum { LIBRARY_MAX = 16 << 20 };

static bool has_cuda(const char *torch)
{
    struct buf path = {0};
    buf_printf(&path, "%s/lib/libc10_cuda.so", torch);
    bool has = access(buf_str(&path), R_OK) == 0;
    buf_fini(&path);
    return has;
}

/* Returns false if torch's allocator lacks the function that ebb hooks to record GPU blocks; true
 * if it has the function, or if this cannot be found out. */
static bool has_reports(const char *torch)
{
    static const char name[] = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
    struct buf path = {0}, file = {0};
    buf_printf(&path, "%s/lib/libc10_cuda.so", torch);
    bool is_known = io_read_plain(AT_FDCWD, buf_str(&path), LIBRARY_MAX, &file) == 0;
    bool has = is_known && memmem(buf_str(&file), file.len, name, sizeof name) != NULL;
    buf_fini(&path);
    buf_fini(&file);
    return has || !is_known;
}

static bool uses_async_backend(void)
{
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && strstr(value, "cudaMallocAsync"))
            return true;
    }
    return false;
}

/* Returns advice if the lines that allocate GPU memory cannot be found. Returns NULL if they can be
 * found, or if this torch has no CUDA. */
static const char *gpu_lines_trouble(const char *torch)
{
    if (!has_cuda(torch))
        return NULL;
    if (!has_reports(torch))
        return "`ebb heap --gpu` lists no call sites: the allocator of this torch does not call "
               "c10::reportMemoryUsageToProfiler as torch 1.10 and later do.";
    return uses_async_backend() ? "`ebb heap --gpu` lists no call sites: backend:cudaMallocAsync "
                                  "reports no blocks; remove it from PYTORCH_CUDA_ALLOC_CONF."
                                : NULL;
}

void doctor_look_torch(struct doctor *d)
{
    char path[PATH_MAX], text[1024], version[64] = "";
    if (!find_python(path))
        return;
    if (!find_torch(path, path)) {
        doctor_add(d, DOCTOR_OK, "torch", NULL, NULL, "torch is not installed for this Python");
        return;
    }
    const char *found = io_read_small(AT_FDCWD, path, text, sizeof text) > 0
                            ? strstr(text, "__version__ = ")
                            : NULL;
    if (found) {
        found += strlen("__version__ = ");
        found += strspn(found, "'\"");
        snprintf(version, sizeof version, "%.*s", (int)strcspn(found, "'\"\n"), found);
    }
    *strrchr(path, '/') = '\0'; /* removes "version.py" from the path */
    const char *trouble = gpu_lines_trouble(path);
    doctor_add(d, trouble ? DOCTOR_NOTE : DOCTOR_OK, "torch",
               json_pack("{s:o, s:o, s:b}", "path", json_text0(path), "version",
                         json_text0(version[0] ? version : NULL), "gpu_lines",
                         has_cuda(path) && !trouble),
               trouble, "%s%sin %s%s", version, version[0] ? " " : "", path,
               trouble ? ", without call sites for GPU memory" : "");
}

#ifdef __GLIBC__
#define PARTS_ADVICE                                                                               \
    "Without these files, ebb cannot report steps by itself, or cannot profile the heap: "         \
    "copy everything that `make install PREFIX=…` puts into PREFIX."
#else
#define PARTS_ADVICE                                                                               \
    "Without the profiler, the allocating line is unknown: use the build for glibc."
#endif

/* Checks that all files of ebb are installed. If only the program was copied, it runs, but
 * reports no steps and profiles no heap. */
void doctor_look_parts(struct doctor *d)
{
    char shim[PATH_MAX], heap[PATH_MAX];
    bool has_shim = place_find_shim(shim), has_heap = place_find_heap(heap);
    json_t *data = json_pack("{s:o, s:o}", "shim", json_text0(has_shim ? shim : NULL), "heap",
                             json_text0(has_heap ? heap : NULL));
    if (has_shim && has_heap)
        doctor_add(d, DOCTOR_OK, "parts of ebb", data, NULL,
                   "the Python package and the heap library are installed");
    else
        doctor_add(d, DOCTOR_NOTE, "parts of ebb", data, PARTS_ADVICE, "%s",
                   has_heap   ? "the Python package is not installed next to the ebb program"
                   : has_shim ? PLACE_NO_HEAP
                              : "the Python package is missing, and " PLACE_NO_HEAP);
}
