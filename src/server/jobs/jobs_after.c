/* Jobs that come after others: they go on when those have succeeded, and are cancelled when not. A
 * little at a time: a chain of thousands must not keep the loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "server/jobs/jobs_private.h"

enum {
    CANCELS = 16,     /* in one go: each is a commit */
    NEWS_MAX = 65536, /* of ended ones that nobody has looked at yet */
};

/* JOB waits for after[AT], which is in STATE (JOB_STATES: there is none). False: JOB is gone. */
static bool settle(struct jobs *j, struct job *job, size_t at, enum job_state state)
{
    char reason[JOBS_SENTENCE_MAX];
    struct err err;
    long long id = (long long)job->after[at];
    if (state != JOB_STATES && !job_state_is_final(state))
        return true;
    if (state == JOB_SUCCEEDED) {
        job->after[at] = job->after[--job->after_count];
        j->is_planned = false;
        return true;
    }
    if (state == JOB_STATES)
        snprintf(reason, sizeof reason, "job %lld, which comes before it, is not known any more",
                 id);
    else
        snprintf(reason, sizeof reason, "job %lld, which comes before it, %s", id,
                 state == JOB_FAILED      ? "failed"
                 : state == JOB_CANCELLED ? "was cancelled"
                                          : "was lost");
    if (jobs_end_queued(j, job, JOB_CANCELLED, reason, &err) == 0)
        return false;
    j->is_unsettled = true;
    return true;
}

void jobs_after_ended(struct jobs *j, int64_t id, enum job_state state)
{
    if (j->queue_count == 0)
        return;
    if (j->news_count == j->news_cap) {
        size_t cap = j->news_cap ? j->news_cap * 2 : 16;
        struct jobs_ended *grown = cap <= NEWS_MAX ? realloc(j->news, cap * sizeof *grown) : NULL;
        if (!grown) {
            j->is_unsettled = true;
            jobs_tick_on(j);
            return;
        }
        j->news = grown;
        j->news_cap = cap;
    }
    j->news[j->news_count++] = (struct jobs_ended){.id = id, .state = state};
    jobs_kick(j);
}

static size_t index_of(const struct job *job, int64_t id)
{
    size_t at = 0;
    while (at < job->after_count && job->after[at] != id)
        at++;
    return at;
}

bool jobs_after_some(struct jobs *j)
{
    int cancels = 0;
    while (j->news_count > 0 && cancels < CANCELS) {
        const struct jobs_ended first = j->news[0];
        while (j->news_at < j->queue_count && cancels < CANCELS) {
            struct job *job = j->queue[j->news_at];
            size_t at = index_of(job, first.id);
            if (at == job->after_count || settle(j, job, at, first.state))
                j->news_at++;
            else
                cancels++;
        }
        if (j->news_at < j->queue_count)
            break;
        j->news_at = 0;
        memmove(j->news, j->news + 1, --j->news_count * sizeof *j->news);
    }
    if (j->news_count == 0 && j->news_cap > 0) {
        free(j->news);
        j->news = NULL;
        j->news_cap = 0;
    }
    return j->news_count > 0;
}

void jobs_after_look_at_all(struct jobs *j)
{
    int cancels = 0;
    size_t i = 0;
    j->is_unsettled = false;
    while (i < j->queue_count && !j->is_unsettled && cancels < CANCELS) {
        if (jobs_after_look(j, j->queue[i]))
            i++;
        else
            cancels++;
    }
    if (i < j->queue_count)
        j->is_unsettled = true;
}

bool jobs_after_look(struct jobs *j, struct job *job)
{
    for (size_t at = job->after_count; at > 0; at--)
        if (!settle(j, job, at - 1, jobs_state(j, job->after[at - 1])))
            return false;
    return true;
}
