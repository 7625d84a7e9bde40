/* Writes the advice that the evidence supports, with values measured in this run. */
#include "diagnose/advice.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* The advice plans a restart for the time at which memory reaches this fraction of the limit. The
 * rest of the limit is reserved for spikes within a step. */
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

#define ABOUT(bytes) text_about_size((char[TEXT_SIZE_MAX]){""}, bytes)
/* Returns the call site of hypothesis H as text, or "". */
#define SITE(h) ((h)->site ? PLACE((h)->site) : "")

/* Adds the memory that a fix saves. The growth rate of a call site includes only live memory. A fix
 * also avoids the holes that the allocator retains between live blocks, so it may save up to the
 * growth rate of the whole process or GPU. */
static void saves_per_step(const struct question *q, const struct hypothesis *h, struct advice *a)
{
    bool is_on_gpu = h->id == HYPOTHESIS_GPU;
    double all = is_on_gpu ? q->f->gpu.per_step : q->f->main->verdict.per_step, rate = all;
    if (h->site && h->site->verdict.rate_bytes_per_step.known)
        rate = h->site->verdict.rate_bytes_per_step.value;
    if (rate > 0 && rate < 0.8 * all)
        effect(a, "saves at least %s/step", ABOUT(rate));
    else if (rate > 0)
        effect(a, "saves %s/step", ABOUT(all > 0 ? fmin(rate, all) : rate));
}

static void saves_up_to(struct advice *a, double bytes)
{
    effect(a, "saves up to %s", ABOUT(bytes));
}

/* Returns "not a leak; ", with which advice on growth that ends by itself begins, or "" if the
 * verdict does not exclude a leak. */
static const char *no_leak_text(const struct question *q)
{
    return verdict_word_leak(q->word) == VERDICT_LEAK_NO ? "not a leak; " : "";
}

/* Returns true if an imaging library allocated the memory of the call site, which means that the
 * cache holds decoded images. */
static bool is_image(const struct hypothesis *h)
{
    const struct name *native = h->site ? h->site->native : NULL;
    const char *file = h->site ? h->site->name->file : NULL;
    return (native && ((native->lib && strstr(native->lib, "imaging")) ||
                       (native->function && strstr(native->function, "Imaging")))) ||
           (file && strstr(file, "/PIL/"));
}

static bool is_limited(const struct question *q, const struct kept *k)
{
    (void)q;
    return k->limit > 0;
}

/* Returns true if the container belongs to the user's program. If it belongs to a library, the user
 * cannot change it. */
static bool is_of_program(const struct question *q, const struct kept *k)
{
    (void)q;
    return !k->is_library;
}

static void advise_first_touch(const struct question *q, const struct hypothesis *h, struct list *l)
{
    if (h->site && h->site == ledger_site(q->l, LEDGER_TOUCHED)) {
        add(l, h->id,
            "%s%s was allocated in one block at %s and becomes resident as the job writes to it; "
            "to reduce memory, allocate a smaller block",
            no_leak_text(q), ABOUT(h->site->live_bytes), SITE(h));
        return;
    }
    const struct kept *kept = q->f->main->verdict.is_limited ? find_container(q, is_limited) : NULL;
    if (kept) {
        if (kept_is_value(kept))
            add(l, h->id, "to use less memory, make %s smaller than %s", kept->name,
                ABOUT(kept->limit));
        else
            add(l, h->id, "to use less memory, allow fewer than %.0f entries in %s", kept->limit,
                kept->name);
        return;
    }
    struct advice *a = add(
        l, h->id,
        "%sto use less memory, load each example on demand instead of keeping all of them%s%s%s",
        no_leak_text(q), h->site ? "; they are allocated at " : "", SITE(h),
        is_image(h) ? "; for images: ebb.data.LazyImages(paths, budget=…)" : "");
    if (h->word != POSSIBLE)
        effect(a, "saves %s", ABOUT(h->share * q->total));
}

/* Returns true if H blames tensors in shared memory, such as batches from data-loader workers. */
static bool blames_batches(const struct question *q, const struct hypothesis *h)
{
    return h->id == HYPOTHESIS_CALL_SITE && h->site &&
           h->site == ledger_site(q->l, LEDGER_SHARED) && made_by_torch(&q->f->heap, h->site);
}

static void advise_call_site(const struct question *q, const struct hypothesis *h, struct list *l)
{
    const struct kept *kept = find_container(q, is_of_program);
    struct advice *a;
    if (kept)
        a = add(l, h->id, "limit or clear %s, which keeps alive the memory allocated at %s",
                kept->name, SITE(h));
    else if (blames_batches(q, h))
        a = add(l, h->id,
                "find the list, cache or closure that keeps the batches of %s alive, and drop each "
                "batch after its step",
                SITE(h));
    else if (h->site && made_by_torch(&q->f->heap, h->site))
        a = add(
            l, h->id,
            "at %s, keep numbers instead of tensors: .item(), or .detach() if you need a tensor",
            SITE(h));
    else
        a = add(l, h->id, "find the list, cache or closure that keeps the result of %s alive",
                SITE(h));
    saves_per_step(q, h, a);
}

/* Names the object to release, such as "__main__.history[14]['batch']", if the census found a
 * path to it. */
static void advise_census(const struct question *q, const struct hypothesis *h, struct list *l)
{
    const json_t *one = json_array_get(json_object_get(q->f->census.last, "largest"), 0);
    const char *what = json_string_value(json_object_get(one, "what"));
    const char *chain = json_string_value(json_object_get(one, "chain"));
    const struct kept *kept =
        h->id == HYPOTHESIS_PYTHON_OBJECTS ? find_container(q, is_piling_container) : NULL;
    if (what && chain && strncmp(chain, "…", strlen("…")) != 0 &&
        !strstr(chain, "no object that gc tracks"))
        saves_per_step(q, h, add(l, h->id, "release %.100s, kept alive by %.200s", what, chain));
    else if (kept && is_of_program(q, kept))
        saves_per_step(q, h, add(l, h->id, "limit or clear %s", kept->name));
    else
        saves_per_step(q, h,
                       add(l, h->id,
                           "record the references that keep the growing objects alive: "
                           "EBB_CENSUS_EVERY=100 ebb run -- COMMAND"));
}

static const char *retention_text(const struct question *q)
{
    double kept = 0;
    const struct growth_row *row = keeping_site(q, &kept);
    return row && kept > 0.2 * q->growth && made_by_torch(&q->f->heap, row)
               ? "set MALLOC_MMAP_THRESHOLD_=131072, or preload jemalloc: glibc does not return "
                 "free memory that lies between live tensors"
               : "set MALLOC_ARENA_MAX=2, trim with MemoryCleanup(trim=True), or preload jemalloc: "
                 "the allocator does not return free memory to the system";
}

static const char *shared_memory_text(const struct question *q)
{
    return unmapped_growth(q) > 0 ? "unlink shared memory after its last use "
                                    "(SharedMemory.unlink()), or remove the files that the job "
                                    "writes to /dev/shm"
           : is_leak(q->word)     ? "drop each batch after its step: the job keeps tensors that "
                                    "workers sent through shared memory"
                                  : "keep fewer batches in flight: lower num_workers or "
                                    "prefetch_factor";
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
    double compile = unique_of(q->f, ROLE_COMPILE_WORKER), data = unique_of(q->f, ROLE_DATA_WORKER);
    if (compile > 0)
        saves_up_to(add(l, h->id,
                        "use fewer compile workers (TORCHINDUCTOR_COMPILE_THREADS=1), or turn "
                        "compilation off (TORCH_COMPILE_DISABLE=1)"),
                    compile);
    if (data > 0)
        saves_up_to(add(l, h->id, "use fewer data-loader workers"), data);
}

/* Adds advice that does not depend on the call site. */
static void advise_kind(const struct question *q, const struct hypothesis *h, struct list *l)
{
    double explained = h->share * q->total;
    switch (h->id) {
    case HYPOTHESIS_LAUNCHER:
        add(l, h->id,
            "watch the training process, not its launcher: ebb run -- COMMAND, or ebb watch "
            "--find-training");
        break;
    case HYPOTHESIS_ACCUMULATION:
        add(l, h->id, "%suse a smaller batch per device to reduce memory within each step",
            no_leak_text(q));
        break;
    case HYPOTHESIS_EVAL_SPIKE:
        add(l, h->id,
            "%sto reduce the spike, do not collect all outputs of an evaluation (Hugging Face: "
            "batch_eval_metrics=True, preprocess_logits_for_metrics)",
            no_leak_text(q));
        break;
    case HYPOTHESIS_EVAL_STEP:
        effect(add(l, h->id,
                   "release predictions, plots and copies of the model state after each "
                   "evaluation or checkpoint"),
               "would have saved %s", ABOUT(explained));
        break;
    case HYPOTHESIS_RETENTION:
        saves_up_to(add(l, h->id, "%s", retention_text(q)), explained);
        break;
    case HYPOTHESIS_MAPPED_FILES:
        add(l, h->id, "nothing to do: the kernel reclaims file pages when memory is needed");
        break;
    case HYPOTHESIS_SHARED_MEMORY:
        saves_up_to(add(l, h->id, "%s", shared_memory_text(q)), explained);
        break;
    case HYPOTHESIS_PINNED:
        saves_up_to(add(l, h->id, "set pin_memory=False"), explained);
        break;
    case HYPOTHESIS_COPY_ON_WRITE:
        saves_up_to(add(l, h->id,
                        "keep the data in one array, a table or a mapped file instead of a list of "
                        "Python objects, or use fewer workers"),
                    h->share * fmax(q->total, unique_of(q->f, ROLE_DATA_WORKER)));
        break;
    case HYPOTHESIS_PROCESSES:
        saves_up_to(add(l, h->id,
                        "close process pools after use (with Pool(...) as pool:), or create "
                        "workers once (persistent_workers=True)"),
                    explained);
        break;
    case HYPOTHESIS_COMPILE:
        saves_up_to(add(l, h->id,
                        "compile with dynamic shapes (dynamic=True), or turn compilation off "
                        "(TORCH_COMPILE_DISABLE=1)"),
                    explained);
        break;
    case HYPOTHESIS_GPU_FRAGMENTS:
        add(l, h->id,
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use fewer distinct tensor "
            "shapes");
        break;
    default:
        break;
    }
}

static void advise(const struct question *q, const struct hypothesis *h, struct list *l)
{
    if (h->id == HYPOTHESIS_FIRST_TOUCH)
        advise_first_touch(q, h, l);
    else if (h->id == HYPOTHESIS_CALL_SITE || (h->id == HYPOTHESIS_GPU && h->site))
        advise_call_site(q, h, l);
    else if (h->id == HYPOTHESIS_AUTOGRAD)
        saves_per_step(q, h,
                       add(l, h->id,
                           "%s%s%skeep the number, not its graph: loss.item() or loss.detach()",
                           h->site ? "at " : "", SITE(h), h->site ? ", " : ""));
    else if (h->id == HYPOTHESIS_TENSORS || h->id == HYPOTHESIS_PYTHON_OBJECTS)
        advise_census(q, h, l);
    else if (h->id == HYPOTHESIS_WORKERS)
        advise_workers(q, h, l);
    else if (h->id == HYPOTHESIS_GPU)
        add(l, h->id,
            "record the tensors on the GPU and their references: EBB_CENSUS_EVERY=100 ebb run -- "
            "COMMAND");
    else
        advise_kind(q, h, l);
}

/* Adds advice on how to finish within the limit despite the leak. */
static void advise_restart(const struct question *q, enum hypothesis_id because, struct list *l)
{
    const struct facts *f = q->f;
    double rate = f->main->verdict.per_step;
    if (f->main->verdict.leak != VERDICT_LEAK_YES || !(rate > 0) || isnan(f->limit_bytes) ||
        !f->has_steps || (uint64_t)f->last_step >= f->max_steps)
        return;
    double steps = floor((restart_share * f->limit_bytes - q->base) / rate);
    if (steps < 1 || steps >= (double)f->max_steps)
        return;
    add(l, because,
        "to finish despite the leak: ebb run --restart --restart-every %.0fsteps keeps memory "
        "below %s",
        steps, ABOUT(f->limit_bytes));
}

static void advise_cleanup(const struct question *q, enum hypothesis_id because, struct list *l)
{
    const struct marks_cleanup *c = &q->f->cleanup;
    double span = q->f->now_s - q->f->start_s;
    if (!c->count || !(span > 0) || c->freed_bytes > 0.1 * q->total)
        return;
    add(l, because,
        "remove MemoryCleanup: %" PRIu64 " calls freed %s in total and took %.1f %% of the time",
        c->count, ABOUT(fmax(0, c->freed_bytes)), c->cost_s / span * 100);
}

/* Returns true if H needs no advice, because the list already has advice that covers the cause of
 * H. */
static bool is_covered(const struct question *q, const struct hypothesis *first,
                       const struct list *l, const struct hypothesis *h)
{
    bool is_general = h->id == HYPOTHESIS_TENSORS || h->id == HYPOTHESIS_PYTHON_OBJECTS ||
                      h->id == HYPOTHESIS_CALL_SITE ||
                      (h->id == HYPOTHESIS_SHARED_MEMORY && blames_batches(q, first));
    for (size_t i = 0; is_general && i < l->count; i++)
        if (l->at[i].because == HYPOTHESIS_AUTOGRAD || l->at[i].because == HYPOTHESIS_CALL_SITE ||
            (l->at[i].because == HYPOTHESIS_EVAL_STEP && h->id != HYPOTHESIS_CALL_SITE))
            return true;
    return false;
}

/* Returns true if advice on the call site H would repeat the advice on a cache that fills in the
 * first epoch. That advice already names the allocating line, so advice on H is useful only if it
 * names the container. */
static bool is_covered_by_fill(const struct question *q, const struct hypothesis *first,
                               const struct hypothesis *h)
{
    return h->id == HYPOTHESIS_CALL_SITE && first->id == HYPOTHESIS_FIRST_TOUCH && h->site &&
           first->site == h->site &&
           (q->f->main->verdict.is_limited || !find_container(q, is_of_program));
}

/* Returns true if H is retention but the program also keeps memory alive. The allocator then
 * retains the free memory between the live blocks, so retention is only a symptom. */
static bool is_symptom(const struct question *q, const struct hypothesis ranked[HYPOTHESIS_COUNT],
                       const struct hypothesis *h)
{
    if (h->id != HYPOTHESIS_RETENTION)
        return false;
    for (int i = 0; i < HYPOTHESIS_COUNT; i++) {
        bool is_likely = ranked[i].word == LIKELY || ranked[i].word == NEARLY_CERTAIN;
        if (is_likely && hypothesis_is_live(ranked[i].id))
            return true;
    }
    return kept_of(&q->f->kept, q->f->main->id.pid);
}

/* Adds advice for growth that no measurement explains. */
static void advise_measuring(const struct question *q, const struct hypothesis *first,
                             struct list *l)
{
    if (l->count || !q->has_grown || (first->word != CANNOT_TEST && first->word != POSSIBLE))
        return;
    if (!q->f->heap.is_on && !q->f->heap.is_unavailable)
        add(l, first->id,
            "run the job with the heap profiler to see the allocating line: ebb run -- COMMAND");
    if (!q->f->census.first)
        add(l, first->id,
            "record two censuses of live objects: EBB_CENSUS_EVERY=100 ebb run -- COMMAND");
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
        /* mapped files need no action; they are mentioned only if they are the first hypothesis */
        if (h->id == HYPOTHESIS_MAPPED_FILES && i > 0)
            continue;
        if (is_worth && h->share >= least_share && !is_covered(q, &ranked[0], &l, h) &&
            !is_symptom(q, ranked, h) && !is_covered_by_fill(q, &ranked[0], h))
            advise(q, h, &l);
    }
    advise_measuring(q, &ranked[0], &l);
    advise_restart(q, ranked[0].id, &l);
    advise_cleanup(q, ranked[0].id, &l);
    return l.count;
}
