/* Gathering a run for its report: run.json, the recording, the verdict, the heap. */
#include "cli/report_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/verdict.h"
#include "diagnose/diagnosis.h"
#include "profile/folder.h"
#include "profile/growth.h"
#include "profile/marks.h"
#include "profile/view.h"
#include "trace/reader.h"
#include "version.h"
#include "present/report_data.h"

enum { RUN_JSON_MAX = 16 << 20, HEAP_ROWS = 25 };
static const double tree_least = 0.01;

static void trouble(json_t *doc, const struct err *err)
{
    json_array_append_new(json_object_get(doc, "trouble"), json_text0(err->text));
}

/* ---- run.json ---- */

/* The document, or NULL: with a sentence where there is a file that is none. */
static json_t *read_run(const char *path, struct err *err)
{
    AUTO_CLOSE int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct buf text = {0};
    json_t *run = NULL;
    if (folder < 0)
        return NULL;
    int r = io_read_all(folder, "run.json", RUN_JSON_MAX, &text);
    if (r == 0)
        run = json_parse(buf_str(&text), text.len, err);
    else if (r != -ENOENT)
        err_set(err, r, "%s", strerror(-r));
    if (run && !json_is_object(run)) {
        json_decref(run);
        run = NULL;
        err_set(err, -EBADMSG, "it is no JSON object");
    }
    if (!run && err->text[0])
        err_prefix(err, -EBADMSG, "run.json cannot be read");
    buf_fini(&text);
    return run;
}

/* ---- the recording ---- */

static int read_trace(const char *path, json_t *doc, struct err *err)
{
    struct trace_reader *reader;
    json_t *verdict = NULL;
    struct err why = {""};
    int r = trace_reader_open(path, &reader, err);
    if (r < 0)
        return r;
    json_t *data = report_data(reader, err);
    json_object_set_new(doc, "header", json_deep_copy(trace_reader_header(reader)));
    trace_reader_free(reader);
    if (!data)
        return -EIO;
    json_object_set_new(doc, "data", data);
    const char *damage = json_string_value(json_object_get(data, "damage"));
    if (damage) {
        err_set(&why, 0, "the recording is damaged; not read: %s", damage);
        trouble(doc, &why);
    }
    if (verdict_of_recording(path, &verdict, &why) == 0)
        json_object_set_new(doc, "verdict", verdict);
    else
        trouble(doc, &why);
    return 0;
}

/* ---- the heap ---- */

static int heap_json(const char *folder, const struct profile *p, json_t **ret, struct err *err)
{
    const struct symbols_options symbols = {0};
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options options = {.by = GROWTH_BY_LOCATION, .minds_program = true};
    struct names *names;
    struct growth g;
    int r = names_new(p, &symbols, &names);
    if (r < 0)
        return err_set(err, r, "cannot name frames: %s", strerror(-r));
    r = marks_read(folder, p->pid, p->start_ns, &marks, &options.n_marks, err);
    options.marks = marks;
    if (r == 0)
        r = growth_of(p, names, &options, &g, err);
    if (r == 0) {
        struct profile_view v;
        r = profile_view_make(p, names, &g, HEAP_ROWS, true, &v);
        growth_fini(&g);
        if (r == 0)
            r = profile_view_add_tree(&v, p, names, tree_least);
        if (r == 0)
            *ret = profile_json(&v);
        else
            err_set(err, r, "out of memory");
        profile_view_fini(&v);
    }
    names_free(names);
    return r;
}

static void say_heap_damage(const struct folder_heap *heap, json_t *doc)
{
    uint64_t bytes = heap->damage.bad_bytes + heap->damage.cut_bytes;
    char size[TEXT_SIZE_MAX];
    struct err why = {""};
    if (!bytes)
        return;
    err_set(&why, 0, "%s is damaged; not read: %s", heap->name, text_size(size, bytes));
    trouble(doc, &why);
}

static void read_heap(const char *path, json_t *doc)
{
    const json_t *pid = json_object_get(
        json_object_get(json_object_get(json_object_get(doc, "verdict"), "tree"), "grower"), "pid");
    struct folder_heap heap = {0};
    struct err err = {""};
    json_t *json = NULL;
    int r = -ENOENT;
    if (json_is_integer(pid))
        r = folder_heap_read(path, (int32_t)json_integer_value(pid), &heap, &err);
    if (r < 0)
        r = folder_heap_read(path, 0, &heap, &err);
    if (r == 0) {
        say_heap_damage(&heap, doc);
        r = heap_json(path, heap.profile, &json, &err);
    }
    folder_heap_fini(&heap);
    if (r == 0)
        json_object_set_new(doc, "heap", json);
    else
        json_object_set_new(doc, "heap_trouble", json_text0(err.text));
}

/* ---- the diagnosis ---- */

static void read_diagnosis(const char *path, json_t *doc)
{
    const json_t *verdict = json_object_get(doc, "verdict");
    struct facts *facts = NULL;
    struct err err = {""};
    if (!json_is_object(json_object_get(doc, "data")) || !json_is_object(verdict))
        return;
    if (facts_read(path, verdict, &facts, &err) < 0) {
        trouble(doc, &err);
        return;
    }
    struct diagnosis diagnosis;
    if (diagnosis_make(facts, &diagnosis, &err) == 0) {
        json_object_set_new(doc, "diagnosis", diagnosis_json(&diagnosis));
        diagnosis_fini(&diagnosis);
    }
    facts_free(facts);
}

/* ---- all of it ---- */

static json_t *title_of(const json_t *doc, const char *path)
{
    static const char *const from[] = {"run", "header"};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        json_t *name = json_object_get(json_object_get(doc, from[i]), "name");
        if (json_is_string(name))
            return json_incref(name);
    }
    return json_text0(path);
}

static json_t *new_doc(const char *path)
{
    return json_pack("{s:s,s:o,s:o,s:n,s:n,s:n,s:n,s:n,s:[]}", "ebb", EBB_VERSION, "made",
                     json_local_time(clock_wall_ns()), "path", json_text0(path), "run", "header",
                     "verdict", "data", "heap", "trouble");
}

int report_read(const char *path, json_t **ret, struct err *err)
{
    struct err why = {""};
    struct stat st;
    json_t *doc = new_doc(path);
    if (!doc)
        return err_set(err, -ENOMEM, "out of memory");
    if (stat(path, &st) < 0) {
        json_decref(doc);
        return err_set(err, -errno, "%s: %s; a run folder or a recording is meant", path,
                       strerror(errno));
    }
    json_t *run = read_run(path, &why);
    if (run)
        json_object_set_new(doc, "run", run);
    else if (why.text[0])
        trouble(doc, &why);
    int r = read_trace(path, doc, &why);
    if (r < 0 && !run) {
        json_decref(doc);
        return err_set(err, r, "%s", why.text);
    }
    if (r < 0) {
        trouble(doc, &why);
        json_t *verdict = json_object_get(run, "verdict");
        if (json_is_object(verdict))
            json_object_set(doc, "verdict", verdict);
    }
    if (S_ISDIR(st.st_mode))
        read_heap(path, doc);
    read_diagnosis(path, doc);
    json_object_set_new(doc, "title", title_of(doc, path));
    *ret = doc;
    return 0;
}

/* ---- two runs ---- */

/* The first step of a run and how many there were up to its last: false without steps. */
static bool steps_of(const json_t *doc, double *ret_first, double *ret_count)
{
    const json_t *list =
        json_object_get(json_object_get(json_object_get(doc, "data"), "steps"), "v");
    const json_t *v;
    double least = 0, most = 0;
    size_t i;
    json_array_foreach(list, i, v)
    {
        double step = json_number_value(v);
        least = i == 0 || step < least ? step : least;
        most = i == 0 || step > most ? step : most;
    }
    *ret_first = least;
    *ret_count = most - least;
    return json_array_size(list) > 1 && *ret_count >= 1;
}

static double span_of(const json_t *doc)
{
    return json_number_value(json_object_get(json_object_get(doc, "data"), "span_s"));
}

int report_read_early(const char *path, json_t *before, const json_t *after, struct err *err)
{
    double first, steps, first_after, steps_after, until_s = span_of(after);
    bool by_step = steps_of(before, &first, &steps) && steps_of(after, &first_after, &steps_after);
    char length[TEXT_TIME_MAX] = "";
    json_t *verdict;
    if (!json_is_object(json_object_get(before, "data")) ||
        !json_is_object(json_object_get(after, "data")) ||
        (by_step ? steps_after >= steps : until_s >= span_of(before)))
        return 0;
    if (by_step)
        snprintf(length, sizeof length, "%.0f steps", steps_after);
    else
        text_duration(length, (uint64_t)(until_s * (double)NS_PER_S));
    int r = verdict_of_beginning(path, by_step ? (int64_t)(first + steps_after) : 0, until_s,
                                 &verdict, err);
    if (r < 0)
        return r;
    json_t *early = json_pack("{s:s,s:o}", "length", length, "verdict", verdict);
    return json_object_set_new(before, "early", early) < 0 ? err_set(err, -ENOMEM, "out of memory")
                                                           : 0;
}
