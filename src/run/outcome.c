/* Reads and writes run.json, driven by tables of its fields. */
#include "run/outcome.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/io.h"
#include "base/json.h"
#include "version.h"

/* The struct members are named after their JSON keys. Absent members are written as null, or left
 * out. */
#define FIELD(s, m, type) CODEC_FIELD(struct s, m, #m, CODEC_##type)
#define OR_NULL(s, m, type) CODEC_NULL(struct s, m, #m, CODEC_##type)
#define OR_NONE(s, m, type) CODEC_OPTION(struct s, m, #m, CODEC_##type)
#define STRING_OR_NULL(s, m) CODEC_OWNED(struct s, m, #m, CODEC_OR_NULL)
#define STRING_OR_NONE(s, m) CODEC_OWNED(struct s, m, #m, CODEC_OR_NOTHING)
#define PART_OR_NULL(s, m, of) CODEC_PART_HAS(struct s, m, #m, of, CODEC_OR_NULL)
#define PART_OR_NONE(s, m, of) CODEC_PART_HAS(struct s, m, #m, of, CODEC_OR_NOTHING)
#define LIST(s, m, n, of) CODEC_MANY(struct s, m, n, #m, of, CODEC_REQUIRED)
#define LIST_OR_NONE(s, m, n, of) CODEC_MANY(struct s, m, n, #m, of, CODEC_OR_NOTHING)

/* ---- how the run ended ---- */

static const char *const kind_names[] = {
    [OUTCOME_UNKNOWN] = "unknown",
    [OUTCOME_EXITED] = "exited",
    [OUTCOME_SIGNALLED] = "signalled",
    [OUTCOME_NOT_STARTED] = "not_started",
    [OUTCOME_LOST] = "lost",
    [OUTCOME_GONE] = "gone",
    [OUTCOME_WATCH_ENDED] = "watch_ended",
    NULL,
};

static const struct codec sample_codec[] = {FIELD(outcome_sample, before_end_s, REAL),
                                            FIELD(outcome_sample, job_bytes, UINT),
                                            OR_NULL(outcome_sample, room_bytes, UINT),
                                            {0}};

static const struct codec end_codec[] = {
    CODEC_NAMED(struct outcome_end, kind, "kind", kind_names),
    OR_NONE(outcome_end, status, INT),
    OR_NONE(outcome_end, signal, TEXT),
    OR_NONE(outcome_end, signal_number, INT),
    OR_NONE(outcome_end, core, BOOL),
    STRING_OR_NONE(outcome_end, error),
    OR_NONE(outcome_end, left_behind, UINT),
    OR_NONE(outcome_end, outlived_supervisor, BOOL),
    STRING_OR_NONE(outcome_end, by),
    STRING_OR_NONE(outcome_end, cause),
    STRING_OR_NONE(outcome_end, cause_kind),
    LIST_OR_NONE(outcome_end, last_samples, last_sample_count, sample_codec),
    {0}};

static const struct codec segment_codec[] = {
    FIELD(outcome_segment, segment, UINT),
    FIELD(outcome_segment, pid, INT),
    STRING_OR_NULL(outcome_segment, started),
    FIELD(outcome_segment, duration_s, REAL),
    OR_NULL(outcome_segment, first_step, INT),
    OR_NULL(outcome_segment, last_step, INT),
    OR_NULL(outcome_segment, checkpoint_step, INT),
    FIELD(outcome_segment, peak_bytes, UINT),
    STRING_OR_NULL(outcome_segment, verdict),
    CODEC_PART(struct outcome_segment, end, "end", end_codec),
    {0}};

/* ---- the guard, and memory returned to the machine ---- */

static const struct codec event_codec[] = {
    FIELD(outcome_event, t_s, REAL),    FIELD(outcome_event, segment, UINT),
    FIELD(outcome_event, act, TEXT),    FIELD(outcome_event, trigger, TEXT),
    STRING_OR_NULL(outcome_event, why), FIELD(outcome_event, dry_run, BOOL),
    OR_NONE(outcome_event, gpu, UINT),  {0}};

static const struct codec checkpoint_codec[] = {FIELD(outcome_checkpoint, id, UINT),
                                                FIELD(outcome_checkpoint, segment, UINT),
                                                FIELD(outcome_checkpoint, asked_t_s, REAL),
                                                FIELD(outcome_checkpoint, took_s, REAL),
                                                FIELD(outcome_checkpoint, heard_by, TEXT),
                                                STRING_OR_NULL(outcome_checkpoint, path),
                                                OR_NULL(outcome_checkpoint, step, INT),
                                                FIELD(outcome_checkpoint, rise_bytes, UINT),
                                                {0}};

static const struct codec guard_codec[] = {
    FIELD(outcome_guard, on, BOOL),
    FIELD(outcome_guard, dry_run, BOOL),
    OR_NULL(outcome_guard, limit_bytes, UINT),
    FIELD(outcome_guard, limit_is_given, BOOL),
    OR_NULL(outcome_guard, reserve_bytes, UINT),
    STRING_OR_NULL(outcome_guard, cgroup),
    OR_NULL(outcome_guard, cgroup_peak_bytes, UINT),
    STRING_OR_NULL(outcome_guard, cgroup_trouble),
    FIELD(outcome_guard, kernel_limit, BOOL),
    FIELD(outcome_guard, locked, BOOL),
    LIST(outcome_guard, events, event_count, event_codec),
    LIST(outcome_guard, checkpoints, checkpoint_count, checkpoint_codec),
    STRING_OR_NONE(outcome_guard, not_restarted),
    {0}};

static const struct codec returned_codec[] = {OR_NULL(outcome_returned, before_bytes, UINT),
                                              OR_NULL(outcome_returned, peak_bytes, UINT),
                                              OR_NULL(outcome_returned, after_bytes, UINT),
                                              OR_NULL(outcome_returned, freed_bytes, UINT),
                                              {0}};

static const struct codec given_back_codec[] = {
    PART_OR_NULL(outcome_given_back, host, returned_codec),
    PART_OR_NULL(outcome_given_back, shm, returned_codec),
    LIST(outcome_given_back, gpus, gpu_count, returned_codec),
    {0}};

static const struct codec left_codec[] = {
    STRING_OR_NULL(outcome_left, name),   FIELD(outcome_left, bytes, UINT),
    FIELD(outcome_left, in_use, BOOL),    FIELD(outcome_left, removed, BOOL),
    OR_NONE(outcome_left, is_jobs, BOOL), {0}};
static const struct codec left_list_codec[] = {LIST(outcome_left_list, shm, shm_count, left_codec),
                                               {0}};

/* ---- memory ---- */

static const struct codec floor_codec[] = {
    OR_NULL(outcome_floor, first, UINT), OR_NULL(outcome_floor, last, UINT), {0}};

static const struct codec series_codec[] = {FIELD(outcome_series, samples, UINT),
                                            OR_NONE(outcome_series, start_bytes, UINT),
                                            PART_OR_NONE(outcome_series, floor_bytes, floor_codec),
                                            OR_NONE(outcome_series, mean_bytes, UINT),
                                            OR_NONE(outcome_series, peak_bytes, UINT),
                                            OR_NONE(outcome_series, end_bytes, UINT),
                                            OR_NONE(outcome_series, growth_bytes, INT),
                                            OR_NULL(outcome_series, rate_bytes_per_min, REAL),
                                            {0}};

static const struct codec tree_codec[] = {CODEC_FLAT(struct outcome_tree, series, series_codec),
                                          OR_NONE(outcome_tree, peak_high_bytes, UINT),
                                          OR_NONE(outcome_tree, unique_bytes, UINT),
                                          OR_NONE(outcome_tree, shared_bytes, UINT),
                                          OR_NONE(outcome_tree, unique_peak_bytes, UINT),
                                          OR_NONE(outcome_tree, rss_sum_bytes, UINT),
                                          {0}};

static const struct codec process_codec[] = {
    FIELD(outcome_process, pid, INT),
    FIELD(outcome_process, start_ticks, UINT),
    FIELD(outcome_process, ppid, INT),
    FIELD(outcome_process, role, TEXT),
    STRING_OR_NULL(outcome_process, name),
    CODEC_WORDS(struct outcome_process, command, command_count, "command", CODEC_REQUIRED),
    FIELD(outcome_process, alive, BOOL),
    FIELD(outcome_process, alive_s, REAL),
    CODEC_FLAT(struct outcome_process, series, series_codec),
    OR_NULL(outcome_process, unique_bytes, UINT),
    OR_NULL(outcome_process, anon_bytes, UINT),
    OR_NULL(outcome_process, file_bytes, UINT),
    OR_NULL(outcome_process, shmem_bytes, UINT),
    OR_NULL(outcome_process, swap_bytes, UINT),
    OR_NULL(outcome_process, gpu_bytes, UINT),
    OR_NONE(outcome_process, gpu_peak_bytes, UINT),
    {0}};

static const struct codec role_codec[] = {FIELD(outcome_role, role, TEXT),
                                          FIELD(outcome_role, count, UINT),
                                          OR_NULL(outcome_role, largest_bytes, UINT),
                                          OR_NULL(outcome_role, unique_bytes, UINT),
                                          {0}};

static const struct codec largest_codec[] = {FIELD(outcome_largest, pid, INT),
                                             STRING_OR_NULL(outcome_largest, name),
                                             FIELD(outcome_largest, role, TEXT),
                                             OR_NONE(outcome_largest, peak_bytes, UINT),
                                             {0}};

static const struct codec gpu_codec[] = {
    STRING_OR_NULL(outcome_gpu, name),          OR_NULL(outcome_gpu, total_bytes, UINT),
    OR_NULL(outcome_gpu, used_bytes, UINT),     OR_NULL(outcome_gpu, job_bytes, UINT),
    OR_NONE(outcome_gpu, job_peak_bytes, UINT), {0}};

static const struct codec limit_codec[] = {
    STRING_OR_NONE(outcome_limit, kind),      FIELD(outcome_limit, soft, BOOL),
    STRING_OR_NONE(outcome_limit, where),     OR_NONE(outcome_limit, limit_bytes, UINT),
    OR_NULL(outcome_limit, used_bytes, UINT), OR_NONE(outcome_limit, headroom_bytes, UINT),
    OR_NULL(outcome_limit, peak_bytes, UINT), {0}};

/* ---- everything else ---- */

static const struct codec about_codec[] = {
    STRING_OR_NONE(outcome_about, ebb),
    STRING_OR_NONE(outcome_about, host),
    STRING_OR_NONE(outcome_about, kernel),
    STRING_OR_NONE(outcome_about, state),
    STRING_OR_NONE(outcome_about, name),
    STRING_OR_NULL(outcome_about, run_dir),
    CODEC_WORDS(struct outcome_about, command, command_count, "command", CODEC_REQUIRED),
    STRING_OR_NULL(outcome_about, cwd),
    STRING_OR_NULL(outcome_about, started),
    OR_NONE(outcome_about, started_s, REAL),
    OR_NONE(outcome_about, supervisor_pid, INT),
    OR_NONE(outcome_about, pid, INT),
    STRING_OR_NONE(outcome_about, socket),
    STRING_OR_NONE(outcome_about, control),
    CODEC_WORDS(struct outcome_about, cgroup, cgroup_count, "cgroup", CODEC_OR_NOTHING),
    OR_NONE(outcome_about, attached, BOOL),
    OR_NONE(outcome_about, segment, UINT),
    {0}};

static const struct codec recording_codec[] = {STRING_OR_NULL(outcome_recording, file),
                                               OR_NONE(outcome_recording, bytes, UINT),
                                               FIELD(outcome_recording, readings, UINT),
                                               STRING_OR_NULL(outcome_recording, error),
                                               FIELD(outcome_recording, blocks_lost, UINT),
                                               FIELD(outcome_recording, marks_left_out, UINT),
                                               {0}};

static const struct codec marks_codec[] = {FIELD(outcome_marks, received, UINT),
                                           FIELD(outcome_marks, steps, UINT),
                                           OR_NULL(outcome_marks, last_step, INT),
                                           OR_NONE(outcome_marks, bad, UINT),
                                           OR_NONE(outcome_marks, doubled, UINT),
                                           STRING_OR_NONE(outcome_marks, source),
                                           {0}};

static const struct codec cost_codec[] = {OR_NONE(outcome_cost, cpu_s, REAL),
                                          OR_NULL(outcome_cost, cpu_permyriad, INT),
                                          OR_NONE(outcome_cost, rss_bytes, UINT),
                                          FIELD(outcome_cost, ticks, UINT),
                                          FIELD(outcome_cost, longest_tick_ms, REAL),
                                          OR_NONE(outcome_cost, longest_unique_call_ms, REAL),
                                          {0}};

static const struct codec log_codec[] = {
    STRING_OR_NULL(outcome_log, file), FIELD(outcome_log, bytes, UINT), {0}};

static const struct codec measured_codec[] = {
    OR_NONE(outcome_measured, duration_s, REAL),
    OR_NONE(outcome_measured, interval_s, REAL),
    PART_OR_NONE(outcome_measured, limit, limit_codec),
    PART_OR_NONE(outcome_measured, tree, tree_codec),
    OR_NONE(outcome_measured, ask_bytes, UINT),
    OR_NONE(outcome_measured, processes_seen, UINT),
    LIST(outcome_measured, processes, process_count, process_codec),
    LIST(outcome_measured, roles, role_count, role_codec),
    PART_OR_NONE(outcome_measured, largest, largest_codec),
    LIST(outcome_measured, gpus, gpu_count, gpu_codec),
    PART_OR_NONE(outcome_measured, recording, recording_codec),
    PART_OR_NONE(outcome_measured, marks, marks_codec),
    OR_NONE(outcome_measured, gaps, UINT),
    PART_OR_NONE(outcome_measured, cost, cost_codec),
    {0}};

static const struct codec node_codec[] = {
    FIELD(outcome_node, number, UINT), FIELD(outcome_node, nodes, UINT), {0}};

static const struct codec rank_codec[] = {
    FIELD(outcome_rank, rank, UINT),        FIELD(outcome_rank, local_rank, UINT),
    FIELD(outcome_rank, pid, INT),          FIELD(outcome_rank, start_ticks, UINT),
    FIELD(outcome_rank, state, TEXT),       OR_NONE(outcome_rank, status, INT),
    OR_NONE(outcome_rank, signal, INT),     FIELD(outcome_rank, started_t_s, REAL),
    OR_NONE(outcome_rank, ended_t_s, REAL), {0}};

static const struct codec outcome_codec[] = {
    CODEC_FLAT(struct outcome, about, about_codec),
    CODEC_FLAT_HAS(struct outcome, measured, measured_codec),
    STRING_OR_NONE(outcome, ended),
    PART_OR_NONE(outcome, end, end_codec),
    OR_NONE(outcome, peak_process_bytes, UINT),
    LIST_OR_NONE(outcome, segments, segment_count, segment_codec),
    PART_OR_NONE(outcome, guard, guard_codec),
    PART_OR_NONE(outcome, given_back, given_back_codec),
    PART_OR_NONE(outcome, left, left_list_codec),
    PART_OR_NONE(outcome, log, log_codec),
    PART_OR_NONE(outcome, node, node_codec),
    LIST_OR_NONE(outcome, ranks, rank_count, rank_codec),
    {0}};

char **outcome_words(const char *args, size_t len, size_t *ret_count)
{
    size_t count = 0, at = 0;
    for (size_t i = 0; i < len; i += strnlen(args + i, len - i) + 1)
        count++;
    char **words = count ? calloc(count, sizeof(char *)) : NULL;
    *ret_count = words ? count : 0;
    for (size_t i = 0; i < *ret_count; i++) {
        words[i] = strndup(args + at, len - at);
        at += strnlen(args + at, len - at) + 1;
    }
    return words;
}

double outcome_seconds(uint64_t ns)
{
    uint64_t us = ns / NS_PER_US + (ns % NS_PER_US >= NS_PER_US / 2);
    return (double)us / 1e6;
}

void outcome_set_text(char **at, const char *text)
{
    free(*at);
    *at = text ? strdup(text) : NULL;
}

void outcome_about_start(struct outcome_about *ret, const char *name, const char *run_dir)
{
    char cwd[4096];
    struct utsname uts = {0};
    uname(&uts);
    outcome_set_text(&ret->ebb, EBB_VERSION);
    outcome_set_text(&ret->host, uts.nodename);
    outcome_set_text(&ret->kernel, uts.release);
    outcome_set_text(&ret->state, "running");
    outcome_set_text(&ret->name, name);
    outcome_set_text(&ret->run_dir, run_dir);
    outcome_set_text(&ret->cwd, getcwd(cwd, sizeof cwd));
}

int outcome_put(const struct outcome *o, json_t *doc)
{
    return codec_put(outcome_codec, o, doc);
}

json_t *outcome_end_json(const struct outcome_end *end)
{
    return codec_json(end_codec, end);
}

struct outcome_end outcome_end_of_status(int status)
{
    struct outcome_end end = {.kind = OUTCOME_EXITED, .has_status = true};
    if (!WIFSIGNALED(status)) {
        end.status = WEXITSTATUS(status);
        return end;
    }
    const char *name = sigabbrev_np(WTERMSIG(status));
    end.kind = OUTCOME_SIGNALLED;
    end.status = 128 + WTERMSIG(status);
    end.has_signal = name;
    end.has_signal_number = true;
    end.signal_number = WTERMSIG(status);
    snprintf(end.signal, sizeof end.signal, "%s", name ? name : "");
    return end;
}

json_t *outcome_event_json(const struct outcome_event *event)
{
    return codec_json(event_codec, event);
}

int outcome_read(const json_t *doc, struct outcome *ret)
{
    return codec_read(outcome_codec, doc, ret, NULL);
}

int outcome_read_folder(int dirfd, size_t max, json_t **ret_json, struct outcome *ret)
{
    /* a hostile document can have so many values that parsing it needs far more memory than MAX
     * bytes */
    enum { VALUES_MAX = 200000 };
    struct buf text = {0};
    json_t *doc = NULL;
    *ret = (struct outcome){0};
    int r = io_read_plain(dirfd, "run.json", max, &text);
    if (r == 0 && !json_is_crowded(text.data, text.len, VALUES_MAX))
        doc = json_parse(text.data, text.len, NULL);
    buf_fini(&text);
    if (r == 0 && (!json_is_object(doc) || outcome_read(doc, ret) < 0))
        r = -EBADMSG;
    if (r == 0 && ret_json)
        *ret_json = json_incref(doc);
    json_decref(doc);
    return r;
}

void outcome_fini(struct outcome *o)
{
    codec_fini(outcome_codec, o);
}

bool outcome_is_running(const struct outcome *o)
{
    return o->about.state && strcmp(o->about.state, "running") == 0;
}

bool outcome_is_returned(const struct outcome_returned *r)
{
    enum { SLACK_BYTES = 20 << 20, SLACK_PARTS = 50 };
    if (!r->has_before_bytes || !r->has_peak_bytes || !r->has_after_bytes)
        return true;
    uint64_t taken = r->peak_bytes > r->before_bytes ? r->peak_bytes - r->before_bytes : 0;
    uint64_t slack = taken / SLACK_PARTS > SLACK_BYTES ? taken / SLACK_PARTS : SLACK_BYTES;
    return r->after_bytes <= r->before_bytes || r->after_bytes - r->before_bytes <= slack;
}
