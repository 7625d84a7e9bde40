/* Hypotheses that show in what the kernel counts: file pages, shared memory, swap, huge pages; and
 * in what drivers count: pinned memory, GPUs. */
#include <math.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

static const double part_least_bytes = 8 << 20;

/* One kind of memory against the growth of all: the larger its part, the more it says. */
static void weigh_part(const struct question *q, struct hypothesis *h, double grown, double whole,
                       const char *what)
{
    struct sizes s;
    double share = whole > 0 && grown > 0 ? fmin(1, grown / whole) : 0;
    bool is_much =
        q->has_grown ? grown > fmax(part_least_bytes, 0.025 * q->base) : is_worth_asking(q, grown);
    if (is_much && share > 0.1) {
        h->share = share;
        say(h, EVIDENCE_FOR, share > 0.5 ? STRONG : FAIR, "%s grew by %s, of %s in all", what,
            size_of(&s, 0, grown), size_of(&s, 1, whole));
        return;
    }
    say(h, EVIDENCE_AGAINST, q->has_grown ? STRONG + FAIR : STRONG, "%s changed by %s", what,
        change_of(&s, 0, grown));
}

void test_mapped_files(const struct question *q, struct hypothesis *h)
{
    double grown = main_growth(q, SAMPLE_FILE), rss = main_growth(q, SAMPLE_RSS);
    if (isnan(grown))
        say(h, EVIDENCE_ABSENT, 0, "resident memory was not read by kind");
    else
        weigh_part(q, h, grown, fmax(rss, fmax(grown, 0) + fmax(q->growth, 0)),
                   "mapped file pages");
}

void test_shared_memory(const struct question *q, struct hypothesis *h)
{
    struct sizes s;
    double grown = main_growth(q, SAMPLE_SHMEM);
    double pinned = fmax(0, figure_growth(q, "pinned_host_bytes"));
    if (isnan(grown)) {
        say(h, EVIDENCE_ABSENT, 0, "resident memory was not read by kind");
    } else if (grown > part_least_bytes && pinned > grown / 2) { /* the driver pins shared pages */
        say(h, EVIDENCE_AGAINST, STRONG + FAIR, "of %s more shared memory %s is pinned for a GPU",
            size_of(&s, 0, grown), size_of(&s, 1, fmin(grown, pinned)));
    } else {
        h->site = ledger_site(q->l, LEDGER_SHARED);
        weigh_part(q, h, grown, fmax(q->total, grown), "shared memory");
    }
}

/* Which line it was, where the profiler saw the mapping. */
static void name_pinning_site(const struct question *q, struct hypothesis *h)
{
    char place[PLACE_MAX];
    h->site = h->share > 0 ? ledger_site(q->l, LEDGER_PINNED) : NULL;
    if (h->site)
        say(h, EVIDENCE_FOR, WEAK, "it is mapped at %s", place_text(place, h->site));
}

void test_pinned(const struct question *q, struct hypothesis *h)
{
    double grown = figure_growth(q, "pinned_host_bytes");
    if (isnan(grown))
        say(h, EVIDENCE_ABSENT, 0, "pinned memory was not told (pinned_host_bytes)");
    else
        weigh_part(q, h, grown, fmax(q->total, grown), "pinned memory");
    name_pinning_site(q, h);
}

void test_swap(const struct question *q, struct hypothesis *h)
{
    double grown = main_growth(q, SAMPLE_SWAP);
    double most =
        q->f->main ? facts_most(&q->f->main->field[SAMPLE_SWAP], 0, q->f->now_s) : (double)NAN;
    if (isnan(grown))
        say(h, EVIDENCE_ABSENT, 0, "swap of the process was not read");
    else if (!(most > 0))
        say(h, EVIDENCE_AGAINST, DECIDES, "none of the process was ever swapped out");
    else
        weigh_part(q, h, grown, fmax(q->total, grown), "what was swapped out");
}

/* ---- GPUs ---- */

/* Pools and compiled code come with the first steps: as on the host, what has ended is asked about
 * from a tenth on, and what the verdict calls flat is not. */
static bool gpu_has_stopped(const struct facts *f, double grown)
{
    double had = facts_at(&f->gpu_job, f->start_s);
    return f->gpu.is_known && facts_has_ended(f->gpu.word) &&
           !(f->gpu.word == VERDICT_PLATEAUED && grown > 0.1 * had);
}

void test_gpu(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    struct sizes s;
    double job = facts_growth(&f->gpu_job, f->start_s, f->now_s);
    double torch = figure_growth(q, "cuda_allocated_bytes");
    double grown = isnan(torch) ? job : isnan(job) ? torch : fmax(job, torch);
    if (isnan(grown)) {
        say(h, EVIDENCE_ABSENT, 0, "GPU memory of the job was not read, or it has none");
    } else if (grown > part_least_bytes && gpu_has_stopped(f, grown)) {
        say(h, EVIDENCE_AGAINST, STRONG,
            "GPU memory of the job grew by %s, and its verdict is \"%s\"", size_of(&s, 0, grown),
            verdict_word_name(f->gpu.word));
    } else if (grown > part_least_bytes) {
        h->share = q->has_grown ? 0.2 : 1;
        say(h, EVIDENCE_FOR, q->has_grown ? WEAK : STRONG + FAIR,
            "GPU memory of the job grew by %s", size_of(&s, 0, grown));
    } else {
        say(h, EVIDENCE_AGAINST, STRONG, "GPU memory of the job changed by %s",
            change_of(&s, 0, grown));
    }
    if (q->has_grown)
        say(h, EVIDENCE_AGAINST, STRONG, "memory of the host itself grew by %s",
            size_of(&s, 1, q->total));
}

/* ---- huge pages ---- */

/* Of the growth what lies in huge pages and has no other name. */
static void weigh_huge(const struct question *q, struct hypothesis *h)
{
    struct sizes s;
    double grown = ledger_growth(q->l, LEDGER_HUGE);
    bool is_much = grown > fmax(part_least_bytes, 0.3 * q->total);
    if (is_much)
        h->share = share_of(q, grown);
    /* where all memory is in huge pages, so is what an allocator keeps */
    say(h, is_much ? EVIDENCE_FOR : EVIDENCE_AGAINST,
        !is_much                           ? STRONG
        : strcmp(q->f->thp, "always") == 0 ? FAIR
                                           : STRONG,
        "%s more lie in huge pages and are not alive on the heap, of %s in all",
        size_of(&s, 0, fmax(0, grown)), size_of(&s, 1, q->total));
}

/* Without a count of huge pages: what is not alive may lie in them. */
static void guess_huge(const struct question *q, struct hypothesis *h)
{
    struct sizes s;
    struct floors floors = floors_of(q);
    double beside = floors.lets_go          ? q->total
                    : isnan(heap_growth(q)) ? (double)NAN
                                            : ledger_beside_growth(q->l);
    say(h, EVIDENCE_ABSENT, 0, "how much of it lies in huge pages was not measured");
    if (strcmp(q->f->thp, "madvise") == 0)
        say(h, EVIDENCE_AGAINST, WEAK, "transparent huge pages are for those that ask (madvise)");
    if (!isnan(beside) && beside > 0.3 * q->total) {
        h->share = share_of(q, beside) / 2;
        say(h, EVIDENCE_FOR, WEAK, "%s of the growth is not alive on the heap",
            size_of(&s, 0, beside));
    } else if (!isnan(beside)) {
        say(h, EVIDENCE_AGAINST, STRONG, "what lives on the heap grew as memory did");
    }
}

void test_thp(const struct question *q, struct hypothesis *h)
{
    bool is_measured = !isnan(main_growth(q, SAMPLE_HUGE));
    if (!q->f->thp[0] && !is_measured) {
        say(h, EVIDENCE_ABSENT, 0, "whether the kernel uses huge pages was not recorded");
        return;
    }
    if (strcmp(q->f->thp, "never") == 0) {
        say(h, EVIDENCE_AGAINST, DECIDES, "transparent huge pages are off (never)");
        return;
    }
    if (!q->has_grown)
        say_flat(q, h, STRONG);
    else if (is_measured && !isnan(heap_growth(q)))
        weigh_huge(q, h);
    else
        guess_huge(q, h);
    decide_by(h, "a run with GLIBC_TUNABLES=glibc.malloc.hugetlb=0, or huge pages set to madvise");
}
