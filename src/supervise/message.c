/* Codecs for all types of messages. */
#include "supervise/message.h"

#include <stdio.h>
#include <string.h>

#include "base/codec.h"
#include "verdict/verdict.h"

/* Members have the same names as their JSON keys. Absent members are written as null. */
#define TEXT(s, m) CODEC_FIELD(struct job_message_##s, m, #m, CODEC_TEXT)
#define TIME(s) CODEC_FIELD(struct job_message_##s, t_s, "t_s", CODEC_REAL)
#define OR_NULL(s, m, type) CODEC_NULL(struct job_message_##s, m, #m, CODEC_##type)
#define PART(s, m, of) CODEC_PART_HAS(struct job_message_##s, m, #m, of, CODEC_OR_NULL)

static const char *const type_names[] = {[MESSAGE_OTHER] = "",      [MESSAGE_SAMPLE] = "sample",
                                         [MESSAGE_MARK] = "mark",   [MESSAGE_VERDICT] = "verdict",
                                         [MESSAGE_EVENT] = "event", [MESSAGE_LOG] = "log",
                                         [MESSAGE_STATE] = "state", [MESSAGE_ANSWER] = "answer",
                                         [MESSAGE_SPARK] = "spark", NULL};

static const struct codec gpu_codec[] = {
    CODEC_FIELD(struct job_message_gpu, index, "index", CODEC_INT),
    OR_NULL(gpu, job_bytes, UINT),
    OR_NULL(gpu, used_bytes, UINT),
    {0}};
static const struct codec process_codec[] = {
    CODEC_FIELD(struct job_message_process, pid, "pid", CODEC_INT),
    TEXT(process, name),
    TEXT(process, role),
    OR_NULL(process, rss_bytes, UINT),
    OR_NULL(process, unique_bytes, UINT),
    {0}};

static const struct codec sample_codec[] = {
    TIME(sample),
    OR_NULL(sample, job_bytes, UINT),
    OR_NULL(sample, unique_bytes, UINT),
    OR_NULL(sample, rss_sum_bytes, UINT),
    OR_NULL(sample, limit_bytes, UINT),
    OR_NULL(sample, headroom_bytes, UINT),
    OR_NULL(sample, step, INT),
    CODEC_MANY(struct job_message_sample, gpus, gpu_count, "gpus", gpu_codec, CODEC_REQUIRED),
    CODEC_MANY(struct job_message_sample, processes, process_count, "processes", process_codec,
               CODEC_REQUIRED),
    {0}};
static const struct codec state_codec[] = {TEXT(state, state),
                                           OR_NULL(state, reason, TEXT),
                                           OR_NULL(state, pid, INT),
                                           OR_NULL(state, segment, INT),
                                           OR_NULL(state, started_s, REAL),
                                           OR_NULL(state, log_bytes, UINT),
                                           OR_NULL(state, limit_bytes, UINT),
                                           PART(state, progress, job_progress_codec),
                                           PART(state, verdict, job_verdict_codec),
                                           OR_NULL(state, peak_bytes, UINT),
                                           {0}};
static const struct codec mark_codec[] = {
    TIME(mark), TEXT(mark, kind), OR_NULL(mark, step, INT), OR_NULL(mark, epoch, REAL), {0}};
static const struct codec verdict_codec[] = {
    TIME(verdict), PART(verdict, verdict, job_verdict_codec), {0}};
static const struct codec event_codec[] = {TIME(event), TEXT(event, act), TEXT(event, why), {0}};
static const struct codec log_codec[] = {OR_NULL(log, bytes, UINT), {0}};
static const struct codec answer_codec[] = {
    CODEC_FIELD(struct job_message_answer, request, "do", CODEC_TEXT),
    CODEC_FIELD(struct job_message_answer, ok, "ok", CODEC_BOOL),
    OR_NULL(answer, error, TEXT),
    {0}};
static const struct codec request_codec[] = {
    CODEC_FIELD(struct job_request, action, "do", CODEC_TEXT),
    CODEC_OPTION(struct job_request, reason, "reason", CODEC_TEXT),
    CODEC_OPTION(struct job_request, grace_s, "grace_s", CODEC_REAL),
    {0}};
static const struct codec no_members[] = {{0}};

static const struct codec type_codec[] = {CODEC_NAMED(struct job_message, type, "type", type_names),
                                          {0}};
/* Codecs for the union's members, which all begin at the same offset. */
static const struct codec *const codecs[MESSAGE_TYPES] = {
    [MESSAGE_OTHER] = no_members,  [MESSAGE_SAMPLE] = sample_codec,
    [MESSAGE_MARK] = mark_codec,   [MESSAGE_VERDICT] = verdict_codec,
    [MESSAGE_EVENT] = event_codec, [MESSAGE_LOG] = log_codec,
    [MESSAGE_STATE] = state_codec, [MESSAGE_ANSWER] = answer_codec,
    [MESSAGE_SPARK] = no_members};

json_t *job_request_json(const struct job_request *request)
{
    return codec_json(request_codec, request);
}

void job_request_read(const json_t *doc, struct job_request *ret)
{
    *ret = (struct job_request){0};
    /* cannot fail, because a request has no allocated members */
    (void)codec_read(request_codec, doc, ret, NULL);
}

json_t *job_message_json(const struct job_message *m)
{
    json_t *doc = codec_json(type_codec, m);
    if (doc && codec_put(codecs[m->type], &m->sample, doc) == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

int job_message_read(const json_t *doc, struct job_message *ret)
{
    memset(ret, 0, sizeof *ret); /* {0} would zero only the union's first member */
    int r = codec_read(type_codec, doc, ret, NULL);
    return r < 0 ? r : codec_read(codecs[ret->type], doc, &ret->sample, NULL);
}

void job_message_fini(struct job_message *m)
{
    codec_fini(codecs[m->type], &m->sample);
}

struct job_verdict job_verdict_of(const struct verdict_result *r, const char *sentence)
{
    struct job_verdict v = {
        .has_leak = r->leak != VERDICT_LEAK_UNKNOWN,
        .leak = r->leak == VERDICT_LEAK_YES,
        .has_confidence = true,
        .confidence = r->confidence,
        .has_rate_bytes_per_min = r->rate_bytes_per_min.known,
        .rate_bytes_per_min = r->rate_bytes_per_min.value,
        .has_rate_bytes_per_step = r->rate_bytes_per_step.known,
        .rate_bytes_per_step = r->rate_bytes_per_step.value,
        .has_oom_eta_s = r->oom.known && r->oom.has_t,
        .oom_eta_s = {true, true, r->oom.eta_s_low, r->oom.eta_s_high},
        .has_sentence = sentence && sentence[0],
    };
    snprintf(v.verdict, sizeof v.verdict, "%s", verdict_word_name(r->word));
    snprintf(v.sentence, sizeof v.sentence, "%s", sentence ? sentence : "");
    return v;
}
