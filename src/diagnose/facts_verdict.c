/* What the judge said, put to the processes; and whose memory is the question. */
#include <math.h>
#include <string.h>

#include "diagnose/facts_private.h"

static const double late_least_bytes = 8 << 20, late_least_share = 0.05;

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static int64_t whole(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static void text(const json_t *o, const char *key, char *out, size_t size)
{
    const char *s = json_string_value(json_object_get(o, key));
    size_t len = s ? strnlen(s, size - 1) : 0;
    memcpy(out, s ? s : "", len);
    out[len] = '\0';
}

static bool parse_word(const json_t *o, enum verdict_word *ret)
{
    const char *word = json_string_value(json_object_get(o, "verdict"));
    for (int i = 0; word && i < VERDICT_WORDS; i++)
        if (strcmp(word, verdict_word_name((enum verdict_word)i)) == 0) {
            *ret = (enum verdict_word)i;
            return true;
        }
    return false;
}

static void parse(const json_t *o, struct facts_verdict *ret)
{
    const json_t *ended = json_object_get(o, "growth_ended");
    struct facts_verdict v = {.is_known = true};
    if (!parse_word(o, &v.word))
        return;
    v.leak = verdict_word_leak(v.word);
    v.per_step = number(json_object_get(o, "rate_bytes_per_step"), "value");
    v.per_min = number(json_object_get(o, "rate_bytes_per_min"), "value");
    v.has_ended = json_is_object(ended);
    v.ended_step = whole(ended, "step");
    text(ended, "at", v.ended_at, sizeof v.ended_at);
    text(o, "event", v.event, sizeof v.event);
    *ret = v;
}

static struct facts_process *find(const struct facts *f, const json_t *one)
{
    int64_t pid = whole(one, "pid"), ticks = whole(one, "start_ticks");
    for (size_t i = 0; i < f->n_processes; i++)
        if (f->processes[i].id.pid == pid &&
            (ticks < 0 || f->processes[i].id.start_ticks == (uint64_t)ticks))
            return &f->processes[i];
    return NULL;
}

/* That trains before any other, then by size. */
static bool is_better(const struct facts_process *p, const struct facts_process *best)
{
    bool trains = p->role == ROLE_MAIN, best_trains = best && best->role == ROLE_MAIN;
    if (isnan(p->peak_bytes))
        return false;
    if (!best || trains != best_trains)
        return !best || trains;
    return p->peak_bytes > best->peak_bytes;
}

/* By how much RSS rose in the second half of its life. */
static double late_growth(const struct facts_process *p)
{
    const struct facts_series *rss = &p->field[SAMPLE_RSS];
    if (rss->count == 0)
        return 0;
    double last_s = rss->t_s[rss->count - 1], middle_s = (rss->t_s[0] + last_s) / 2;
    return facts_most(rss, middle_s, last_s) - facts_at(rss, middle_s);
}

/* Workers are often too young to be judged: where the one that trains is flat, that which grows
 * most, and clearly, is the question. */
static const struct facts_process *growing_worker(const struct facts *f)
{
    const struct facts_process *best = NULL;
    if (!f->main || !f->main->verdict.is_known || !facts_has_ended(f->main->verdict.word))
        return f->main;
    for (size_t i = 0; i < f->n_processes; i++) {
        const struct facts_process *p = &f->processes[i];
        bool is_flat = p->verdict.is_known && facts_has_ended(p->verdict.word);
        double grown = late_growth(p);
        if (p->role == ROLE_DATA_WORKER && !is_flat && grown > late_least_bytes &&
            grown > late_least_share * p->peak_bytes && grown > 4 * late_growth(f->main) &&
            (!best || grown > late_growth(best)))
            best = p;
    }
    return best ? best : f->main;
}

/* Of several that which may grow. */
static void take_gpus(struct facts *f, const json_t *gpus)
{
    const json_t *one;
    size_t i;
    json_array_foreach(gpus, i, one)
    {
        struct facts_verdict v = {0};
        parse(one, &v);
        if (v.is_known && (!f->gpu.is_known || v.leak == VERDICT_LEAK_YES))
            f->gpu = v;
    }
}

void facts_take_verdict(struct facts *f, const json_t *verdict)
{
    const json_t *tree = json_object_get(verdict, "tree"), *one;
    size_t i;
    parse(tree, &f->tree);
    take_gpus(f, json_object_get(verdict, "gpus"));
    json_array_foreach(json_object_get(verdict, "processes"), i, one)
    {
        struct facts_process *p = find(f, one);
        if (p)
            parse(one, &p->verdict);
    }
    f->main = find(f, json_object_get(tree, "grower"));
    for (i = 0; !json_is_object(json_object_get(tree, "grower")) && i < f->n_processes; i++)
        if (is_better(&f->processes[i], f->main))
            f->main = &f->processes[i];
    if (!json_is_object(json_object_get(tree, "grower")))
        f->main = growing_worker(f);
}
