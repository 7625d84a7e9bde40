/* Gathering a run for its report: run.json, the recording, the verdict, the heap, the diagnosis. */
#include "cli/report_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "diagnose/facts.h"
#include "present/report.h"
#include "profile/folder.h"
#include "profile/view.h"

enum { HEAP_ROWS = 25 };

/* ---- the recording, and run.json ---- */

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
    buf_add_str(&text, "the recording is damaged; not read: ");
    size_t len = text.len;
    report_add_damage(&text, &r->recorded.run->damage);
    if (text.len > len)
        report_add_trouble(r, buf_str(&text));
    buf_fini(&text);
    r->has_verdicts = true;
    return 0;
}

/* ---- the heap ---- */

/* Of the process that grows; of another where that has none. */
static void read_heap(struct report *r)
{
    struct folder_heap heap = {0};
    struct err err = {""}, why = {""};
    char size[TEXT_SIZE_MAX];
    int e = -ENOENT;
    if (r->recorded.verdicts.has_grower && r->recorded.verdicts.grower.has_pid)
        e = folder_heap_read(r->path, r->recorded.verdicts.grower.pid, &heap, &err);
    if (e < 0)
        e = folder_heap_read(r->path, 0, &heap, &err);
    uint64_t lost = e < 0 ? 0 : heap.damage.bad_bytes + heap.damage.cut_bytes;
    if (lost) {
        err_set(&why, 0, "%s is damaged; not read: %s", heap.name, text_size(size, lost));
        report_add_trouble(r, why.text);
    }
    const struct profile_wants wants = {.growth = {.minds_program = true},
                                        .marks = &r->recorded.marks,
                                        .top = HEAP_ROWS,
                                        .stacks = true,
                                        .tree = true};
    if (e == 0)
        e = profile_view_of(heap.profile, &wants, &r->heap, &err);
    r->has_heap = e == 0;
    folder_heap_fini(&heap);
    if (e < 0)
        r->heap_trouble = strdup(err.text);
}

/* ---- all of it ---- */

static void read_diagnosis(struct report *r)
{
    struct facts *facts = NULL;
    struct err err = {""};
    int e = facts_new(&r->recorded, &facts, &err);
    if (e == 0)
        e = diagnosis_make(facts, &r->diagnosis, &err);
    r->has_diagnosis = e == 0;
    if (e < 0)
        report_add_trouble(r, err.text);
    facts_free(facts);
}

int report_read(const char *path, const struct csv_options *csv, struct report *ret,
                struct err *err)
{
    struct err why = {""};
    struct stat st;
    *ret = (struct report){.path = path};
    if (stat(path, &st) < 0)
        return err_set(err, -errno, "%s: %s; a run folder or a recording is meant", path,
                       strerror(errno));
    int r = read_recording(ret, csv, &why);
    if (r < 0 && !ret->recorded.run_json)
        return err_set(err, r, "%s", why.text);
    if (r < 0) {
        report_add_trouble(ret, why.text);
        ret->has_verdicts = verdicts_read(json_object_get(ret->recorded.run_json, "verdict"),
                                          &ret->recorded.verdicts) == 0;
    }
    if (S_ISDIR(st.st_mode))
        read_heap(ret);
    if (ret->recorded.run && ret->has_verdicts)
        read_diagnosis(ret);
    return 0;
}

/* ---- two runs ---- */

/* The first step of a run and how many there were up to its last: false without steps. */
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

int report_read_early(struct report *before, const struct report *after,
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
        return 0; /* --until would be a value of its time column */
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
