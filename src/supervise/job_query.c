/* Answers queries about the job's verdict or its live heap, sent by the job itself or by a
 * command. */
#include "supervise/job.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "judge/verdicts.h"
#include "mark/receiver.h"

/* Finds the socket for the reply. It must be in our own folder: any process can send marks, and
 * must not make the supervisor write to other sockets. */
static bool reply_path(const struct job *j, const struct mark *m, char ret[108])
{
    const char *folder = mark_receiver_folder(j->marks);
    size_t len, folder_len = strlen(folder);
    const char *path = mark_get(m, "REPLY", &len);
    if (!path || len >= 108 || len < folder_len + 2 || memcmp(path, folder, folder_len) != 0 ||
        path[folder_len] != '/' || memchr(path + folder_len + 1, '/', len - folder_len - 1))
        return false;
    memcpy(ret, path, len);
    ret[len] = '\0';
    return strcmp(ret, mark_receiver_path(j->marks)) != 0;
}

static int query_reply(const char *path, const json_t *doc)
{
    AUTO_BUF struct buf text = {0};
    int r = json_print(&text, doc, 0);
    if (r == 0)
        r = mark_send(path, text.data, text.len, 0);
    return r;
}

static void answer_verdict(struct job *j, const char *path)
{
    engine_judge(j->engine);
    json_auto_t *doc = judge_tree_json(engine_verdict(j->engine));
    /* a reply that is too long is sent without the evidence, its longest part */
    if (doc && query_reply(path, doc) == -EMSGSIZE && json_object_del(doc, "evidence") == 0)
        query_reply(path, doc);
}

/* Writes new heap readings to the run folder, for the process given by PID= or for all. The reply
 * contains their number. */
static void answer_heap(struct job *j, const struct mark *m, const char *path)
{
    size_t len;
    int64_t pid = 0;
    const char *text = mark_get(m, "PID", &len);
    if (text && (number_parse_i64(text, len, &pid) < 0 || pid < 0 || pid > INT32_MAX))
        return;
    json_auto_t *doc = json_pack("{s:b,s:I}", "on", j->heap.collect ? 1 : 0, "refreshed",
                                 (json_int_t)job_heap_refresh(j, (int32_t)pid));
    if (doc)
        query_reply(path, doc);
}

bool job_query(struct job *j, const struct mark *m)
{
    char path[108];
    if (m->kind != MARK_OTHER || !mark_is(m, "KIND", "query"))
        return false;
    if (!reply_path(j, m, path))
        return true;
    if (mark_is(m, "NAME", "verdict"))
        answer_verdict(j, path);
    else if (mark_is(m, "NAME", "heap"))
        answer_heap(j, m, path);
    return true;
}
