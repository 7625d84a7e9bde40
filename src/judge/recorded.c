/* Reads a recorded run in one pass; the judge and the list of marks observe it. */
#include "judge/recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "profile/folder.h"
#include "profile/held.h"

enum { RUN_JSON_MAX = 16 << 20 };

/* Reads run.json, which may be missing or damaged. */
static void read_run_json(struct recorded *r)
{
    AUTO_CLOSE int folder = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct buf text = {0};
    if (folder < 0)
        return;
    int e = io_read_all(folder, "run.json", RUN_JSON_MAX, &text);
    if (e == 0)
        r->run_json = json_parse(buf_str(&text), text.len, &r->trouble);
    else if (e != -ENOENT)
        err_set(&r->trouble, e, "%s", strerror(-e));
    buf_fini(&text);
    if (r->run_json && !json_is_object(r->run_json)) {
        json_decref(r->run_json);
        r->run_json = NULL;
        err_set(&r->trouble, -EBADMSG, "not a JSON object");
    }
    r->has_outcome = r->run_json && outcome_read(r->run_json, &r->outcome) == 0;
    if (r->trouble.text[0])
        err_prefix(&r->trouble, -EBADMSG, "run.json cannot be read");
}

const struct folder_heaps *recorded_heaps(const struct recorded *r)
{
    if (!r->heaps->is_read)
        folder_heaps_read(r->path, r->heaps);
    return r->heaps;
}

static void set_profile_readings(struct recorded *r)
{
    size_t count;
    uint64_t until_ns =
        judge_is_over(r->judge) ? UINT64_MAX : r->run->start_mono_ns + r->run->tick_ns;
    const struct held_window w = judge_held_window(r->judge, until_ns);
    AUTO_FREE struct held *list = held_list(recorded_heaps(r), &w, &count);
    judge_set_held(r->judge, list, count);
}

/* For the recording of a running job: if a leak has just become probable, judges the job as it was
 * JUDGE_LASTING_S earlier, to find out whether the leak was probable then too. */
static int confirm(const struct recorded *r, const struct run_settings *settings,
                   const struct judge_options *options, struct err *err)
{
    struct recorded before = {.path = r->path, .heaps = r->heaps};
    struct run_settings s = *settings;
    if (!judge_awaits_confirmation(r->judge) || r->run->tick_ns < JUDGE_LASTING_S * NS_PER_S)
        return 0;
    s.has_until = true;
    s.has_until_step = false;
    s.until_ns = r->run->tick_ns - JUDGE_LASTING_S * NS_PER_S;
    int e = judge_new(options, &before.judge);
    if (e == 0)
        e = run_read(r->path, &s, judge_observer(before.judge), &before.run, err);
    if (e == 0) {
        set_profile_readings(&before);
        judge_update(before.judge);
        judge_confirm(r->judge, before.judge);
        judge_update(r->judge);
    }
    before.heaps = NULL;
    recorded_fini(&before);
    return e;
}

int recorded_read(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, struct recorded *ret, struct err *err)
{
    const struct judge_options none = {0};
    options = options ? options : &none;
    settings = settings ? settings : &run_settings_read;
    *ret = (struct recorded){.path = path};
    ret->heaps = calloc(1, sizeof *ret->heaps);
    read_run_json(ret);
    int r = ret->heaps ? judge_new(options, &ret->judge) : -ENOMEM;
    if (r < 0)
        return err_set(err, r, "out of memory while judging %s", path);
    marks_init(&ret->marks);
    ret->marks.observer.next = judge_observer(ret->judge);
    r = run_read(path, settings, &ret->marks.observer, &ret->run, err);
    if (r < 0)
        return r;
    /* The observer that collects marks is removed from the run, because it is a part of RET, which
     * the caller may move. */
    ret->run->observers = judge_observer(ret->judge);
    kept_take_figures(&ret->marks.kept, ret->run);
    set_profile_readings(ret);
    judge_update(ret->judge);
    r = confirm(ret, settings, options, err);
    if (r < 0)
        return r;
    r = judge_verdicts(ret->judge, &ret->verdicts);
    return r < 0 ? err_set(err, r, "out of memory while judging %s", path) : 0;
}

void recorded_fini(struct recorded *r)
{
    if (r->heaps)
        folder_heaps_fini(r->heaps);
    free(r->heaps);
    verdicts_fini(&r->verdicts);
    marks_fini(&r->marks);
    run_free(r->run);
    judge_free(r->judge);
    outcome_fini(&r->outcome);
    json_decref(r->run_json);
    *r = (struct recorded){0};
}
