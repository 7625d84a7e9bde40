/* Reads the folder of one node completely, and at each refresh only the data added since the last
 * one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "judge/cluster_private.h"
#include "profile/held.h"

enum { RUN_JSON_MAX = 16 << 20, BEAT_MAX = 4096 };

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec;
}

void cluster_node_reset(struct cluster_node *n)
{
    if (n->is_followed)
        run_follow_end(&n->follow);
    run_free(n->follow.run);
    judge_free(n->judge);
    verdicts_fini(&n->verdicts);
    json_decref(n->run_json);
    outcome_fini(&n->outcome);
    free(n->path);
    free(n->host);
    *n = (struct cluster_node){.number = n->number};
}

/* Reads run.json if the file has been replaced since the last reading. */
static bool read_run_json(struct cluster_node *n, int folder)
{
    struct stat st;
    struct outcome o;
    json_t *doc = NULL;
    if (fstatat(folder, "run.json", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        mtime_ns(&st) == n->run_json_mtime_ns)
        return false;
    int r = outcome_read_folder(folder, RUN_JSON_MAX, &doc, &o);
    n->run_json_mtime_ns = mtime_ns(&st);
    if (r < 0) {
        if (r != -ENOENT)
            err_set(&n->trouble, r, "run.json cannot be read");
        return false;
    }
    json_decref(n->run_json);
    outcome_fini(&n->outcome);
    n->run_json = doc;
    n->outcome = o;
    n->has_outcome = true;
    free(n->host);
    n->host = o.about.host ? strdup(o.about.host) : NULL;
    return true;
}

/* Reads the heartbeat. The file is rewritten in place; a half-written heartbeat is not valid JSON,
 * and the previous one then stays in use. */
static void read_beat(struct cluster_node *n, int folder, uint64_t now_ns)
{
    struct stat st;
    struct buf text = {0};
    if (fstatat(folder, "heartbeat", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        io_read_plain(folder, "heartbeat", BEAT_MAX, &text) < 0) {
        buf_fini(&text);
        return;
    }
    json_t *doc = json_parse(buf_str(&text), text.len, NULL);
    const json_t *seq = json_object_get(doc, "seq"), *step = json_object_get(doc, "step");
    if (json_is_integer(seq) &&
        (!n->beat.is_known || (uint64_t)json_integer_value(seq) != n->beat.seq)) {
        n->beat.seq = (uint64_t)json_integer_value(seq);
        n->beat.changed_ns = now_ns;
        n->beat.has_changed = n->beat.is_known;
    }
    n->beat.is_known = n->beat.is_known || json_is_integer(seq);
    const char *state = json_string_value(json_object_get(doc, "state"));
    n->beat.has_ended = state && strcmp(state, "ended") == 0;
    n->beat.has_step = json_is_integer(step);
    n->beat.step = json_integer_value(step);
    n->beat.mtime_ns = mtime_ns(&st);
    json_decref(doc);
    buf_fini(&text);
}

static void open_recording(const struct cluster *c, struct cluster_node *n)
{
    struct run_settings settings = c->settings;
    if (n->judge) /* the recording could not be opened in an earlier refresh */
        judge_free(n->judge);
    n->judge = NULL;
    if (judge_new(&c->options, &n->judge) < 0)
        return;
    n->is_followed =
        run_follow(n->path, &settings, judge_observer(n->judge), &n->follow, &n->trouble) == 0;
    if (n->is_followed)
        n->trouble = (struct err){""};
}

bool cluster_node_refresh(const struct cluster *c, struct cluster_node *n, uint64_t now_ns)
{
    AUTO_CLOSE int folder =
        n->path ? open(n->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (folder < 0)
        return false;
    bool is_changed = read_run_json(n, folder);
    read_beat(n, folder, now_ns);
    if (!n->is_followed)
        open_recording(c, n);
    uint64_t ticks = n->follow.run ? n->follow.run->ticks : 0;
    uint64_t marks = n->follow.run ? n->follow.run->marks_seen : 0;
    bool had_end = n->follow.run && n->follow.run->end;
    if (n->is_followed && run_follow_more(&n->follow, &n->trouble) < 0) {
        run_follow_end(&n->follow);
        n->is_followed = false;
    }
    if (n->follow.run)
        n->is_changed = n->is_changed || n->follow.run->ticks != ticks ||
                        n->follow.run->marks_seen != marks || had_end != !!n->follow.run->end;
    return is_changed || n->is_changed;
}

int cluster_node_judge(struct cluster_node *n, bool has_heaps)
{
    const struct run *run = n->follow.run;
    /* the recording has no readings, so the node's own verdict in run.json is used */
    if (!run || !run->ticks) {
        verdicts_fini(&n->verdicts);
        return n->run_json ? verdicts_read(json_object_get(n->run_json, "verdict"), &n->verdicts)
                           : 0;
    }
    if (!n->is_changed)
        return 0;
    n->is_changed = false;
    if (has_heaps) {
        uint64_t until_ns =
            judge_is_over(n->judge) ? UINT64_MAX : run->start_mono_ns + run->tick_ns;
        judge_read_held(n->judge, n->path, until_ns);
    }
    judge_update(n->judge);
    verdicts_fini(&n->verdicts);
    return judge_verdicts(n->judge, &n->verdicts);
}
