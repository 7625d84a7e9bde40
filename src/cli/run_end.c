/* The summary of a run, with what its heap and its recording explain. */
#include "cli/run_end.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "diagnose/diagnosis.h"
#include "judge/recorded.h"
#include "present/summary.h"
#include "profile/folder.h"
#include "profile/marks.h"
#include "profile/view.h"
#include "run/outcome.h"

enum { GROWING_MAX = 3, GROWING_LEAST = 1 << 20 };

/* What was measured of the run; NULL where its baseline is flat and there is nothing to explain, or
 * there is no recording. */
static struct facts *facts_of(const char *folder, const struct verdicts *v)
{
    struct recorded recorded;
    struct facts *facts = NULL;
    enum verdict_word word = v->job.result.word;
    if (!folder || !v->has_job || word == VERDICT_STABLE || word == VERDICT_SPIKING)
        return NULL;
    if (recorded_read(folder, NULL, NULL, &recorded, NULL) < 0 ||
        facts_new(&recorded, &facts, NULL) < 0)
        facts = NULL;
    recorded_fini(&recorded);
    return facts;
}

/* How many of the rows surely grew, and have a verdict that does not say that it is over. */
static size_t growing_count(const struct profile_view *v)
{
    size_t n = 0;
    while (n < v->n_rows && v->rows[n].verdict.leak != VERDICT_LEAK_NO &&
           v->rows[n].growth_bytes - 2 * v->rows[n].growth_sigma_bytes > GROWING_LEAST)
        n++;
    return n;
}

/* The diagnosis has them from one of its moments to another, which in a short run may be the same:
 * then they are worked out over all of it. RET stays empty where there is nothing. */
static void growing_read(const char *folder, const struct facts *facts, struct profile_view *ret)
{
    const struct facts_heap *h = facts ? &facts->heap : NULL;
    const struct profile *p = h ? h->profile : NULL;
    struct profile_wants wants = {.growth = {.by = GROWTH_BY_LOCATION, .minds_program = true},
                                  .top = GROWING_MAX};
    struct folder_heap found = {0};
    struct marks marks;
    if (p && profile_view_make(p, h->names, &h->growth, GROWING_MAX, false, ret) == 0) {
        if (growing_count(ret))
            return;
        profile_view_fini(ret);
    }
    if (!p && folder_heap_read(folder, 0, &found, NULL) == 0)
        p = found.profile;
    if (p) {
        marks_read(folder, &marks);
        wants.marks = &marks;
        (void)profile_view_of(p, &wants, ret, NULL);
        marks_fini(&marks);
    }
    folder_heap_fini(&found);
}

static void print_text(const struct summary *s)
{
    struct winsize size = {0};
    struct buf text = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    summary_terminal(&text, s, cli_colour(STDERR_FILENO), size.ws_col);
    io_write_all(STDERR_FILENO, text.data, text.len);
    buf_fini(&text);
}

static void print_ended(json_t *doc, const struct outcome *o, bool as_json)
{
    const char *folder = o->about.run_dir;
    json_t *heap = json_object_get(doc, "heap");
    struct verdicts verdicts = {0};
    struct diagnosis diagnosis = {0};
    struct profile_view view = {0};
    verdicts_read(json_object_get(doc, "verdict"), &verdicts);
    struct facts *facts = facts_of(folder, &verdicts);
    if (folder && json_is_true(json_object_get(heap, "on")))
        growing_read(folder, facts, &view);
    bool is_explained =
        facts && diagnosis_make(facts, &diagnosis, NULL) == 0 && diagnosis.has_grown;
    const struct summary s = {.outcome = o,
                              .verdicts = &verdicts,
                              .growing = view.rows,
                              .n_growing = growing_count(&view),
                              .diagnosis = is_explained ? &diagnosis : NULL};
    if (as_json) {
        if (view.pid)
            json_object_set_new(heap, "growing", profile_rows_json(&view, s.n_growing));
        if (is_explained)
            json_object_set_new(doc, "diagnosis", diagnosis_brief_json(&diagnosis));
        json_write(STDERR_FILENO, doc, 0);
    } else {
        print_text(&s);
    }
    facts_free(facts);
    profile_view_fini(&view);
    diagnosis_fini(&diagnosis);
    verdicts_fini(&verdicts);
}

void run_end_print(json_t *doc, bool is_quiet, bool as_json)
{
    struct outcome o = {0};
    if (outcome_read(doc, &o) < 0)
        return;
    const char *command = o.about.command_count ? o.about.command[0] : "";
    if (o.end.error && o.end.status == 125)
        cli_failf(0, "%s", o.end.error);
    else if (o.end.error)
        cli_failf(0, "\"%s\" cannot be executed: %s", command, o.end.error);
    else if (!is_quiet)
        print_ended(doc, &o, as_json);
    outcome_fini(&o);
}
