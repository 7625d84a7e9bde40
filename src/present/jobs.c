/* Renders the table of jobs, and one job as a list of facts. */
#include "present/jobs.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/document.h"
#include "run/job_facts.h"

enum { NAME_COLUMNS = 24 };

/* ---- reading the server's documents ---- */

struct job_change {
    double t_s;
    char state[20];
    char *reason;
};

struct job_view {
    int64_t id;
    char state[20], memory_from[24];
    char *name, *reason, *waits_for, *cwd, *run_dir;
    char **command;
    size_t command_count;
    bool has_submitted_s, has_started_s, has_ended_s, has_memory_bytes;
    double submitted_s, started_s, ended_s;
    uint64_t memory_bytes;
    struct job_facts facts;
    struct job_change *changes;
    size_t change_count;
    bool is_ended;
};

#define FIELD(s, m, type) CODEC_FIELD(struct s, m, #m, CODEC_##type)
#define MAYBE(s, m, type) CODEC_NULL(struct s, m, #m, CODEC_##type)
#define STRING(s, m) CODEC_OWNED(struct s, m, #m, CODEC_OR_NULL)

static const struct codec change_codec[] = {
    FIELD(job_change, t_s, REAL), FIELD(job_change, state, TEXT), STRING(job_change, reason), {0}};
static const struct codec job_codec[] = {
    FIELD(job_view, id, INT),
    FIELD(job_view, state, TEXT),
    FIELD(job_view, memory_from, TEXT),
    STRING(job_view, name),
    STRING(job_view, reason),
    STRING(job_view, waits_for),
    STRING(job_view, cwd),
    STRING(job_view, run_dir),
    CODEC_WORDS(struct job_view, command, command_count, "command", CODEC_REQUIRED),
    MAYBE(job_view, submitted_s, REAL),
    MAYBE(job_view, started_s, REAL),
    MAYBE(job_view, ended_s, REAL),
    MAYBE(job_view, memory_bytes, UINT),
    CODEC_FLAT(struct job_view, facts, job_facts_codec),
    CODEC_MANY(struct job_view, changes, change_count, "changes", change_codec, CODEC_REQUIRED),
    {0}};

bool job_is_ended(const json_t *job)
{
    static const char *const ended[] = {"succeeded", "failed", "cancelled", "lost"};
    const char *state = json_string_value(json_object_get(job, "state"));
    for (size_t i = 0; state && i < sizeof ended / sizeof *ended; i++)
        if (strcmp(state, ended[i]) == 0)
            return true;
    return false;
}

/* Reads the server's document of one job. The result is empty if memory runs out. */
static struct job_view job_read(const json_t *doc)
{
    struct job_view j = {0};
    codec_read(job_codec, doc, &j, NULL);
    j.is_ended = job_is_ended(doc);
    return j;
}

/* ---- values ---- */

/* Writes how long the job has run or, before it starts, how long it has waited; "" if unknown. */
static char *life_text(char out[TEXT_TIME_MAX], const struct job_view *j, double now_s)
{
    out[0] = '\0';
    if (!j->has_started_s && (j->has_ended_s || !j->has_submitted_s))
        return out;
    return text_seconds(out, (j->has_ended_s ? j->ended_s : now_s) -
                                 (j->has_started_s ? j->started_s : j->submitted_s));
}

static enum doc_tone state_tone(const struct job_view *j)
{
    if (strcmp(j->state, "succeeded") == 0)
        return TONE_GOOD;
    if (strcmp(j->state, "failed") == 0 || strcmp(j->state, "lost") == 0)
        return TONE_BAD;
    return j->is_ended || strcmp(j->state, "queued") == 0 ? TONE_DIM : TONE_STRONG;
}

/* Adds "120/1000 12%", "step 120" or "epoch 1.5". */
static void job_put_progress(struct doc *d, const struct job_progress *p)
{
    if (p->has_step && p->max_steps > 0 && p->step >= 0)
        doc_textf(d, TONE_PLAIN, "%" PRId64 "/%" PRId64 " %.0f%%", p->step, p->max_steps,
                  p->step < p->max_steps ? 100 * (double)p->step / (double)p->max_steps : 100.0);
    else if (p->has_step)
        doc_textf(d, TONE_PLAIN, "step %" PRId64, p->step);
    else if (p->has_epoch)
        doc_textf(d, TONE_PLAIN, "epoch %.2f", p->epoch);
}

/* Adds the reason for the job's state, or its forecast. The time until out of memory is shown only
 * if the verdict is a leak: other growth may be start-up or a cache. */
static void job_put_reason(struct doc *d, const char *before, const struct job_view *j)
{
    const struct job_interval *eta = &j->facts.verdict.oom_eta_s;
    char left[TEXT_TIME_MAX];
    const char *why = j->reason                           ? j->reason
                      : j->waits_for                      ? j->waits_for
                      : j->is_ended && j->facts.has_cause ? j->facts.cause
                                                          : NULL;
    if (why)
        doc_textf(d, TONE_PLAIN, "%s%s", before, why);
    else if (!j->is_ended && j->facts.verdict.leak && eta->has_low)
        doc_textf(d, TONE_PLAIN, "%sout of memory in %s%s%s", before, eta->has_high ? "about " : "",
                  text_about_time(left, eta->has_high ? (eta->low + eta->high) / 2 : eta->low),
                  eta->has_high ? "" : " at the earliest");
    else if (!j->is_ended && j->facts.progress.has_eta_s)
        doc_textf(d, TONE_PLAIN, "%s%s left", before, text_seconds(left, j->facts.progress.eta_s));
}

/* ---- the table ---- */

void jobs_doc(struct doc *d, const json_t *jobs, double now_s)
{
    static const struct doc_column columns[] = {
        {.title = "ID", .is_number = true, .priority = 1},
        {.title = "NAME", .priority = 2, .most = NAME_COLUMNS},
        {.title = "STATE", .priority = 3},
        {.title = "MEMORY", .is_number = true, .priority = 5},
        {.title = "PEAK", .is_number = true, .priority = 6},
        {.title = "VERDICT", .priority = 8},
        {.title = "PROGRESS", .priority = 7},
        {.title = "TIME", .priority = 4},
        {.title = "WHY", .least = 1},
    };
    char cell[CELL_MAX], life[TEXT_TIME_MAX];
    size_t i;
    const json_t *doc;
    doc_table(d, NULL, "jobs", columns, sizeof columns / sizeof *columns);
    json_array_foreach(jobs, i, doc)
    {
        struct job_view j = job_read(doc);
        doc_row(d);
        doc_cellf(d, TONE_STRONG, "%lld", (long long)j.id);
        doc_cell(d, TONE_PLAIN, j.name);
        doc_cell(d, state_tone(&j), j.state);
        doc_cell(d, TONE_PLAIN,
                 cell_known(cell, j.facts.memory.has_job_bytes && !j.is_ended,
                            j.facts.memory.job_bytes));
        doc_cell(d, TONE_PLAIN,
                 cell_known(cell, j.facts.memory.has_peak_bytes, j.facts.memory.peak_bytes));
        doc_cell(d, TONE_PLAIN, j.facts.verdict.verdict);
        doc_cell(d, TONE_PLAIN, NULL);
        job_put_progress(d, &j.facts.progress);
        doc_cell(d, TONE_PLAIN, life_text(life, &j, now_s));
        doc_cell(d, TONE_PLAIN, NULL);
        job_put_reason(d, "", &j);
        codec_fini(job_codec, &j);
    }
}

/* ---- one job ---- */

static void job_put_size(struct doc *d, const char *what, bool has, uint64_t bytes)
{
    char size[TEXT_SIZE_MAX];
    if (has)
        doc_itemf(d, TONE_PLAIN, "%s%s", what, text_size(size, bytes));
}

static void job_put_command(struct doc *d, const struct job_view *j)
{
    doc_fact(d, "command");
    for (size_t i = 0; i < j->command_count; i++) {
        const char *word = j->command[i], *quote = !*word || strpbrk(word, " \t\n") ? "'" : "";
        doc_textf(d, TONE_PLAIN, "%s%s%s%s", i ? " " : "", quote, word, quote);
    }
}

static char *time_text(char out[TEXT_TIME_MAX], double s)
{
    time_t seconds = number_to_i64(s);
    struct tm tm;
    out[0] = '\0';
    if (s > 0 && s < 1e11 && localtime_r(&seconds, &tm))
        strftime(out, TEXT_TIME_MAX, "%Y-%m-%d %H:%M:%S", &tm);
    return out;
}

static void job_put_times(struct doc *d, const struct job_view *j, double now_s)
{
    const struct {
        const char *what;
        bool has;
        double s;
    } times[] = {{"submitted", j->has_submitted_s, j->submitted_s},
                 {"started", j->has_started_s, j->started_s},
                 {"ended", j->has_ended_s, j->ended_s}};
    char text[TEXT_TIME_MAX];
    doc_fact(d, "times");
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i].has)
            doc_itemf(d, TONE_PLAIN, "%s %s", times[i].what, time_text(text, times[i].s));
    if (life_text(text, j, now_s)[0])
        doc_itemf(d, TONE_PLAIN, "%s%s", strcmp(j->state, "queued") == 0 ? "waits for " : "", text);
}

/* Describes the source of the reserved memory. A word that only a newer server knows is returned
 * unchanged. */
static const char *reserved_from(const char *word)
{
    return strcmp(word, "declared") == 0  ? "declared by --memory"
           : strcmp(word, "limit") == 0   ? "equal to the limit"
           : strcmp(word, "learned") == 0 ? "the peak of earlier runs"
                                          : word;
}

static void job_put_memory(struct doc *d, const struct job_view *j)
{
    const struct job_memory *m = &j->facts.memory;
    doc_fact(d, "memory");
    job_put_size(d, "now ", m->has_job_bytes && !j->is_ended, m->job_bytes);
    job_put_size(d, "peak ", m->has_peak_bytes, m->peak_bytes);
    job_put_size(d, "unique ", m->has_unique_bytes, m->unique_bytes);
    job_put_size(d, "limit ", m->has_limit_bytes, m->limit_bytes);
    job_put_size(d, "headroom ", m->has_headroom_bytes && !j->is_ended, m->headroom_bytes);
    job_put_size(d, "GPU ", m->has_gpu_bytes, m->gpu_bytes);
    doc_fact(d, "reserved");
    job_put_size(d, "", j->has_memory_bytes, j->memory_bytes);
    if (j->memory_from[0])
        doc_itemf(d, TONE_PLAIN, "%s", reserved_from(j->memory_from));
}

static void job_put_pace(struct doc *d, const struct job_view *j)
{
    const struct job_progress *p = &j->facts.progress;
    char left[TEXT_TIME_MAX];
    doc_fact(d, "progress");
    doc_item(d);
    job_put_progress(d, p);
    if (p->has_epoch && p->has_step)
        doc_itemf(d, TONE_PLAIN, "epoch %.2f", p->epoch);
    if (p->has_steps_per_s)
        doc_itemf(d, TONE_PLAIN, "%.3g steps/s", p->steps_per_s);
    if (!j->is_ended && p->has_eta_s)
        doc_itemf(d, TONE_PLAIN, "%s left", text_seconds(left, p->eta_s));
}

void job_doc(struct doc *d, const json_t *job, double now_s)
{
    char time[TEXT_TIME_MAX];
    struct job_view j = job_read(job);
    const struct job_given_back *g = &j.facts.given_back;
    enum doc_tone tone = j.facts.verdict.leak ? TONE_BAD : TONE_PLAIN;
    doc_para(d, TONE_PLAIN);
    doc_textf(d, TONE_STRONG, "job %lld ", (long long)j.id);
    doc_name(d, TONE_STRONG, j.name ? j.name : "", j.name ? strlen(j.name) : 0, 60);
    doc_textf(d, state_tone(&j), " %s", j.state);
    job_put_reason(d, ": ", &j);
    job_put_command(d, &j);
    doc_fact(d, "folder");
    doc_text(d, TONE_PLAIN, j.cwd);
    doc_fact(d, "recording");
    doc_text(d, TONE_PLAIN, j.run_dir);
    job_put_times(d, &j, now_s);
    job_put_memory(d, &j);
    job_put_pace(d, &j);
    doc_fact(d, "verdict");
    doc_text(d, tone, j.facts.verdict.verdict);
    if (j.facts.verdict.sentence[0])
        doc_textf(d, tone, ": %s", j.facts.verdict.sentence);
    doc_fact(d, "released");
    job_put_size(d, "host ", g->has_host_bytes, g->host_bytes);
    job_put_size(d, "shared ", g->has_shm_bytes, g->shm_bytes);
    job_put_size(d, "GPU ", g->has_gpu_bytes, g->gpu_bytes);
    if (j.facts.has_given_back)
        doc_itemf(d, TONE_PLAIN, g->clean ? "complete" : "incomplete");
    for (size_t i = 0; i < j.change_count; i++) {
        doc_fact(d, i ? "" : "changes");
        doc_textf(d, TONE_PLAIN, "%s %s", time_text(time, j.changes[i].t_s), j.changes[i].state);
        if (j.changes[i].reason)
            doc_textf(d, TONE_PLAIN, ": %s", j.changes[i].reason);
    }
    codec_fini(job_codec, &j);
}

void job_end_text(struct buf *out, const json_t *job)
{
    char life[TEXT_TIME_MAX];
    struct job_view j = job_read(job);
    const char *why = j.reason ? j.reason : j.facts.has_cause ? j.facts.cause : NULL;
    text_escape(out, j.state, strlen(j.state));
    if (life_text(life, &j, 0)[0] && j.has_started_s)
        buf_printf(out, " after %s", life);
    if (why && strcmp(j.state, "succeeded") != 0) {
        buf_add_str(out, ": ");
        text_escape(out, why, strlen(why));
    }
    codec_fini(job_codec, &j);
}
