/* Benchmarks the verdict: ebb and common detectors on labelled curves and real recordings, in
 * one table. `verdict_bench [--quick] [--traces DIR] [--family NAME] [--cases] [--ebb-only]
 * [--ended]`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "baselines.h"
#include "ended.h"
#include "shapes.h"
#include "traces.h"
#include "verdict/verdict.h"

static struct shapes_run run; /* about 2 MB, too large for a stack */

/* The result of one detector on one run. */
struct outcome {
    int end;        /* 1: a leak; 0: no leak; -1: undecided */
    bool ever;      /* Whether the run was called a leak at any minute. */
    double first_s; /* Time of the first minute at which the run was called a leak. */
    bool has_rate, has_oom;
    double rate, oom_low, oom_high;
    bool alarm_end, alarm_ever; /* ebb's anytime-valid alarm, at the end or at any minute */
};

/* Clopper-Pearson interval, by bisection on the binomial tail. */
static double binomial_at_most(unsigned k, unsigned n, double p)
{
    double sum = 0;

    for (unsigned i = 0; i <= k; i++)
        sum += exp(lgamma(n + 1.0) - lgamma(i + 1.0) - lgamma(n - i + 1.0) + i * log(p) +
                   (n - i) * log1p(-p));
    return sum;
}
static double clopper_low(unsigned k, unsigned n)
{
    double low = 0, high = 1;

    for (int i = 0; k && i < 60; i++) {
        double p = (low + high) / 2;

        if (1 - binomial_at_most(k - 1, n, p) < 0.025)
            low = p;
        else
            high = p;
    }
    return k ? low : 0;
}
static double clopper_high(unsigned k, unsigned n)
{
    double low = 0, high = 1;

    for (int i = 0; k < n && i < 60; i++) {
        double p = (low + high) / 2;

        if (binomial_at_most(k, n, p) > 0.025)
            low = p;
        else
            high = p;
    }
    return k < n ? low : 1;
}
static const char *share(unsigned k, unsigned n)
{
    static char text[8][64];
    static unsigned at;
    char *out = text[at++ % 8];

    if (n == 0)
        snprintf(out, 64, "-");
    else
        snprintf(out, 64, "%5.1f%% [%4.1f,%5.1f] %u/%u", 100.0 * k / n, 100 * clopper_low(k, n),
                 100 * clopper_high(k, n), k, n);
    return out;
}

/* Judges a run with ebb every minute and at the end. */
static void run_ebb(const struct shapes_run *r, struct outcome *o, struct verdict_result *last,
                    bool each_minute)
{
    static struct verdict_series v;
    struct verdict_limit limit = {r->limit_bytes > 0, (uint64_t)r->limit_bytes, 0};
    double next = 60;
    size_t m = 0;

    verdict_init(&v, NULL);
    memset(o, 0, sizeof(*o));
    for (size_t i = 0; i < r->n; i++) {
        while (m < r->n_marks && r->marks[m].t <= r->t[i]) {
            verdict_mark(&v, (int64_t)(r->marks[m].t * 1e9), &r->marks[m].m);
            m++;
        }
        verdict_update(&v, (int64_t)(r->t[i] * 1e9), (uint64_t)r->y[i]);
        if (each_minute && r->t[i] >= next) {
            next += 60;
            verdict_judge(&v, &limit, last);
            o->alarm_ever |= last->alarm;
            if (last->leak == VERDICT_LEAK_YES && !o->ever) {
                o->ever = true;
                o->first_s = r->t[i];
            }
        }
    }
    verdict_judge(&v, &limit, last);
    o->end = last->leak == VERDICT_LEAK_YES ? 1 : last->leak == VERDICT_LEAK_NO ? 0 : -1;
    o->ever |= o->end == 1;
    o->alarm_end = last->alarm;
    o->alarm_ever |= last->alarm;
    o->has_rate = last->rate_bytes_per_min.known;
    o->rate = last->rate_bytes_per_min.value / 60;
    o->has_oom = last->oom.known && last->oom.has_t;
    o->oom_low = last->oom.eta_s_low;
    o->oom_high = last->oom.eta_s_high;
}

static void run_baseline(enum baseline b, const struct shapes_run *r, struct outcome *o)
{
    double next = 60;

    memset(o, 0, sizeof(*o));
    for (size_t i = 0; i < r->n; i++)
        if (r->t[i] >= next) {
            next += 60;
            if (!o->ever && baseline_says_leak(b, r->t, r->y, i + 1, r->limit_bytes)) {
                o->ever = true;
                o->first_s = r->t[i];
            }
        }
    o->end = baseline_says_leak(b, r->t, r->y, r->n, r->limit_bytes);
    o->ever |= o->end == 1;
}

/* Counters over a set of runs. */
struct score {
    unsigned benign, false_end, false_ever, benign_open;
    unsigned leaks, caught, missed_open; /* Leaking runs in which the leak can be recognised. */
    /* Leaking runs that are too short for the leak to be distinguished from other growth. */
    unsigned hard, hard_open, hard_caught;
    /* Runs called a leak although their first epoch was still running. */
    unsigned before_pass;
    unsigned marked, marked_ever; /* Benign runs with marks. */
    unsigned alarm_end, alarm_ever, alarm_caught;
    unsigned rates, rates_good, ooms, ooms_in, ooms_early, ooms_late;
    double delays[4096], rate_errors[4096];
    unsigned n_delays;
};

static void score_add(struct score *s, const struct shapes_run *r, const struct outcome *o)
{
    if (!r->leak) {
        s->benign++;
        s->false_end += o->end == 1;
        s->false_ever += o->ever;
        s->benign_open += o->end == -1;
        s->marked += r->marked;
        s->marked_ever += r->marked && o->ever;
        s->alarm_end += o->alarm_end;
        s->alarm_ever += o->alarm_ever;
        return;
    }
    if (!r->identifiable) {
        s->hard++;
        s->hard_open += o->end == -1;
        s->hard_caught += o->end == 1;
        return;
    }
    s->leaks++;
    s->caught += o->end == 1;
    s->missed_open += o->end == -1;
    s->alarm_caught += o->alarm_end;
    if (o->end == 1 && s->n_delays < 4096 && o->first_s > 0)
        s->delays[s->n_delays++] = o->first_s - r->onset_s;
    if (o->end == 1 && o->has_rate && s->rates < 4096) {
        s->rate_errors[s->rates++] = fabs(o->rate / r->rate - 1);
        s->rates_good += fabs(o->rate / r->rate - 1) <= 0.15;
    }
    if (o->end == 1 && o->has_oom && isfinite(r->oom_s)) {
        double eta = r->oom_s - r->t[r->n - 1];

        s->ooms++;
        s->ooms_in += eta >= o->oom_low && eta <= o->oom_high;
        s->ooms_early += eta < o->oom_low;
        s->ooms_late += eta > o->oom_high;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}
static double median(double *a, unsigned n)
{
    qsort(a, n, sizeof(*a), compare);
    return n ? a[n / 2] : 0;
}

static void score_print(const char *name, struct score *s)
{
    printf("%-24s | %-26s | %-26s | %-28s | %7.0f s | %5.1f%% | ", name,
           share(s->false_end, s->benign), share(s->false_ever, s->benign),
           share(s->caught, s->leaks), median(s->delays, s->n_delays),
           s->benign + s->leaks ? 100.0 * (s->benign_open + s->missed_open) / (s->benign + s->leaks)
                                : 0);
    if (s->rates)
        printf("%4.1f%% (%4.1f%% within 15%%) | ", 100 * median(s->rate_errors, s->rates),
               100.0 * s->rates_good / s->rates);
    else
        printf("- | ");
    printf("%s\n", share(s->ooms_in, s->ooms));
}

struct options {
    bool quick, cases, tune_only, ended, ebb_only;
    const char *traces, *family;
    uint64_t seed0;
    unsigned seeds;
};

static void print_case(size_t f, uint64_t seed, const struct shapes_run *r, const struct outcome *o,
                       const struct verdict_result *last)
{
    char text[VERDICT_TEXT_MAX];
    bool wrong = r->leak ? o->end != 1 && r->identifiable : o->ever;

    if (!wrong)
        return;
    printf("  %s seed %llu %s len %.0f dt %.1f: %s%s first %.0f fill-end %.0f growth %.2f: ",
           shapes_name(f), (unsigned long long)seed, r->marked ? "marked" : "bare", r->t[r->n - 1],
           r->dt, verdict_word_name(last->word), o->ever ? " EVER" : "", o->first_s, r->fill_end_s,
           r->growth / r->y[r->n / 8]);
    for (uint32_t i = 0; i < last->n_evidence && i < 4; i++)
        printf("[%s] ", verdict_evidence_text(text, sizeof(text), &last->evidence[i]));
    printf("\n");
}

static void bench_families(const struct options *opt)
{
    static struct score ebb[2], base[BASELINES][2], family;
    struct verdict_result last;
    struct outcome o;
    bool has_baselines = !opt->family && !opt->tune_only && !opt->ebb_only;

    printf("By family (ebb; false alarms at the end and ever, or leaks caught; n undecided)\n");
    for (size_t f = 0; f < shapes_count(); f++) {
        memset(&family, 0, sizeof(family));
        if ((opt->family && strcmp(opt->family, shapes_name(f)) != 0) ||
            (opt->tune_only && shapes_is_test(f)))
            continue;
        for (uint64_t seed = opt->seed0; seed < opt->seed0 + opt->seeds; seed++) {
            unsigned set = shapes_is_test(f);

            shapes_draw(f, seed, &run);
            run_ebb(&run, &o, &last, true);
            score_add(&ebb[set], &run, &o);
            score_add(&family, &run, &o);
            if (o.first_s > 0 && o.first_s < run.fill_end_s && run.marked &&
                run.marks[0].m.steps_per_epoch) {
                ebb[set].before_pass++;
                family.before_pass++;
            }
            if (opt->cases)
                print_case(f, seed, &run, &o, &last);
            for (int b = 0; has_baselines && b < BASELINES; b++) {
                run_baseline((enum baseline)b, &run, &o);
                score_add(&base[b][set], &run, &o);
            }
        }
        if (shapes_is_leak(f))
            printf(
                "  %-20s %-4s caught %-30s open %-3u hard: open %u caught %u of %u; in epoch %u; "
                "rate ok %u/%u; oom in %u (early %u late %u) of %u; delay %.0f s\n",
                shapes_name(f), shapes_is_test(f) ? "test" : "tune",
                share(family.caught, family.leaks), family.missed_open, family.hard_open,
                family.hard_caught, family.hard, family.before_pass, family.rates_good,
                family.rates, family.ooms_in, family.ooms_early, family.ooms_late, family.ooms,
                median(family.delays, family.n_delays));
        else
            printf("  %-20s %-4s end %-30s ever %-30s open %u; in epoch %u\n", shapes_name(f),
                   shapes_is_test(f) ? "test" : "tune", share(family.false_end, family.benign),
                   share(family.false_ever, family.benign), family.benign_open, family.before_pass);
    }
    for (unsigned set = 0; set < 2; set++) {
        printf("\n%s families\n%-24s | %-26s | %-26s | %-28s | %9s | %6s | %-24s | %s\n",
               set ? "TEST" : "TUNE", "detector", "false alarms at the end", "ever, each minute",
               "recall (identifiable)", "delay", "open", "rate error, median", "90% OOM covers");
        score_print("ebb verdict", &ebb[set]);
        printf("%-24s | %-26s | %-26s | %-28s |\n", "ebb alarm at 1 %",
               share(ebb[set].alarm_end, ebb[set].benign),
               share(ebb[set].alarm_ever, ebb[set].benign),
               share(ebb[set].alarm_caught, ebb[set].leaks));
        printf(
            "  ever alarmed with marks %s, without %s\n",
            share(ebb[set].marked_ever, ebb[set].marked),
            share(ebb[set].false_ever - ebb[set].marked_ever, ebb[set].benign - ebb[set].marked));
        printf("  not identifiable: %u of %u left open, %u called; leak called inside a marked "
               "first epoch: %u\n",
               ebb[set].hard_open, ebb[set].hard, ebb[set].hard_caught, ebb[set].before_pass);
        for (int b = 0; has_baselines && b < BASELINES; b++)
            score_print(baseline_name((enum baseline)b), &base[b][set]);
    }
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench_speed(void)
{
    static struct verdict_series v;
    struct verdict_result r;
    struct verdict_limit limit = {true, 64ull << 30, 0};
    double t0 = now_s(), t1, t2;
    unsigned n = 1000000, judgements = 500;
    uint32_t x = 1;

    verdict_init(&v, NULL);
    for (unsigned i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        verdict_update(&v, (int64_t)i * 1000000000, 4000000000u + 1000ull * i + (x >> 8));
    }
    verdict_judge(&v, &limit, &r);
    t1 = now_s();
    for (unsigned i = 0; i < judgements; i++)
        verdict_judge(&v, &limit, &r);
    t2 = now_s();
    printf("\nSpeed: a million samples and a verdict (%s) in %.1f ms (%.0f ns/sample); one "
           "judgement %.0f us; judged every 60 samples: %.2f us/sample; state %zu bytes\n",
           verdict_word_name(r.word), 1e3 * (t1 - t0), 1e9 * (t1 - t0) / n,
           1e6 * (t2 - t1) / judgements, 1e6 * ((t1 - t0) / n + (t2 - t1) / judgements / 60),
           sizeof(v));
}

int main(int argc, char **argv)
{
    struct options opt = {.traces = "../shared/traces", .seed0 = 50000, .seeds = 100};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            opt.quick = true;
        else if (strcmp(argv[i], "--cases") == 0)
            opt.cases = true;
        else if (strcmp(argv[i], "--ebb-only") == 0)
            opt.ebb_only = true;
        else if (strcmp(argv[i], "--ended") == 0)
            opt.ended = true;
        else if (strcmp(argv[i], "--tune") == 0)
            opt.tune_only = true;
        else if (strcmp(argv[i], "--traces") == 0 && i + 1 < argc)
            opt.traces = argv[++i];
        else if (strcmp(argv[i], "--family") == 0 && i + 1 < argc)
            opt.family = argv[++i];
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            opt.seeds = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--seed0") == 0 && i + 1 < argc)
            opt.seed0 = (uint64_t)atoll(argv[++i]);
        else {
            fprintf(stderr, "verdict_bench: unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (opt.quick)
        opt.seeds = 12;
    if (opt.ended) {
        ended_bench(opt.seed0, opt.seeds, opt.family);
        return 0;
    }
    bench_families(&opt);
    if (!opt.family) {
        traces_bench(opt.traces, opt.cases);
        bench_speed();
    }
    return 0;
}
