/* Asks squeue for the states of all jobs of this server at once, and sacct for a job that squeue no
 * longer lists. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/jobs/slurm_private.h"

enum {
    LIST_S = 30, /* time limit of squeue and sacct */
    /* Time between two calls of squeue: at least one second, and at least 20 times as long as the
     * last call took, so that a busy controller is asked less often. */
    PAUSE_MIN_S = 1,
    PAUSE_MAX_S = 30,
    PAUSE_FACTOR = 20,
};

static struct slurm_run *find_by_folder(const struct slurm *s, const char *folder_id)
{
    struct slurm_run *run;
    TAILQ_FOREACH(run, &s->runs, link)
    {
        if (strcmp(run->base.folder_id, folder_id) == 0)
            return run;
    }
    return NULL;
}

/* Copies a line of squeue or sacct into the run of its job. If a job was submitted twice, the
 * running submission is used, else the pending one. */
static void take_line(struct slurm_run *run, const struct slurm_line *line)
{
    static const int rank[] = {[SLURM_ENDED] = 1, [SLURM_PENDING] = 2, [SLURM_RUNNING] = 3};
    if (run->listed++ > 0 && rank[line->phase] <= rank[run->phase])
        return;
    run->phase = line->phase;
    run->number = line->number;
    memcpy(run->state, line->state, sizeof run->state);
    memcpy(run->detail, line->detail, sizeof run->detail);
}

static void read_lines(struct slurm *s, const char *text, size_t len)
{
    struct slurm_line line;
    for (const char *end = text + len, *at = text; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        struct slurm_run *run =
            slurm_parse_line(at, n, &line) == 0 ? find_by_folder(s, line.folder_id) : NULL;
        if (run)
            take_line(run, &line);
        at += n + 1;
    }
}

static void report_failure(struct slurm *s, int status, const char *error)
{
    char text[EXECUTOR_SENTENCE_MAX];
    const struct executor_callbacks *callbacks = &s->x->callbacks;
    const char *why = status == -ETIMEDOUT ? "squeue did not exit within 30 s"
                      : error[0]           ? error
                                           : "squeue failed without a message";
    snprintf(text, sizeof text,
             "Slurm does not answer: %.300s; submitted jobs are followed through their run folders",
             why);
    s->has_failed = true;
    callbacks->trouble(callbacks->user, text);
}

static void on_listed(void *user, int status, const char *output, size_t len, const char *error)
{
    struct slurm *s = user;
    struct slurm_run *run;
    const struct executor_callbacks *callbacks = &s->x->callbacks;
    uint64_t took_ns = clock_mono_ns() - s->list_ns;
    uint64_t pause_ns = took_ns * PAUSE_FACTOR;
    pause_ns = pause_ns < PAUSE_MIN_S * NS_PER_S ? PAUSE_MIN_S * NS_PER_S : pause_ns;
    pause_ns = pause_ns > PAUSE_MAX_S * NS_PER_S ? PAUSE_MAX_S * NS_PER_S : pause_ns;
    s->list = NULL;
    s->next_ns = s->list_ns + pause_ns;
    if (status != 0) {
        report_failure(s, status, error);
        return;
    }
    if (s->has_failed)
        callbacks->trouble(callbacks->user, NULL);
    s->has_failed = false;
    TAILQ_FOREACH(run, &s->runs, link)
    {
        run->listed = 0;
        run->phase = SLURM_ABSENT;
    }
    read_lines(s, output, len);
    s->listed_ns = s->list_ns;
    slurm_tick_on(s);
}

void slurm_list(struct slurm *s, uint64_t now_ns)
{
    char user[32];
    if (s->list || now_ns < s->next_ns)
        return;
    snprintf(user, sizeof user, "--user=%lu", (unsigned long)geteuid());
    char *argv[] = {s->squeue, (char[]){"--noheader"},           (char[]){"--states=all"},
                    user,      (char[]){"--format=%A|%T|%r|%j"}, NULL};
    s->list_ns = now_ns;
    int r = slurm_command(s, argv, LIST_S, on_listed, s, &s->list);
    if (r < 0) {
        report_failure(s, r, strerror(-r));
        s->next_ns = now_ns + PAUSE_MAX_S * NS_PER_S;
    }
}

/* ---- sacct ---- */

static void on_accounted(void *user, int status, const char *output, size_t len, const char *error)
{
    struct slurm_run *run = user;
    struct slurm_line line;
    const char *stop = memchr(output, '\n', len);
    size_t n = stop ? (size_t)(stop - output) : len;
    (void)error;
    run->account = NULL;
    run->is_accounted = true;
    if (status != 0 || len == 0 || slurm_parse_line(output, n, &line) < 0 ||
        strcmp(line.folder_id, run->base.folder_id) != 0)
        return;
    run->number = line.number;
    memcpy(run->state, line.state, sizeof run->state);
}

void slurm_account(struct slurm_run *run)
{
    struct slurm *s = run->slurm;
    char number[32];
    if (run->account || run->is_accounted)
        return;
    run->is_accounted = true;
    if (!s->sacct[0] || run->number <= 0)
        return;
    snprintf(number, sizeof number, "--jobs=%" PRId64, run->number);
    char *argv[] = {s->sacct,
                    (char[]){"--noheader"},
                    (char[]){"--parsable2"},
                    (char[]){"--allocations"},
                    number,
                    (char[]){"--format=JobIDRaw,State,ExitCode,JobName"},
                    NULL};
    run->is_accounted = slurm_command(s, argv, LIST_S, on_accounted, run, &run->account) < 0;
}
