/* `ebb doctor`: tests which features this machine allows, and prints what to change. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/place.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/run_program.h"
#include "guard/cgroup.h"
#include "guard/cgroup_place.h"
#include "proc/gpu.h"

/* ---- the cgroup of a job ---- */

static bool lists_memory(const char *controllers)
{
    const char *at = strstr(controllers, "memory");
    return at && (at == controllers || at[-1] == ' ') && strchr(" \n", at[strlen("memory")]);
}

/* The result of creating a job's cgroup. */
struct trial {
    int error; /* -errno, or 0 if the cgroup was created and removed */
    bool is_limited, has_kill;
    struct err why; /* why the cgroup could not be created or its memory limit could not be set */
};

/* Disables the memory controller again. Creating a group below the root group enables the
 * controller there, and `ebb doctor` must leave no changes behind. */
static void restore_control(int group, const char *before)
{
    char now[1024];
    AUTO_CLOSE int fd = openat(group, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || io_read_small(group, "cgroup.subtree_control", now, sizeof now) < 0)
        return;
    if (lists_memory(now) && !lists_memory(before))
        (void)io_write_all(fd, "-memory", strlen("-memory"));
}

/* Creates a job's cgroup, as `ebb run` does, and removes it. */
static void try_group(const struct doctor *d, const struct guard_place *v2, struct trial *ret)
{
    enum { PATIENCE_MS = 1000 };
    static const uint64_t LARGE = UINT64_C(1) << 50; /* so large that the limit has no effect */
    struct guard_cgroup g = guard_cgroup_none;
    char name[64], before[1024] = "";
    *ret = (struct trial){0};
    AUTO_CLOSE int unified =
        v2 ? openat(d->root.cgroup_fd, v2->group.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool has_control = unified >= 0 &&
                       io_read_small(unified, "cgroup.subtree_control", before, sizeof before) >= 0;
    guard_cgroup_name(&d->root, name);
    /* moves ebb to a child cgroup, as `ebb run` does before it creates a job's cgroup */
    (void)guard_place_vacate(&d->root);
    ret->error = guard_cgroup_make(&d->root, name, LARGE, &g, &ret->why);
    if (ret->error < 0)
        return;
    ret->is_limited = g.is_limited;
    ret->has_kill = g.kill_fd >= 0;
    ret->error = guard_cgroup_remove(&d->root, &g, clock_mono_ns() + PATIENCE_MS * NS_PER_MS);
    if (has_control)
        restore_control(unified, before);
}

static bool has_systemd(void)
{
    return access("/run/systemd/system", F_OK) == 0;
}

static const char scope_advice[] =
    "The kernel cannot limit the job's memory, so ebb only adds up the memory of its processes. To "
    "enable a kernel limit, start ebb with `systemd-run --user --scope -p Delegate=yes ebb run …`.";

static const char *no_memory_advice(void)
{
    return has_systemd()
               ? scope_advice
               : "The kernel cannot limit the job's memory, so ebb only adds up the memory of its "
                 "processes. To enable a kernel limit, run `echo +memory >cgroup.subtree_control` "
                 "as root in the cgroup of your shell.";
}

static const char *advice_for(int error)
{
    if (error == EROFS)
        return "The cgroup mount is read-only, as in most containers, so ebb cannot set a kernel "
               "limit and enforces --limit itself. To enable a kernel limit, start the container "
               "with `docker run --cgroupns=private --privileged`.";
    if (error == EOPNOTSUPP)
        return no_memory_advice();
    if (has_systemd())
        return scope_advice;
    return "The kernel cannot limit the job's memory, so ebb only adds up the memory of its "
           "processes. To enable a kernel limit, run ebb as root, or have root create a cgroup, "
           "chown it to you and move your shell into it.";
}

static void check_group(struct doctor *d, const char *version, const struct guard_place *own,
                        const struct guard_place *v2)
{
    struct trial t;
    struct buf mount = {0};
    const char *group = guard_place_name(own);
    try_group(d, v2, &t);
    buf_printf(&mount, "/sys/fs/cgroup%s%.*s", own->group.base_len ? "/" : "",
               (int)own->group.base_len, own->group.dir);
    json_t *data = json_pack("{s:s, s:o, s:o, s:b, s:b, s:b}", "version", version, "mount",
                             json_text0(buf_str(&mount)), "group", json_text0(group), "can_create",
                             t.error == 0, "memory_limit", t.is_limited, "kill", t.has_kill);
    buf_fini(&mount);
    if (t.error < 0)
        doctor_add(d, DOCTOR_NOTE, "cgroup", data, advice_for(-t.error),
                   "%s; a job cannot have its own cgroup: %s", version,
                   t.why.text[0] ? t.why.text : strerror(-t.error));
    else if (!t.is_limited)
        doctor_add(d, DOCTOR_NOTE, "cgroup", data, no_memory_advice(),
                   "%s, ebb runs in cgroup %s; a job can have its own cgroup, but no memory limit "
                   "in it: %s",
                   version, group, t.why.text);
    else
        doctor_add(d, DOCTOR_OK, "cgroup", data, NULL,
                   "%s, ebb runs in cgroup %s; a job can have its own cgroup with a memory limit; "
                   "its processes are killed %s",
                   version, group, t.has_kill ? "all at once" : "one by one");
}

static void doctor_check_cgroup(struct doctor *d)
{
    struct guard_place v1, v2;
    bool has_root = d->root.cgroup_fd >= 0;
    bool has_v1 = has_root && guard_place_own(&d->root, false, &v1) == 0;
    bool has_v2 = has_root && guard_place_own(&d->root, true, &v2) == 0;
    if (has_v1)
        check_group(d, has_v2 ? "v1 and v2 (hybrid)" : "v1", &v1, has_v2 ? &v2 : NULL);
    else if (has_v2)
        check_group(d, "v2", &v2, &v2);
    else
        doctor_add(
            d, DOCTOR_NOTE, "cgroup", NULL,
            "ebb adds up the memory of the job's processes, and the kernel enforces no limit.",
            "no memory controller is mounted");
}

/* ---- the environment of a job ---- */

enum { GPU_WAIT_MS = 3000, GPU_POLL_MS = 20 };

static bool wait_for_gpus(struct gpu *gpu, struct gpu_snapshot *ret)
{
    for (int waited_ms = 0; waited_ms < GPU_WAIT_MS; waited_ms += GPU_POLL_MS) {
        if (gpu_latest(gpu, ret) == 1)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = GPU_POLL_MS * (long)NS_PER_MS}, NULL);
    }
    return false;
}

static void add_gpus(struct doctor *d, const struct gpu_snapshot *snapshot)
{
    char total[TEXT_SIZE_MAX], used[TEXT_SIZE_MAX];
    json_t *list = json_array();
    struct buf text = {0};
    buf_printf(&text, "%zu found by NVML", snapshot->devices);
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
        doctor_add(d, DOCTOR_OK, "GPU", json_pack("{s:[]}", "gpus"), NULL, "no GPU found by NVML");
}

static void doctor_check_gpu(struct doctor *d)
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
            doctor_add(d, DOCTOR_PROBLEM, "GPU", NULL,
                       "ebb continues without reading GPU memory. Check whether `nvidia-smi` "
                       "works, and look for Xid errors in `dmesg`.",
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

static void doctor_check_malloc(struct doctor *d)
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

static void doctor_check_python(struct doctor *d)
{
    char path[PATH_MAX];
    if (find_python(path))
        doctor_add(d, DOCTOR_OK, "Python", json_pack("{s:o}", "path", json_text0(path)), NULL, "%s",
                   path);
    else
        doctor_add(d, DOCTOR_OK, "Python", NULL, NULL, "none on PATH");
}

/* Finds torch/version.py for PYTHON: beside the bin folder of PYTHON or of the file that PYTHON
 * links to, in /usr/local, or in ~/.local. */
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

/* Returns false if torch's allocator lacks the function that ebb hooks to record GPU blocks.
 * Returns true if the allocator has the function, or if its library cannot be read. */
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
        return "`ebb heap --gpu` lists no call sites: the allocator of this version of torch does "
               "not call c10::reportMemoryUsageToProfiler; use torch 1.10 or newer.";
    return uses_async_backend() ? "`ebb heap --gpu` lists no call sites: backend:cudaMallocAsync "
                                  "reports no blocks; remove it from PYTORCH_CUDA_ALLOC_CONF."
                                : NULL;
}

static void doctor_check_torch(struct doctor *d)
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
               trouble ? "; ebb cannot record call sites of GPU memory" : "");
}

#ifdef __GLIBC__
#define PARTS_ADVICE                                                                               \
    "Without the package, ebb cannot report steps by itself; without the library, it cannot "      \
    "profile the heap: copy everything that `make install PREFIX=…` puts into PREFIX."
#else
#define PARTS_ADVICE                                                                               \
    "Without the heap library, allocating lines are unknown: use an ebb that was built for glibc."
#endif

/* Checks that all parts of ebb are installed. If only the program was copied, ebb runs, but reports
 * no steps and profiles no heap. */
static void doctor_check_parts(struct doctor *d)
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

/* ---- the command ---- */

static doctor_check *const checks[] = {
    doctor_check_kernel,     doctor_check_children,   doctor_check_processes,
    doctor_check_pagemap,    doctor_check_pressure,   doctor_check_cgroup,
    doctor_check_limit,      doctor_check_memory,     doctor_check_address_space,
    doctor_check_overcommit, doctor_check_huge_pages, doctor_check_shm,
    doctor_check_ptrace,     doctor_check_pidfd,      doctor_check_mrelease,
    doctor_check_subreaper,  doctor_check_files,      doctor_check_locked,
    doctor_check_gpu,        doctor_check_malloc,     doctor_check_python,
    doctor_check_torch,      doctor_check_parts,
};

enum { CHECKS = sizeof checks / sizeof checks[0], LEVELS = DOCTOR_PROBLEM + 1 };

static const struct {
    const char *word;
    const char *colour;
} levels[LEVELS] = {
    [DOCTOR_OK] = {"ok", "\033[32m"},
    [DOCTOR_NOTE] = {"note", "\033[33m"},
    [DOCTOR_PROBLEM] = {"problem", "\033[31m"},
};

void doctor_add(struct doctor *d, enum doctor_level level, const char *name, json_t *data,
                const char *advice, const char *fact, ...)
{
    struct doctor_finding f = {.level = level, .name = name, .advice = advice, .data = data};
    va_list ap;
    va_start(ap, fact);
    buf_vprintf(&f.fact, fact, ap);
    va_end(ap);
    if (ARRAY_ROOM(d->findings, d->count, d->cap))
        d->findings[d->count++] = f;
}

static size_t count_level(const struct doctor *d, enum doctor_level level)
{
    size_t n = 0;
    for (size_t i = 0; i < d->count; i++)
        n += d->findings[i].level == level;
    return n;
}

enum { NAME_COLUMN = 9, TEXT_COLUMN = 26 };

static void put_finding(struct buf *out, struct doctor_finding *f, bool colour, size_t width)
{
    struct buf text = {0};
    buf_printf(out, "%s%-*s%s%-*s", colour ? levels[f->level].colour : "", NAME_COLUMN,
               levels[f->level].word, colour ? "\033[0m" : "", TEXT_COLUMN - NAME_COLUMN, f->name);
    text_escape(&text, buf_str(&f->fact), f->fact.len);
    cli_wrap(out, buf_str(&text), text.len, TEXT_COLUMN, TEXT_COLUMN, width);
    if (f->advice) {
        buf_printf(out, "%*s", TEXT_COLUMN, "");
        cli_wrap(out, f->advice, strlen(f->advice), TEXT_COLUMN, TEXT_COLUMN, width);
    }
    buf_fini(&text);
}

static int doctor_print_text(const struct doctor *d)
{
    struct buf out = {0};
    size_t notes = count_level(d, DOCTOR_NOTE), problems = count_level(d, DOCTOR_PROBLEM);
    for (size_t i = 0; i < d->count; i++)
        put_finding(&out, &d->findings[i], cli_colour(STDOUT_FILENO), cli_width(STDOUT_FILENO));
    buf_printf(&out, "\n%zu ok, %zu note%s, %zu problem%s\n", count_level(d, DOCTOR_OK), notes,
               notes == 1 ? "" : "s", problems, problems == 1 ? "" : "s");
    return cli_print(&out);
}

static json_t *doctor_json(const struct doctor *d)
{
    json_t *count = json_object(), *list = json_array();
    for (int i = 0; i < LEVELS; i++)
        json_object_set_new(count, levels[i].word,
                            json_integer((json_int_t)count_level(d, (enum doctor_level)i)));
    for (size_t i = 0; i < d->count; i++) {
        struct doctor_finding *f = &d->findings[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o, s:O?}", "name", f->name,
                                              "level", levels[f->level].word, "fact",
                                              json_text(buf_str(&f->fact), f->fact.len), "advice",
                                              json_text0(f->advice), "data", f->data));
    }
    return json_pack("{s:o, s:o}", "count", count, "checks", list);
}

static int doctor_exec(const struct cli_call *call, struct err *err)
{
    const struct cli_json_options *options = call->options;
    struct doctor d = {.root = {-1, -1, 0}};
    int r = proc_root_open("/proc", "/sys/fs/cgroup", &d.root, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < CHECKS; i++)
        checks[i](&d);
    int status = options->json ? cli_print_json(doctor_json(&d)) : doctor_print_text(&d);
    for (size_t i = 0; i < d.count; i++) {
        buf_fini(&d.findings[i].fact);
        json_decref(d.findings[i].data);
    }
    free(d.findings);
    proc_root_close(&d.root);
    return status;
}

static const struct option_desc options_table[] = {
    CLI_JSON_OPTION("print one JSON object"),
    {0},
};

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "which features of ebb work on this machine, and what to change",
    .description = "Tests each feature of the system that ebb uses, with your permissions. For a "
                   "feature that does not work, prints the consequence and the remedy. Nothing is "
                   "changed: a cgroup that is created for a test is removed at once.\n"
                   "\n"
                   "note: ebb works, but with less information or more slowly.\n"
                   "problem: a part of ebb does not work.\n"
                   "The exit status is always 0.",
    .examples = "ebb doctor\n"
                "ebb doctor --json | jq '.checks[] | select(.level != \"ok\")'\n",
    .options = options_table,
    .options_size = sizeof(struct cli_json_options),
    .exec = doctor_exec,
};
