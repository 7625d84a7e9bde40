/* What to do: only what the evidence calls for, and with this run's own figures. */
#include "diagnose/advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* A planned restart leaves this part of the limit for the spikes of a step. */
static const double restart_share = 0.8;
static const double least_share = 0.15;

struct list {
    struct advice *at;
    size_t count;
};

__attribute__((format(printf, 3, 4))) static struct advice *
add(struct list *l, enum hypothesis_id because, const char *fmt, ...)
{
    static struct advice none;
    va_list ap;
    struct advice *a = l->count < ADVICE_MAX ? &l->at[l->count++] : &none;
    *a = (struct advice){.because = because};
    va_start(ap, fmt);
    vsnprintf(a->what, sizeof a->what, fmt, ap);
    va_end(ap);
    return a;
}

__attribute__((format(printf, 2, 3))) static void effect(struct advice *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->effect, sizeof a->effect, fmt, ap);
    va_end(ap);
}

/* ---- one hypothesis each ---- */

static const char *site_text(char out[PLACE_MAX], const struct hypothesis *h)
{
    return h->site ? place_text(out, h->site) : "";
}

static void a_step_less(const struct question *q, const struct hypothesis *h, struct advice *a)
{
    struct sizes s;
    double rate = q->f->main->verdict.per_step;
    if (h->site && h->site->verdict.rate_bytes_per_step.known)
        rate = h->site->verdict.rate_bytes_per_step.value;
    if (rate > 0)
        effect(a, "%s a step less", size_of(&s, 0, rate));
}

/* Images are what a first pass most often decodes: said where the call site tells. */
static bool is_image(const struct hypothesis *h)
{
    const struct name *native = h->site ? h->site->native : NULL;
    const char *file = h->site ? h->site->name->file : NULL;
    return (native && ((native->lib && strstr(native->lib, "imaging")) ||
                       (native->function && strstr(native->function, "Imaging")))) ||
           (file && strstr(file, "/PIL/"));
}

static void advise_first_touch(const struct question *q, const struct hypothesis *h, struct list *l)
{
    char place[PLACE_MAX];
    struct sizes s;
    if (h->site && h->site == ledger_site(q->l, LEDGER_TOUCHED)) {
        add(l, h->id,
            "this is no leak: %s was asked for at once at %s, and becomes resident as it is "
            "written to. To need less, ask for less",
            size_of(&s, 0, h->site->live_bytes), site_text(place, h));
        return;
    }
    struct advice *a =
        add(l, h->id,
            "this is no leak. To need less, make each example when it is asked for and do not "
            "keep it%s%s%s",
            h->site ? ": " : "", site_text(place, h),
            is_image(h) ? "; for images ebb.data.LazyImages(paths, budget=…) does so" : "");
    if (h->word != POSSIBLE)
        effect(a, "%s less", size_of(&s, 0, h->share * q->total));
}

static void advise_keeper(const struct question *q, const struct hypothesis *h, struct list *l)
{
    char place[PLACE_MAX];
    const struct kept_list *kept = kept_of(&q->f->kept, q->f->main->id.pid);
    a_step_less(q, h,
                kept ? add(l, h->id, "let go of what %s makes: %s keeps it", site_text(place, h),
                           kept->at[0].name)
                     : add(l, h->id, "see who keeps what %s makes: a list, a cache, a closure",
                           site_text(place, h)));
}

static void advise_graph(const struct question *q, const struct hypothesis *h, struct list *l)
{
    char place[PLACE_MAX];
    a_step_less(q, h,
                add(l, h->id,
                    "keep numbers, not tensors with their graph: loss.item() or "
                    "loss.detach()%s%s",
                    h->site ? "; the graph is made at " : "", site_text(place, h)));
}

/* "__main__.history[14]['batch']", where the census found a way to it. */
static void advise_census(const struct question *q, const struct hypothesis *h, struct list *l)
{
    const json_t *one = json_array_get(json_object_get(q->f->census_last, "largest"), 0);
    const char *what = json_string_value(json_object_get(one, "what"));
    const char *chain = json_string_value(json_object_get(one, "chain"));
    if (what && chain && strncmp(chain, "…", strlen("…")) != 0 && !strstr(chain, "nothing that gc"))
        a_step_less(q, h, add(l, h->id, "let go of %.100s, held by %.200s", what, chain));
    else
        a_step_less(q, h, add(l, h->id, "ask the running job who holds them: ebb census PID"));
}

static void advise_eval(const struct question *q, const struct hypothesis *h, struct list *l)
{
    struct sizes s;
    struct advice *a =
        add(l, h->id,
            h->id == HYPOTHESIS_EVAL_STEP
                ? "let go of what each evaluation or checkpoint makes: predictions, "
                  "figures, copies of the state"
                : "no leak. Where the spike is too high, do not gather everything an "
                  "evaluation makes (Hugging Face: batch_eval_metrics=True, "
                  "preprocess_logits_for_metrics)");
    if (h->id == HYPOTHESIS_EVAL_STEP)
        effect(a, "%s less by now", size_of(&s, 0, h->share * q->total));
}

static void advise_retention(const struct question *q, const struct hypothesis *h, struct list *l)
{
    struct sizes s;
    double kept = 0;
    const struct growth_row *row = keeper(q, &kept);
    bool leaves_holes = row && kept > 0.2 * q->growth && made_by_torch(&q->f->heap, row);
    effect(add(l, h->id,
               leaves_holes
                   ? "the memory is free, but lies in holes between what is kept: torch asks for "
                     "aligned pieces, and glibc cannot use the hole of one for another of its "
                     "size. MALLOC_MMAP_THRESHOLD_=131072 gives large ones back, so does another "
                     "allocator"
                   : "the memory is free, but not given back: fewer arenas "
                     "(MALLOC_ARENA_MAX=2), a trim now and then (MemoryCleanup(trim=True)), or "
                     "another allocator"),
           "at most %s less", size_of(&s, 0, h->share * q->total));
}

static double unique_of(const struct facts *f, enum process_role role)
{
    double sum = 0;
    for (size_t i = 0; i < f->n_processes; i++) {
        double unique = facts_at(&f->processes[i].field[SAMPLE_UNIQUE], f->now_s);
        if (f->processes[i].role == role && f->processes[i].died_s >= f->now_s && unique > 0)
            sum += unique;
    }
    return sum;
}

static void advise_workers(const struct question *q, const struct hypothesis *h, struct list *l)
{
    struct sizes s;
    double compile = unique_of(q->f, ROLE_COMPILE_WORKER), data = unique_of(q->f, ROLE_DATA_WORKER);
    if (h->id == HYPOTHESIS_COPY_ON_WRITE) {
        effect(add(l, h->id,
                   "keep the data in one array, a table or a mapped file instead of a list "
                   "of Python objects; or use fewer workers"),
               "up to %s less", size_of(&s, 0, h->share * fmax(q->total, data)));
        return;
    }
    if (compile > 0)
        effect(add(l, h->id,
                   "fewer compile workers (TORCHINDUCTOR_COMPILE_THREADS=1), or none "
                   "(TORCH_COMPILE_DISABLE=1)"),
               "up to %s less", size_of(&s, 0, compile));
    if (data > 0)
        effect(add(l, h->id, "fewer data-loader workers"), "up to %s less", size_of(&s, 0, data));
}

static void advise_kind(const struct question *q, const struct hypothesis *h, struct list *l)
{
    struct sizes s;
    const char *what = h->id == HYPOTHESIS_PINNED ? "pin_memory=False"
                       : h->id == HYPOTHESIS_SHARED_MEMORY
                           ? "fewer batches under way: num_workers, prefetch_factor"
                       : h->id == HYPOTHESIS_COMPILE
                           ? "compile for changing shapes (dynamic=True), or not at "
                             "all (TORCH_COMPILE_DISABLE=1)"
                       : h->id == HYPOTHESIS_MAPPED_FILES
                           ? "nothing: the kernel takes file pages back when memory "
                             "is needed"
                           : NULL;
    if (!what)
        return;
    struct advice *a = add(l, h->id, "%s", what);
    if (h->id != HYPOTHESIS_MAPPED_FILES)
        effect(a, "up to %s less", size_of(&s, 0, h->share * q->total));
}

static void advise(const struct question *q, const struct hypothesis *h, struct list *l)
{
    switch (h->id) {
    case HYPOTHESIS_FIRST_TOUCH:
        advise_first_touch(q, h, l);
        break;
    case HYPOTHESIS_CALL_SITE:
        advise_keeper(q, h, l);
        break;
    case HYPOTHESIS_AUTOGRAD:
        advise_graph(q, h, l);
        break;
    case HYPOTHESIS_TENSORS:
    case HYPOTHESIS_PYTHON_OBJECTS:
        advise_census(q, h, l);
        break;
    case HYPOTHESIS_EVAL_SPIKE:
    case HYPOTHESIS_EVAL_STEP:
        advise_eval(q, h, l);
        break;
    case HYPOTHESIS_RETENTION:
        advise_retention(q, h, l);
        break;
    case HYPOTHESIS_COPY_ON_WRITE:
    case HYPOTHESIS_WORKERS:
        advise_workers(q, h, l);
        break;
    case HYPOTHESIS_LAUNCHER:
        add(l, h->id, "watch the job itself: ebb run -- COMMAND, or ebb watch --find-training");
        break;
    case HYPOTHESIS_GPU:
        add(l, h->id, "look at the tensors on the GPU: ebb census PID");
        break;
    case HYPOTHESIS_ACCUMULATION:
        add(l, h->id, "no leak: a smaller batch a device makes what a step needs smaller");
        break;
    default:
        advise_kind(q, h, l);
    }
}

/* ---- of the whole ---- */

/* Finishing within the limit although it leaks. */
static void advise_restart(const struct question *q, enum hypothesis_id because, struct list *l)
{
    const struct facts *f = q->f;
    struct sizes s;
    double rate = f->main->verdict.per_step;
    if (f->main->verdict.leak != VERDICT_LEAK_YES || !(rate > 0) || isnan(f->limit_bytes) ||
        !f->has_steps || (uint64_t)f->last_step >= f->max_steps)
        return;
    double steps = floor((restart_share * f->limit_bytes - q->base) / rate);
    if (steps < 1 || steps >= (double)f->max_steps)
        return;
    add(l, because,
        "to finish all the same: ebb run --restart --restart-every %.0fsteps stays "
        "below %s",
        steps, size_of(&s, 0, f->limit_bytes));
}

static void advise_cleanup(const struct question *q, enum hypothesis_id because, struct list *l)
{
    const struct marks_cleanup *c = &q->f->cleanup;
    struct sizes s;
    double span = q->f->now_s - q->f->start_s;
    if (!c->count || !(span > 0) || c->freed_bytes > 0.1 * q->total)
        return;
    add(l, because,
        "remove the cleanup: %" PRIu64 " times freed %s in all and took %.1f %% of the "
        "time",
        c->count, size_of(&s, 0, fmax(0, c->freed_bytes)), c->cost_s / span * 100);
}

/* One way to the same thing is enough: the first that names the line. */
static bool is_said(const struct list *l, const struct hypothesis *h)
{
    bool is_general = h->id == HYPOTHESIS_TENSORS || h->id == HYPOTHESIS_PYTHON_OBJECTS ||
                      h->id == HYPOTHESIS_CALL_SITE;
    for (size_t i = 0; is_general && i < l->count; i++)
        if (l->at[i].because == HYPOTHESIS_AUTOGRAD || l->at[i].because == HYPOTHESIS_CALL_SITE ||
            (l->at[i].because == HYPOTHESIS_EVAL_STEP && h->id != HYPOTHESIS_CALL_SITE))
            return true;
    return false;
}

/* Of a cache that a pass has filled "do not keep it: LINE" is said; who keeps it adds to that only
 * where it is known. */
static bool is_said_of_fill(const struct question *q, const struct hypothesis *first,
                            const struct hypothesis *h)
{
    return h->id == HYPOTHESIS_CALL_SITE && first->id == HYPOTHESIS_FIRST_TOUCH && h->site &&
           first->site == h->site && !kept_of(&q->f->kept, q->f->main->id.pid);
}

/* It grows, and nothing that was measured says why. */
static void advise_measuring(const struct question *q, const struct hypothesis *first,
                             struct list *l)
{
    if (l->count || !q->has_grown || (first->word != CANNOT_TEST && first->word != POSSIBLE))
        return;
    if (!q->f->heap.profile)
        add(l, first->id,
            "record it with the profiler, for the line that holds the memory: ebb run "
            "-- COMMAND");
    if (!q->f->census_first)
        add(l, first->id, "and with two censuses of what is alive: EBB_CENSUS_EVERY=100");
}

size_t advice_make(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                   struct advice ret[ADVICE_MAX])
{
    struct list l = {.at = ret};
    if (!q->f->main)
        return 0;
    for (int i = 0; i < HYPOTHESIS_COUNT && l.count < 3; i++) {
        const struct hypothesis *h = &ranked[i];
        bool is_first = i == 0 && h->word == POSSIBLE && h->share > 0;
        bool is_worth = h->word == NEARLY_CERTAIN || h->word == LIKELY || is_first;
        if (h->id == HYPOTHESIS_MAPPED_FILES && i > 0) /* it asks for nothing to be done */
            continue;
        if (is_worth && h->share >= least_share && !is_said(&l, h) &&
            !is_said_of_fill(q, &ranked[0], h))
            advise(q, h, &l);
    }
    advise_measuring(q, &ranked[0], &l);
    advise_restart(q, ranked[0].id, &l);
    advise_cleanup(q, ranked[0].id, &l);
    return l.count;
}
