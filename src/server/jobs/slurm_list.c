/* Gets the states of all jobs of this server with one call of squeue, and calls sacct for each
 * job that squeue no longer lists. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "server/jobs/slurm_private.h"

enum {
    LIST_S = 30, /* time limit of squeue and sacct */
    /* Time between two calls of squeue: 20 times the duration of the last call (at least 1 s, at
     * most 30 s), so that a busy controller is queried less often. */
    PAUSE_MIN_S = 1,
    PAUSE_MAX_S = 30,
    PAUSE_FACTOR = 20,
};

/* ---- parsing ---- */

/* Returns the phase for a state printed by squeue or sacct. Unknown states count as ended. */
static enum slurm_phase phase_of(const char *state)
{
    static const char *const pending[] = {"PENDING",      "REQUEUED",    "REQUEUE_HOLD",
                                          "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD"};
    static const char *const running[] = {"RUNNING",    "SUSPENDED", "CONFIGURING",
                                          "COMPLETING", "STAGE_OUT", "STOPPED",
                                          "SIGNALING",  "RESIZING",  "POWER_UP_NODE"};
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (strcmp(state, pending[i]) == 0)
            return SLURM_PENDING;
    for (size_t i = 0; i < sizeof running / sizeof *running; i++)
        if (strcmp(state, running[i]) == 0)
            return SLURM_RUNNING;
    return SLURM_ENDED;
}

/* Copies the next field and returns the rest of the line after its "|", or NULL. */
static const char *take_field(const char *s, const char *end, char *ret, size_t size)
{
    const char *bar = s ? memchr(s, '|', (size_t)(end - s)) : NULL;
    if (!bar)
        return NULL;
    snprintf(ret, size, "%.*s", (int)(bar - s), s);
    for (char *c = ret; *c; c++)
        *c = isprint((unsigned char)*c) ? *c : '?';
    return bar + 1;
}

int slurm_parse_line(const char *line, size_t len, struct slurm_line *ret)
{
    struct slurm_line l = {0};
    char number[24];
    const char *end = line + len;
    const char *s = take_field(line, end, number, sizeof number);
    s = take_field(s, end, l.state, sizeof l.state);
    s = take_field(s, end, l.detail, sizeof l.detail);
    const size_t id_len = sizeof l.folder_id - 1;
    if (!s || number_parse_i64(number, strlen(number), &l.number) < 0 || l.number <= 0 ||
        (size_t)(end - s) < id_len + 2 || end[-(ptrdiff_t)id_len - 1] != '.')
        return -EBADMSG;
    memcpy(l.folder_id, end - id_len, id_len);
    if (strspn(l.folder_id, "0123456789abcdef") != id_len)
        return -EBADMSG;
    l.state[strcspn(l.state, " +")] = '\0';
    l.phase = phase_of(l.state);
    if (strcmp(l.detail, "None") == 0 || strcmp(l.detail, "(null)") == 0)
        l.detail[0] = '\0';
    *ret = l;
    return 0;
}

int slurm_parse_number(const char *text, size_t len, int64_t *ret)
{
    int64_t number;
    size_t digits = 0;
    while (digits < len && isdigit((unsigned char)text[digits]))
        digits++;
    if (digits == 0 || digits == len || !strchr(";\n", text[digits]) ||
        number_parse_i64(text, digits, &number) < 0 || number <= 0)
        return -EBADMSG;
    *ret = number;
    return 0;
}

bool slurm_is_temporary(const char *error)
{
    /* parts of error messages that Slurm's library prints for temporary problems */
    static const char *const parts[] = {
        "contact slurm controller",
        "Socket timed out",
        "Connection refused",
        "connection failure",
        "Zero Bytes",
        "standby mode",
        "temporarily",
        "Transport endpoint",
        "authentication credential",
        "authentication error",
        "Munge",
        "submit limit",
        "MaxSubmit",
        "MaxJobCount",
        "Timeout",
        "timed out",
        "Unexpected message",
        "try again",
        "Incompatible versions",
        "resolve",
        "Network",
        "DNS SRV lookup failed",
        "No route to host",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasestr(error, parts[i]))
            return true;
    return false;
}

/* ---- squeue ---- */

static struct slurm_run *find_by_folder(const struct slurm *s, const char *folder_id)
{
    struct slurm_run *run;
    TAILQ_FOREACH(run, &s->runs, link)
    {
        if (strcmp(run->base.folder.id, folder_id) == 0)
            return run;
    }
    return NULL;
}

/* Copies a line of squeue into the run of its job. If a job was submitted twice, uses the running
 * submission, else the pending one. */
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
    const char *why = status == -ETIMEDOUT ? "squeue did not exit within 30 s"
                      : error[0]           ? error
                                           : "squeue failed without a message";
    snprintf(
        text, sizeof text,
        "Slurm does not respond: %.300s; submitted jobs are followed through their run folders",
        why);
    s->has_failed = true;
    jobs_run_trouble(s->x->jobs, text);
}

static void on_listed(void *user, int status, const char *output, size_t len, const char *error)
{
    struct slurm *s = user;
    struct slurm_run *run;
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
        jobs_run_trouble(s->x->jobs, NULL);
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
        strcmp(line.folder_id, run->base.folder.id) != 0)
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
