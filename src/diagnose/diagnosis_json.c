/* Converts the diagnosis to JSON and back, using tables of fields. */
#include "diagnose/diagnosis.h"

#include "base/codec.h"

static const struct codec frame_fields[] = {
    CODEC_OWNED(struct profile_frame, function, "function", CODEC_OR_NULL),
    CODEC_OWNED(struct profile_frame, file, "file", CODEC_OR_NULL),
    CODEC_NULL(struct profile_frame, line, "line", CODEC_UINT),
    CODEC_OWNED(struct profile_frame, lib, "lib", CODEC_OR_NULL),
    {0},
};

static const struct codec site_fields[] = {
    CODEC_FLAT(struct diagnosis_site, where, frame_fields),
    CODEC_PART_HAS(struct diagnosis_site, in_program, "in_program", frame_fields, CODEC_OR_NULL),
    CODEC_FIELD(struct diagnosis_site, where.is_own, "own", CODEC_BOOL),
    CODEC_OPTION(struct diagnosis_site, place_count, "place_count", CODEC_UINT),
    {0},
};

static const struct codec part_fields[] = {
    CODEC_OWNED(struct diagnosis_part, kind, "kind", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_part, what, "what", CODEC_OR_NULL),
    CODEC_PART_HAS(struct diagnosis_part, site, "site", site_fields, CODEC_OR_NULL),
    CODEC_NULL(struct diagnosis_part, start_bytes, "start_bytes", CODEC_INT),
    CODEC_NULL(struct diagnosis_part, now_bytes, "now_bytes", CODEC_INT),
    CODEC_NULL(struct diagnosis_part, low_bytes, "low_bytes", CODEC_INT),
    CODEC_NULL(struct diagnosis_part, high_bytes, "high_bytes", CODEC_INT),
    CODEC_NULL(struct diagnosis_part, growth_bytes, "growth_bytes", CODEC_INT),
    {0},
};

static const struct codec ledger_fields[] = {
    CODEC_NULL(struct diagnosis_ledger, start_s, "start_s", CODEC_REAL),
    CODEC_NULL(struct diagnosis_ledger, now_s, "now_s", CODEC_REAL),
    CODEC_NULL(struct diagnosis_ledger, rss_start_bytes, "rss_start_bytes", CODEC_INT),
    CODEC_NULL(struct diagnosis_ledger, rss_now_bytes, "rss_now_bytes", CODEC_INT),
    CODEC_MANY(struct diagnosis_ledger, parts, n_parts, "entries", part_fields, CODEC_REQUIRED),
    CODEC_NULL(struct diagnosis_ledger, named_growth_share, "named_growth_share", CODEC_REAL),
    {0},
};

static const struct codec hypothesis_fields[] = {
    CODEC_OWNED(struct diagnosis_hypothesis, key, "key", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_hypothesis, code, "code", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_hypothesis, title, "title", CODEC_OR_NULL),
    CODEC_NAMED(struct diagnosis_hypothesis, word, "word", hypothesis_words),
    CODEC_NULL(struct diagnosis_hypothesis, log_odds, "log_odds", CODEC_REAL),
    CODEC_NULL(struct diagnosis_hypothesis, share, "share", CODEC_REAL),
    CODEC_WORDS(struct diagnosis_hypothesis, pro, n_pro, "for", CODEC_REQUIRED),
    CODEC_WORDS(struct diagnosis_hypothesis, contra, n_contra, "against", CODEC_REQUIRED),
    CODEC_WORDS(struct diagnosis_hypothesis, absent, n_absent, "absent", CODEC_REQUIRED),
    CODEC_OWNED(struct diagnosis_hypothesis, decide, "decide", CODEC_OR_NULL),
    CODEC_PART_HAS(struct diagnosis_hypothesis, site, "site", site_fields, CODEC_OR_NULL),
    {0},
};

static const struct codec advice_fields[] = {
    CODEC_OWNED(struct diagnosis_advice, because, "because", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_advice, what, "what", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_advice, effect, "effect", CODEC_OR_NULL),
    {0},
};

static const struct codec container_fields[] = {
    CODEC_OWNED(struct diagnosis_container, name, "name", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_container, type, "type", CODEC_OR_NULL),
    CODEC_FIELD(struct diagnosis_container, added, "added", CODEC_UINT),
    CODEC_FIELD(struct diagnosis_container, bytes, "bytes", CODEC_UINT),
    CODEC_NULL(struct diagnosis_container, since_step, "since_step", CODEC_INT),
    CODEC_NULL(struct diagnosis_container, step, "step", CODEC_INT),
    CODEC_OWNED(struct diagnosis_container, text, "text", CODEC_OR_NULL),
    {0},
};

static const struct codec process_fields[] = {
    CODEC_FIELD(struct diagnosis_process, pid, "pid", CODEC_INT),
    CODEC_OWNED(struct diagnosis_process, name, "name", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_process, role, "role", CODEC_OR_NULL),
    CODEC_OWNED(struct diagnosis_process, verdict, "verdict", CODEC_OR_NULL),
    CODEC_NULL(struct diagnosis_process, peak_bytes, "peak_bytes", CODEC_INT),
    {0},
};

static const struct codec diagnosis_fields[] = {
    CODEC_FIELD(struct diagnosis, format, "format", CODEC_UINT),
    CODEC_OWNED(struct diagnosis, verdict, "verdict", CODEC_OR_NULL),
    CODEC_PART_HAS(struct diagnosis, process, "process", process_fields, CODEC_OR_NULL),
    CODEC_FIELD(struct diagnosis, is_running, "running", CODEC_BOOL),
    CODEC_FIELD(struct diagnosis, has_grown, "grew", CODEC_BOOL),
    CODEC_NULL(struct diagnosis, growth_bytes, "growth_bytes", CODEC_INT),
    CODEC_PART_HAS(struct diagnosis, ledger, "ledger", ledger_fields, CODEC_OR_NULL),
    CODEC_MANY(struct diagnosis, hypotheses, n_hypotheses, "hypotheses", hypothesis_fields,
               CODEC_REQUIRED),
    CODEC_MANY(struct diagnosis, advice, n_advice, "advice", advice_fields, CODEC_REQUIRED),
    CODEC_MANY(struct diagnosis, kept_by, n_kept_by, "kept_by", container_fields, CODEC_REQUIRED),
    CODEC_WORDS(struct diagnosis, absent, n_absent, "absent", CODEC_REQUIRED),
    {0},
};

static const struct codec brief_fields[] = {
    CODEC_OWNED(struct diagnosis, verdict, "verdict", CODEC_OR_NULL),
    CODEC_MANY(struct diagnosis, hypotheses, n_hypotheses, "hypotheses", hypothesis_fields,
               CODEC_REQUIRED),
    CODEC_MANY(struct diagnosis, advice, n_advice, "advice", advice_fields, CODEC_REQUIRED),
    {0},
};

json_t *diagnosis_json(const struct diagnosis *d)
{
    return codec_json(diagnosis_fields, d);
}

json_t *diagnosis_brief_json(const struct diagnosis *d)
{
    struct diagnosis first = *d;
    first.n_hypotheses = first.n_hypotheses ? 1 : 0;
    return codec_json(brief_fields, &first);
}

int diagnosis_read(const json_t *doc, struct diagnosis *ret, struct err *err)
{
    *ret = (struct diagnosis){0};
    return codec_read(diagnosis_fields, doc, ret, err);
}

void diagnosis_fini(struct diagnosis *d)
{
    codec_fini(diagnosis_fields, d);
}
