/* Judges recordings as live monitoring would: every minute, and at the end. */
#include "traces.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verdict/verdict.h"

enum { RUN_NAME = 128, INTERVALS = 4, LABELS = 256, READINGS = 4096 };

struct label {
    char run[RUN_NAME];
    unsigned n;
    double from[INTERVALS], to[INTERVALS];
};
struct hpc_run {
    char name[RUN_NAME];
    size_t n;
    double t[READINGS], y[READINGS];
};
static struct label labels[LABELS];
static struct hpc_run runs[LABELS];
static size_t n_labels, n_runs;

static FILE *open_in(const char *dir, const char *name)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "r");
    if (!f)
        printf("  %s is missing\n", path);
    return f;
}

/* Returns field N of a comma-separated line, or NULL if it is missing; the line is not modified. */
static const char *field(const char *line, int n)
{
    while (n-- > 0) {
        line = strchr(line, ',');
        if (!line)
            return NULL;
        line++;
    }
    return line;
}

static double number(const char *line, int n)
{
    const char *f = field(line, n);

    return f ? atof(f) : 0;
}

static void read_labels(FILE *f)
{
    char line[1024];

    if (!fgets(line, sizeof(line), f))
        return;
    while (n_labels < LABELS && fgets(line, sizeof(line), f)) {
        struct label *l = &labels[n_labels];
        const char *p = field(line, 3);

        snprintf(l->run, sizeof(l->run), "%.*s", (int)strcspn(line, ","), line);
        l->n = 0;
        while (p && *p >= '0' && *p <= '9' && l->n < INTERVALS) {
            char *end;

            l->from[l->n] = strtod(p, &end);
            l->to[l->n++] = strtod(end + 1, &end);
            p = *end == ';' ? end + 1 : end;
        }
        n_labels++;
    }
}

static void read_runs(FILE *f)
{
    char line[1024];

    if (!fgets(line, sizeof(line), f))
        return;
    while (fgets(line, sizeof(line), f)) {
        size_t len = strcspn(line, ",");
        const char *t = field(line, 1), *y = field(line, 2);
        struct hpc_run *r = n_runs ? &runs[n_runs - 1] : NULL;

        if (!t || !y || *y == ',')
            continue;
        if (!r || strlen(r->name) != len || memcmp(r->name, line, len) != 0) {
            if (n_runs == LABELS)
                return;
            r = &runs[n_runs++];
            snprintf(r->name, sizeof(r->name), "%.*s", (int)len, line);
            r->n = 0;
        }
        if (r->n < READINGS) {
            r->t[r->n] = atof(t);
            r->y[r->n++] = atof(y) * 1024;
        }
    }
}

static const struct label *label_of(const char *run)
{
    for (size_t i = 0; i < n_labels; i++)
        if (strcmp(labels[i].run, run) == 0)
            return &labels[i];
    return NULL;
}

struct hpc_score {
    unsigned clean, clean_alarmed, leaks, caught, early, n_delays;
    double delays[LABELS];
};

static void hpc_judge(const struct hpc_run *r, const struct label *l, double first_look,
                      const struct verdict_options *o, struct hpc_score *s, bool details)
{
    static struct verdict_series v;
    struct verdict_result res;
    double next = first_look, first = -1, to = 0;
    bool caught = false, alarmed = false, early = false;

    for (unsigned i = 0; i < l->n; i++)
        to = fmax(to, l->to[i]);
    verdict_init(&v, o);
    for (size_t i = 0; i < r->n; i++) {
        verdict_update(&v, (int64_t)(r->t[i] * 1e9), (uint64_t)r->y[i]);
        if (r->t[i] < next && i + 1 < r->n)
            continue;
        next += 60;
        verdict_judge(&v, NULL, &res);
        if (res.leak != VERDICT_LEAK_YES)
            continue;
        if (!alarmed && l->n == 0 && details)
            printf("    false: %s at %.0f s\n", r->name, r->t[i]);
        alarmed = true;
        if (l->n && r->t[i] < l->from[0])
            early = true;
        if (l->n && !caught && r->t[i] >= l->from[0] && r->t[i] <= to + 1) {
            caught = true;
            first = r->t[i] - l->from[0];
        }
    }
    if (l->n == 0) {
        s->clean++;
        s->clean_alarmed += alarmed;
        return;
    }
    s->leaks++;
    s->caught += caught;
    s->early += early;
    if (caught)
        s->delays[s->n_delays++] = first;
    if (!caught && details)
        printf("    missed: %s\n", r->name);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool hpc_load(const char *dir)
{
    char command[600];
    FILE *f = open_in(dir, "hpc-labels.csv");

    if (!f)
        return false;
    n_labels = n_runs = 0;
    read_labels(f);
    fclose(f);
    snprintf(command, sizeof(command), "gzip -dc '%s/hpc-runs.csv.gz'", dir);
    f = popen(command, "r");
    if (!f)
        return false;
    read_runs(f);
    pclose(f);
    return true;
}

static void hpc_bench(const char *dir, bool details)
{
    static const double RISES[] = {0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1};
    static const double LOOKS[] = {60, 75, 90, 105};

    if (!hpc_load(dir))
        return;
    printf(
        "\nhpc: %zu runs, judged every minute; trade-off over late_rise (default 0.2), four "
        "offsets of the minute\n"
        "  late_rise | clean runs ever alarmed | leaks caught in their interval | median delay\n",
        n_runs);
    for (size_t k = 0; k < sizeof(RISES) / sizeof(RISES[0]); k++) {
        for (size_t p = 0; p < 4; p++) {
            struct hpc_score s = {0};
            struct verdict_options o = {.late_rise = RISES[k]};
            bool tell = details && RISES[k] == 0.2;

            if (p && RISES[k] != 0.2)
                continue;
            for (size_t i = 0; i < n_runs; i++) {
                const struct label *l = label_of(runs[i].name);

                if (l)
                    hpc_judge(&runs[i], l, LOOKS[p], &o, &s, tell);
            }
            qsort(s.delays, s.n_delays, sizeof(double), compare);
            printf("  %9.2f | %2u of %2u                | %2u of %2u (%u alarmed before)       | "
                   "%.0f s%s\n",
                   RISES[k], s.clean_alarmed, s.clean, s.caught, s.leaks, s.early,
                   s.n_delays ? s.delays[s.n_delays / 2] : 0,
                   RISES[k] == 0.2 ? "   <- default" : "");
        }
    }
}

static void print_result(const char *name, const struct verdict_result *r, bool details)
{
    char text[VERDICT_TEXT_MAX];

    printf("  %-34s %-10s %.2f baseline %.0f -> %.0f MB", name, verdict_word_name(r->word),
           r->confidence, r->floor_first_bytes / 1e6, r->floor_last_bytes / 1e6);
    if (r->growth_ended.known)
        printf(", ended at %s %llu", verdict_boundary_name(r->growth_ended.at),
               r->growth_ended.has_step ? (unsigned long long)r->growth_ended.step : 0ull);
    if (r->rate_bytes_per_step.known)
        printf(", %.2f MB/step [%.2f, %.2f]", r->rate_bytes_per_step.value / 1e6,
               r->rate_bytes_per_step.low / 1e6, r->rate_bytes_per_step.high / 1e6);
    if (r->forecast.known && r->forecast.has_ceiling)
        printf(", ceiling %.0f MB at step %llu", r->forecast.ceiling_bytes / 1e6,
               (unsigned long long)r->forecast.decided_at_step);
    printf("%s\n", r->alarm ? " ALARM" : "");
    for (uint32_t i = 0; details && i < r->n_evidence; i++)
        printf("      %s\n", verdict_evidence_text(text, sizeof(text), &r->evidence[i]));
}

/* A table indexed by step is judged at every row, so that an early false alarm is not missed. */
static void table_bench(FILE *f, int run_col, int step_col, int value_col, int epoch_col,
                        const char *title, bool details)
{
    static struct verdict_series v;
    struct verdict_result res;
    char line[512], current[RUN_NAME] = "";
    unsigned ever = 0;
    bool open = false;

    if (!fgets(line, sizeof(line), f))
        return;
    for (;;) {
        bool more = fgets(line, sizeof(line), f) != NULL;
        const char *name = more && run_col >= 0 ? field(line, run_col) : title;
        size_t len = name ? strcspn(name, ",\n") : 0;

        if (!more || strlen(current) != len || memcmp(current, name, len) != 0) {
            struct verdict_options o = {0};

            if (open) {
                verdict_judge(&v, NULL, &res);
                print_result(current, &res, details);
                if (ever)
                    printf("    called a leak at %u prefixes\n", ever);
            }
            if (!more)
                return;
            if (epoch_col >= 0)
                o.steps_per_epoch = (uint64_t)number(line, epoch_col);
            snprintf(current, sizeof(current), "%.*s", (int)len, name);
            verdict_init(&v, &o);
            open = true;
            ever = 0;
        }
        verdict_update_step(&v, (uint64_t)number(line, step_col),
                            (uint64_t)(number(line, value_col) * 1e6));
        verdict_judge(&v, NULL, &res);
        ever += res.leak == VERDICT_LEAK_YES;
    }
}

struct mark_line {
    double t;
    struct verdict_mark m;
};

static bool mark_kind(const char *name, enum verdict_mark_kind *ret)
{
    size_t len = strcspn(name, "\"");

    for (int i = 0; i < VERDICT_MARK_KINDS; i++) {
        const char *known = verdict_mark_name((enum verdict_mark_kind)i);

        if (strlen(known) == len && memcmp(known, name, len) == 0) {
            *ret = (enum verdict_mark_kind)i;
            return true;
        }
    }
    return false;
}

static size_t read_marks(FILE *f, struct mark_line *marks, size_t max)
{
    char line[512];
    size_t n = 0;

    while (n < max && fgets(line, sizeof(line), f)) {
        const char *t = strstr(line, "\"t\":"), *k = strstr(line, "\"kind\": \"");
        const char *s = strstr(line, "\"step\":");
        enum verdict_mark_kind kind;

        if (!t || !k || !mark_kind(k + 9, &kind))
            continue;
        marks[n++] = (struct mark_line){
            atof(t + 4),
            {.kind = kind, .has_step = s != NULL, .step = s ? (uint64_t)atoll(s + 7) : 0}};
    }
    return n;
}

struct sample_line {
    double t, y;
    int pid;
};
enum { H200_ROWS = 60000, H200_MARKS = 4096, H200_PIDS = 64 };
static struct sample_line rows[H200_ROWS];
static struct mark_line h200_marks[H200_MARKS];

/* Judges one process up to step UNTIL_STEP, or with all rows if UNTIL_STEP is 0. */
static void h200_judge(int pid, size_t n, size_t n_marks, uint64_t per_epoch, uint64_t until_step,
                       bool use_marks, struct verdict_result *ret)
{
    static struct verdict_series v;
    struct verdict_options o = {.steps_per_epoch = per_epoch};
    size_t m = 0;
    bool stop = false;

    verdict_init(&v, &o);
    for (size_t i = 0; i < n && !stop; i++) {
        if (rows[i].pid != pid)
            continue;
        for (; use_marks && m < n_marks && h200_marks[m].t <= rows[i].t && !stop; m++) {
            const struct mark_line *k = &h200_marks[m];

            verdict_mark(&v, (int64_t)(k->t * 1e9), &k->m);
            stop = until_step && k->m.kind == VERDICT_MARK_STEP && k->m.step >= until_step;
        }
        if (!stop)
            verdict_update(&v, (int64_t)(rows[i].t * 1e9), (uint64_t)rows[i].y);
    }
    verdict_judge(&v, NULL, ret);
}

static void h200_tree(size_t n, size_t n_marks, const int *pids, size_t n_pids)
{
    static struct verdict_result results[H200_PIDS];
    struct verdict_member members[H200_PIDS];
    struct verdict_tree_result tree;

    for (size_t i = 0; i < n_pids; i++) {
        members[i] = (struct verdict_member){.result = &results[i], .role = i > 0, .alive = true};
        h200_judge(pids[i], n, n_marks, 0, 0, i == 0, &results[i]);
        for (size_t k = 0; k < n; k++)
            if (rows[k].pid == pids[i] && rows[k].y > 0)
                members[i].rss_bytes = rows[k].y;
    }
    verdict_tree_judge(members, n_pids, NULL, &tree);
    printf("  tree: %s %.2f, %zu growing", verdict_word_name(tree.word), tree.confidence,
           tree.growers);
    for (size_t i = 0; i < tree.n_flat; i++)
        printf("; %zu flat of role %d cost %.0f MB RSS", tree.flat[i].count, tree.flat[i].role,
               tree.flat[i].rss_bytes / 1e6);
    printf("; words:");
    for (size_t i = 0; i < n_pids; i++)
        printf(" %s", verdict_word_name(results[i].word));
    printf("\n");
}

static size_t h200_load(FILE *f, int *pids, size_t *n_pids)
{
    char line[256];
    size_t n = 0;

    *n_pids = 0;
    if (!fgets(line, sizeof(line), f))
        return 0;
    while (n < H200_ROWS && fgets(line, sizeof(line), f)) {
        size_t k = 0;

        rows[n] = (struct sample_line){atof(line), number(line, 2), (int)number(line, 1)};
        while (k < *n_pids && pids[k] != rows[n].pid)
            k++;
        if (k == *n_pids && *n_pids < H200_PIDS)
            pids[(*n_pids)++] = rows[n].pid;
        n++;
    }
    return n;
}

static void h200_bench(const char *dir, const char *name, bool details)
{
    static const uint64_t UNTIL[] = {10, 20, 40, 60, 75, 82, 84, 88, 95, 100, 120, 160};
    char file[128], title[64];
    int pids[H200_PIDS];
    size_t n, n_marks, n_pids;
    struct verdict_result res;
    FILE *f;

    snprintf(file, sizeof(file), "h200-%s.csv", name);
    f = open_in(dir, file);
    if (!f)
        return;
    n = h200_load(f, pids, &n_pids);
    fclose(f);
    snprintf(file, sizeof(file), "h200-%s.marks.jsonl", name);
    f = open_in(dir, file);
    if (!f || n_pids == 0)
        return;
    n_marks = read_marks(f, h200_marks, H200_MARKS);
    fclose(f);
    h200_judge(pids[0], n, n_marks, 0, 0, true, &res);
    print_result(name, &res, true);
    h200_judge(pids[0], n, n_marks, 0, 0, false, &res);
    snprintf(title, sizeof(title), "%s, no marks", name);
    print_result(title, &res, details);
    for (int known = 0; known < 2; known++) {
        printf("    until step%s:", known ? ", epoch length given" : "");
        for (size_t i = 0; i < sizeof(UNTIL) / sizeof(UNTIL[0]); i++) {
            h200_judge(pids[0], n, n_marks, known ? 83 : 0, UNTIL[i], true, &res);
            printf(" %llu %s", (unsigned long long)UNTIL[i], verdict_word_name(res.word));
        }
        printf("\n");
    }
    if (n_pids > 1)
        h200_tree(n, n_marks, pids, n_pids);
}

void traces_bench(const char *dir, bool details)
{
    FILE *f;

    hpc_bench(dir, details);
    printf("\nmodel-garden, by step, epoch length given\n");
    f = open_in(dir, "model-garden/first_epoch_fill_traces.csv");
    if (f) {
        table_bench(f, 0, 4, 5, 3, "", details);
        rewind(f);
        printf("  and without the epoch length\n");
        table_bench(f, 0, 4, 5, -1, "", false);
        fclose(f);
    }
    printf("\ntokenizers-1539, by step\n");
    f = open_in(dir, "tokenizers-1539.csv");
    if (f) {
        table_bench(f, -1, 0, 1, -1, "tokenizers-1539", details);
        fclose(f);
    }
    printf("\nh200\n");
    h200_bench(dir, "lazy-pil", details);
    h200_bench(dir, "leak-collator", details);
    h200_bench(dir, "compile", details);
}
