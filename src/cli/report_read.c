/* Reads a run for its report: run.json, the recording, the verdict, the heap, the diagnosis. */
#include "cli/report_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "present/report.h"
#include "profile/folder.h"
#include "profile/view.h"

enum { HEAP_ROWS = 25, BRIEF_ROWS = 3 };

/* ---- the recording and run.json ---- */

static int read_recording(struct report *r, const struct csv_options *csv, struct err *err)
{
    struct run_settings settings = run_settings_read;
    struct buf text = {0};
    settings.guard_notes = REPORT_EVENTS;
    settings.csv = *csv;
    int e = recorded_read(r->path, &settings, NULL, &r->recorded, err);
    if (r->recorded.trouble.text[0])
        report_add_trouble(r, r->recorded.trouble.text);
    if (e < 0)
        return e;
    buf_add_str(&text, "the recording is damaged; skipped: ");
    size_t len = text.len;
    report_add_damage(&text, &r->recorded.run->damage);
    if (text.len > len)
        report_add_trouble(r, buf_str(&text));
    buf_fini(&text);
    r->has_verdicts = true;
    return 0;
}

/* ---- the heap ---- */

static struct profile_wants heap_wants(const struct report *r, enum verdict_word word,
                                       bool is_brief)
{
    return (struct profile_wants){.growth = {.minds_program = true, .job_word = word},
                                  .marks = &r->recorded.marks,
                                  .top = is_brief ? BRIEF_ROWS : HEAP_ROWS,
                                  .stacks = !is_brief,
                                  .tree = !is_brief};
}

/* Reads the GPU part of the profile. Most jobs use no GPU, so a missing profile is not reported. */
static void read_gpu(struct report *r, bool is_brief)
{
    struct folder_heap heap = {0};
    struct err err = {""};
    const struct profile_wants wants =
        heap_wants(r, verdicts_gpu_word(&r->recorded.verdicts), is_brief);
    if (folder_heaps_pick(recorded_heaps(&r->recorded), 0, FOLDER_GPU, &heap, &err) == 0)
        r->has_gpu = profile_view_of(heap.profile, &wants, &r->gpu, &err) == 0;
    folder_heap_fini(&heap);
}

/* ---- GPU requests that failed ---- */

/* Counts all failed GPU requests, and reads the profile of the process in which the first one
 * occurred. */
static void read_gpu_failures(struct report *r)
{
    const struct folder_heaps *heaps = recorded_heaps(&r->recorded);
    const struct profile *first = NULL;
    struct err err = {""};
    for (size_t i = 0; i < heaps->count; i++) {
        const struct profile *p = heaps->at[i].profile->gpu;
        if (!p || !p->oom_count)
            continue;
        r->gpu_failures += p->oom_count;
        if (p->n_ooms && (!first || p->ooms[0].t_ns < first->ooms[0].t_ns))
            first = p;
    }
    const struct profile_wants wants = heap_wants(r, VERDICT_UNDECIDED, true);
    if (first)
        (void)profile_view_of(first, &wants, &r->gpu_failed, &err);
}

/* ---- reasons why the lines that allocated GPU memory are unknown ---- */

static bool has_module(const struct profile *p, const char *end)
{
    size_t len = strlen(end);
    for (size_t i = 0; i < p->n_modules; i++) {
        const struct profile_text *path = &p->modules[i].path;
        if (path->len >= len && memcmp(path->at + path->len - len, end, len) == 0)
            return true;
    }
    return false;
}

/* Returns true if torch itself reported CUDA memory. Also returns true if the driver reported GPU
 * memory and a sampled stack contains torch's CUDA library. */
static bool uses_torch_on_gpu(const struct run *run, const struct folder_heaps *heaps)
{
    struct run_entity **figures = NULL, **gpus = NULL;
    size_t n = run_list(run, RUN_FIGURE, &figures), m = run_list(run, RUN_GPU, &gpus);
    struct series_point most;
    bool is_used = false, has_memory = false, has_library = false;
    for (size_t i = 0; figures && i < n; i++)
        is_used = is_used ||
                  (strcmp(figures[i]->name, "cuda_allocated_bytes") == 0 && figures[i]->signal[0] &&
                   series_max(figures[i]->signal[0], 0, UINT64_MAX, &most) && most.v > 0);
    for (size_t i = 0; gpus && i < m; i++)
        has_memory = has_memory || gpus[i]->gpu_peak_bytes > 0;
    for (size_t i = 0; i < heaps->count; i++)
        has_library = has_library || has_module(heaps->at[i].profile, "/libc10_cuda.so");
    free(figures);
    free(gpus);
    return is_used || (has_memory && has_library);
}

static void read_gpu_trouble(struct report *r)
{
    const struct folder_heaps *heaps = recorded_heaps(&r->recorded);
    for (size_t i = 0; i < heaps->count; i++)
        if (heaps->at[i].profile->gpu)
            return;
    if (heaps->count && r->recorded.run && uses_torch_on_gpu(r->recorded.run, heaps))
        r->gpu_trouble =
            "GPU memory has no call sites: PyTorch's allocator reported no blocks to ebb (it uses "
            "backend:cudaMallocAsync, or ebb does not support this version of torch)";
}

/* Reads the heap of the process that grows, or of another process if the growing one has no
 * profile. */
static void read_heap(struct report *r, bool is_brief)
{
    struct folder_heap heap = {0};
    struct err err = {""}, why = {""};
    char size[TEXT_SIZE_MAX];
    int e = -ENOENT;
    if (r->recorded.verdicts.has_grower && r->recorded.verdicts.grower.has_pid)
        e = folder_heaps_pick(recorded_heaps(&r->recorded), r->recorded.verdicts.grower.pid,
                              FOLDER_HOST, &heap, &err);
    if (e < 0)
        e = folder_heaps_pick(recorded_heaps(&r->recorded), 0, FOLDER_HOST, &heap, &err);
    uint64_t lost = e < 0 ? 0 : heap.damage.bad_bytes + heap.damage.cut_bytes;
    if (lost) {
        err_set(&why, 0, "%s is damaged; skipped: %s", heap.name, text_size(size, lost));
        report_add_trouble(r, why.text);
    }
    const struct profile_wants wants =
        heap_wants(r, r->recorded.verdicts.job.result.word, is_brief);
    if (e == 0)
        e = profile_view_of(heap.profile, &wants, &r->heap, &err);
    r->has_heap = e == 0;
    folder_heap_fini(&heap);
    if (e < 0)
        r->heap_trouble = strdup(err.text);
}

/* ---- the complete run ---- */

static void read_diagnosis(struct report *r)
{
    struct err err = {""};
    if (diagnosis_new(&r->recorded, &r->diagnosis, &err) < 0)
        report_add_trouble(r, err.text);
}

int report_read(const char *path, const struct csv_options *csv, bool is_brief, struct report *ret,
                struct err *err)
{
    struct err why = {""};
    struct stat st;
    *ret = (struct report){.path = path};
    if (stat(path, &st) < 0)
        return err_set(err, -errno, "%s: %s; give a run folder or a recording", path,
                       strerror(errno));
    int r = read_recording(ret, csv, &why);
    if (r < 0 && !ret->recorded.run_json)
        return err_set(err, r, "%s", why.text);
    if (r < 0) {
        report_add_trouble(ret, why.text);
        ret->has_verdicts = verdicts_read(json_object_get(ret->recorded.run_json, "verdict"),
                                          &ret->recorded.verdicts) == 0;
    }
    if (S_ISDIR(st.st_mode)) {
        read_heap(ret, is_brief);
        read_gpu(ret, is_brief);
        read_gpu_failures(ret);
        read_gpu_trouble(ret);
    }
    if (ret->recorded.run && ret->has_verdicts)
        read_diagnosis(ret);
    return 0;
}

/* ---- two runs ---- */

/* Finds the first step of a run, and the number of steps up to the last step. Returns false if the
 * run has no steps. */
static bool steps_of(const struct run *run, int64_t *ret_first, int64_t *ret_count)
{
    const struct run_marks *l = &run->marks[MARK_STEP];
    int64_t least = INT64_MAX, most = -1;
    for (size_t i = 0; i < l->count; i++) {
        if (!(l->at[i].has & MARK_HAS_STEP) || l->at[i].step < 0)
            continue;
        least = l->at[i].step < least ? l->at[i].step : least;
        most = l->at[i].step > most ? l->at[i].step : most;
    }
    *ret_first = least;
    *ret_count = most - least;
    return most > least;
}

/* If the run AFTER is shorter than the run BEFORE, judges the beginning of BEFORE, up to the length
 * of AFTER, and stores this verdict in BEFORE. */
static int read_early(struct report *before, const struct report *after,
                      const struct csv_options *csv, struct err *err)
{
    const struct run *a = before->recorded.run, *b = after->recorded.run;
    struct run_settings settings = {.dead = RUN_DEAD_READ, .csv = *csv};
    struct recorded early;
    int64_t first, steps, first_after, steps_after;
    if (!a || !b)
        return 0;
    settings.has_until_step =
        steps_of(a, &first, &steps) && steps_of(b, &first_after, &steps_after);
    settings.has_until = !settings.has_until_step;
    if (settings.has_until ? b->now_ns >= a->now_ns : steps_after >= steps)
        return 0;
    if (settings.has_until && a->table.is_rows)
        /* the length of AFTER cannot be used here: a table is cut at a value of its time column,
         * which need not start at 0 */
        return 0;
    settings.until_ns = b->now_ns;
    if (settings.has_until) {
        text_duration(before->early_length, b->now_ns);
    } else {
        settings.until_step = (uint64_t)(first + steps_after);
        snprintf(before->early_length, sizeof before->early_length, "%lld steps",
                 (long long)steps_after);
    }
    int r = recorded_read(before->path, &settings, NULL, &early, err);
    before->has_early = r == 0;
    before->early_word = early.verdicts.job.result.word;
    before->is_early_leak =
        early.verdicts.has_job && early.verdicts.job.result.leak == VERDICT_LEAK_YES;
    recorded_fini(&early);
    return r;
}

int report_read_pair(char **paths, const struct csv_options *csv, struct report *ret_before,
                     struct report *ret_after, struct err *err)
{
    int r = report_read(paths[0], csv, false, ret_before, err);
    if (r == 0)
        r = report_read(paths[1], csv, false, ret_after, err);
    return r == 0 ? read_early(ret_before, ret_after, csv, err) : r;
}
