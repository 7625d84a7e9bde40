/* Gathering a run for its report: run.json, the recording, the verdict, the heap, the diagnosis. */
#include "cli/report_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/verdict.h"
#include "diagnose/facts.h"
#include "present/report.h"
#include "profile/folder.h"
#include "profile/growth.h"
#include "profile/marks.h"

enum { RUN_JSON_MAX = 16 << 20, HEAP_ROWS = 25 };
static const double tree_least = 0.01;

/* ---- run.json ---- */

static void read_run_json(struct report *r)
{
    AUTO_CLOSE int folder = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct buf text = {0};
    struct err err = {""};
    if (folder < 0)
        return;
    int e = io_read_all(folder, "run.json", RUN_JSON_MAX, &text);
    if (e == 0)
        r->run_json = json_parse(buf_str(&text), text.len, &err);
    else if (e != -ENOENT)
        err_set(&err, e, "%s", strerror(-e));
    if (r->run_json && !json_is_object(r->run_json)) {
        json_decref(r->run_json);
        r->run_json = NULL;
        err_set(&err, -EBADMSG, "it is no JSON object");
    }
    if (!r->run_json && err.text[0]) {
        err_prefix(&err, -EBADMSG, "run.json cannot be read");
        report_add_trouble(r, err.text);
    }
    if (r->run_json)
        outcome_read(r->run_json, &r->outcome);
    buf_fini(&text);
}

/* ---- the recording ---- */

static void read_verdicts(struct report *r)
{
    struct err err = {""};
    json_t *doc = NULL;
    if (verdict_of_recording(r->path, &doc, &err) < 0)
        report_add_trouble(r, err.text);
    r->has_verdicts = doc && verdicts_read(doc, &r->verdicts) == 0;
    json_decref(doc);
}

static int read_recording(struct report *r, struct err *err)
{
    struct run_settings settings = run_settings_read;
    struct buf text = {0};
    settings.guard_notes = REPORT_EVENTS;
    int e = run_read(r->path, &settings, NULL, &r->run, err);
    if (e < 0)
        return e;
    buf_add_str(&text, "the recording is damaged; not read: ");
    size_t len = text.len;
    report_add_damage(&text, &r->run->damage);
    if (text.len > len)
        report_add_trouble(r, buf_str(&text));
    buf_fini(&text);
    read_verdicts(r);
    return 0;
}

/* ---- the heap ---- */

static int make_heap(struct report *r, const struct profile *p, struct err *err)
{
    const struct symbols_options symbols = {0};
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options options = {.by = GROWTH_BY_LOCATION, .minds_program = true};
    struct names *names;
    struct growth g;
    int e = names_new(p, &symbols, &names);
    if (e < 0)
        return err_set(err, e, "cannot name frames: %s", strerror(-e));
    e = marks_read(r->path, p->pid, p->start_ns, &marks, &options.n_marks, err);
    options.marks = marks;
    if (e == 0)
        e = growth_of(p, names, &options, &g, err);
    if (e == 0) {
        e = profile_view_make(p, names, &g, HEAP_ROWS, true, &r->heap);
        if (e == 0)
            e = profile_view_add_tree(&r->heap, p, names, tree_least);
        growth_fini(&g);
        r->has_heap = e == 0;
        if (e < 0)
            err_set(err, e, "out of memory");
    }
    names_free(names);
    return e;
}

/* Of the process that grows; of another where that has none. */
static void read_heap(struct report *r)
{
    struct folder_heap heap = {0};
    struct err err = {""}, why = {""};
    char size[TEXT_SIZE_MAX];
    int e = -ENOENT;
    if (r->verdicts.has_grower && r->verdicts.grower.has_pid)
        e = folder_heap_read(r->path, r->verdicts.grower.pid, &heap, &err);
    if (e < 0)
        e = folder_heap_read(r->path, 0, &heap, &err);
    uint64_t lost = e < 0 ? 0 : heap.damage.bad_bytes + heap.damage.cut_bytes;
    if (lost) {
        err_set(&why, 0, "%s is damaged; not read: %s", heap.name, text_size(size, lost));
        report_add_trouble(r, why.text);
    }
    if (e == 0)
        e = make_heap(r, heap.profile, &err);
    folder_heap_fini(&heap);
    if (e < 0)
        r->heap_trouble = strdup(err.text);
}

/* ---- all of it ---- */

static void read_diagnosis(struct report *r)
{
    struct facts *facts = NULL;
    struct err err = {""};
    json_t *verdict = verdicts_json(&r->verdicts);
    int e = facts_read(r->path, verdict, &facts, &err);
    if (e == 0)
        e = diagnosis_make(facts, &r->diagnosis, &err);
    r->has_diagnosis = e == 0;
    if (e < 0)
        report_add_trouble(r, err.text);
    facts_free(facts);
    json_decref(verdict);
}

int report_read(const char *path, struct report *ret, struct err *err)
{
    struct report r = {.path = strdup(path)};
    struct err why = {""};
    struct stat st;
    if (!r.path)
        return err_set(err, -ENOMEM, "out of memory");
    if (stat(path, &st) < 0) {
        int e = err_set(err, -errno, "%s: %s; a run folder or a recording is meant", path,
                        strerror(errno));
        report_fini(&r);
        return e;
    }
    read_run_json(&r);
    int e = read_recording(&r, &why);
    if (e < 0 && !r.run_json) {
        report_fini(&r);
        return err_set(err, e, "%s", why.text);
    }
    if (e < 0) {
        report_add_trouble(&r, why.text);
        r.has_verdicts = verdicts_read(json_object_get(r.run_json, "verdict"), &r.verdicts) == 0;
    }
    if (S_ISDIR(st.st_mode))
        read_heap(&r);
    if (r.run && r.has_verdicts)
        read_diagnosis(&r);
    *ret = r;
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

int report_read_early(struct report *before, const struct report *after, struct err *err)
{
    int64_t first, steps, first_after, steps_after;
    json_t *doc = NULL;
    if (!before->run || !after->run)
        return 0;
    bool by_step =
        steps_of(before->run, &first, &steps) && steps_of(after->run, &first_after, &steps_after);
    if (by_step ? steps_after >= steps : after->run->now_ns >= before->run->now_ns)
        return 0;
    if (by_step)
        snprintf(before->early_length, sizeof before->early_length, "%lld steps",
                 (long long)steps_after);
    else
        text_duration(before->early_length, after->run->now_ns);
    int r = verdict_of_beginning(before->path, by_step ? first + steps_after : 0,
                                 (double)after->run->now_ns / (double)NS_PER_S, &doc, err);
    before->has_early = r == 0 && verdicts_read(doc, &before->early) == 0;
    json_decref(doc);
    return r;
}
