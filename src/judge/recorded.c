/* Reading a recorded run: one pass over the recording, with the judge and the marks watching. */
#include "judge/recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/json.h"
#include "profile/held.h"

enum { RUN_JSON_MAX = 16 << 20 };

/* It may be missing, or half written by another program than ours: then much is unknown. */
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
        err_set(&r->trouble, -EBADMSG, "it is not a JSON object");
    }
    r->has_outcome = r->run_json && outcome_read(r->run_json, &r->outcome) == 0;
    if (r->trouble.text[0])
        err_prefix(&r->trouble, -EBADMSG, "run.json cannot be read");
}

static void ask_profiler(struct judge *judge, const char *path)
{
    size_t count;
    if (!judge_wants_held(judge))
        return;
    AUTO_FREE struct held *list = held_read(path, &count);
    judge_set_held(judge, list, count);
}

int recorded_read(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, struct recorded *ret, struct err *err)
{
    const struct judge_options none = {0};
    *ret = (struct recorded){.path = path};
    read_run_json(ret);
    int r = judge_new(options ? options : &none, &ret->judge);
    if (r < 0)
        return err_set(err, r, "no memory to judge %s", path);
    marks_init(&ret->marks);
    ret->marks.observer.next = judge_observer(ret->judge);
    r = run_read(path, settings ? settings : &run_settings_read, &ret->marks.observer, &ret->run,
                 err);
    if (r < 0)
        return r;
    ret->run->observers = judge_observer(ret->judge); /* RET, and MARKS in it, may be moved */
    ask_profiler(ret->judge, path);
    judge_update(ret->judge);
    r = judge_verdicts(ret->judge, &ret->verdicts);
    return r < 0 ? err_set(err, r, "no memory to judge %s", path) : 0;
}

void recorded_fini(struct recorded *r)
{
    verdicts_fini(&r->verdicts);
    marks_fini(&r->marks);
    run_free(r->run);
    judge_free(r->judge);
    outcome_fini(&r->outcome);
    json_decref(r->run_json);
    *r = (struct recorded){0};
}
