/* Hypotheses about memory reported by the kernel (file pages, shared memory, swap, huge pages) or
 * by drivers (pinned memory, GPUs). */
#include <math.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

static const double part_least_bytes = 8 << 20;
/* If more than this fraction of the growth is memory that no process maps, the growth is attributed
 * to files in a tmpfs. */
static const double UNMAPPED_SHARE = 0.5;

/* Compares the growth of one category of memory with all growth: the larger its share, the stronger
 * the evidence. */
static void weigh_part(const struct question *q, struct hypothesis *h, double grown, double whole,
                       const char *what)
{
    double share = whole > 0 && grown > 0 ? fmin(1, grown / whole) : 0;
    bool is_much = q->has_grown ? grown > fmax(part_least_bytes, 0.025 * q->base)
                                : is_worth_diagnosing(q, grown);
    if (is_much && share > 0.1) {
        h->share = share;
        evidence_for(h, share > 0.5 ? STRONG : FAIR, "%s grew by %s, out of a total growth of %s",
                     what, SIZE(grown), SIZE(whole));
        return;
    }
    evidence_against(h, q->has_grown ? STRONG + FAIR : STRONG, "%s changed by %s", what,
                     CHANGE(grown));
}

void test_mapped_files(const struct question *q, struct hypothesis *h)
{
    double grown = main_growth(q, SAMPLE_FILE), rss = main_growth(q, SAMPLE_RSS);
    if (isnan(grown))
        evidence_absent(h, "the breakdown of resident memory was not sampled");
    else
        weigh_part(q, h, grown, fmax(rss, fmax(grown, 0) + fmax(q->growth, 0)),
                   "mapped file pages");
}

/* Returns the growth of charged memory minus the growth of mapped memory, both from FROM_S to the
 * second moment. */
static double unmapped_since(const struct facts *f, double from_s)
{
    return facts_growth(&f->charge, from_s, f->now_s) -
           fmax(0, facts_growth(&f->tree_high, from_s, f->now_s));
}

double unmapped_growth(const struct question *q)
{
    double grown = unmapped_since(q->f, q->f->start_s);
    double least = fmax(part_least_bytes, UNMAPPED_SHARE * q->total);
    return q->has_grown && grown > least ? grown : 0;
}

void test_shared_memory(const struct question *q, struct hypothesis *h)
{
    double unmapped = unmapped_growth(q);
    double late = unmapped_since(q->f, (q->f->start_s + q->f->now_s) / 2);
    if (unmapped > 0 && q->is_growing && is_mostly_early(unmapped, late)) {
        evidence_against(h, STRONG,
                         "files in /dev/shm or another tmpfs grew by %s, but only by %s in the "
                         "second half of the run, while the job's memory kept growing",
                         SIZE(unmapped), SIZE(fmax(0, late)));
        return;
    }
    if (unmapped > 0) {
        h->share = share_of(q, unmapped);
        evidence_for(h, STRONG,
                     "the kernel charges the job for %s that its processes do not map: files in "
                     "/dev/shm or another tmpfs",
                     SIZE(unmapped));
        decide_by(h, "list /dev/shm while the job runs: `ls -l /dev/shm`");
        return;
    }
    double grown = main_growth(q, SAMPLE_SHMEM);
    double pinned = fmax(0, figure_growth(q, "pinned_host_bytes"));
    if (isnan(grown)) {
        evidence_absent(h, "the breakdown of resident memory was not sampled");
    } else if (grown > part_least_bytes && pinned > grown / 2) {
        /* drivers pin shared pages, so most of this growth is pinned memory */
        evidence_against(h, STRONG + FAIR,
                         "shared memory grew by %s, of which %s is pinned for a GPU", SIZE(grown),
                         SIZE(fmin(grown, pinned)));
    } else {
        h->site = ledger_site(q->l, LEDGER_SHARED);
        weigh_part(q, h, grown, fmax(q->total, grown), "shared memory");
    }
}

/* Names the line that mapped the pinned memory, if the profiler saw it. */
static void name_pinning_site(const struct question *q, struct hypothesis *h)
{
    h->site = h->share > 0 ? ledger_site(q->l, LEDGER_PINNED) : NULL;
    if (h->site)
        evidence_for(h, WEAK, "the pinned memory is mapped at %s", PLACE(h->site));
}

void test_pinned(const struct question *q, struct hypothesis *h)
{
    double grown = figure_growth(q, "pinned_host_bytes");
    if (isnan(grown))
        evidence_absent(h, "pinned memory is unknown (the job did not report pinned_host_bytes)");
    else
        weigh_part(q, h, grown, fmax(q->total, grown), "pinned memory");
    name_pinning_site(q, h);
}

void test_swap(const struct question *q, struct hypothesis *h)
{
    double grown = main_growth(q, SAMPLE_SWAP);
    double most =
        q->f->main ? facts_max(&q->f->main->field[SAMPLE_SWAP], 0, q->f->now_s) : (double)NAN;
    if (isnan(grown))
        evidence_absent(h, "swap usage of the process was not sampled");
    else if (!(most > 0))
        evidence_against(h, DECIDES, "no memory of the process was ever swapped out");
    else
        weigh_part(q, h, grown, fmax(q->total, grown), "swapped-out memory");
}

/* ---- GPUs ---- */

/* Returns true if growth on the GPU has ended and needs no diagnosis, for example growth by memory
 * pools and compiled code in the first steps. As on the host, growth that has ended is diagnosed
 * only if the verdict is plateaued and the growth exceeds a tenth of the memory at the start. */
static bool gpu_has_stopped(const struct facts *f, double grown)
{
    double had = facts_at(&f->gpu_heap.job, f->start_s);
    return f->gpu.is_known && facts_has_ended(f->gpu.word) &&
           !(f->gpu.word == VERDICT_PLATEAUED && grown > 0.1 * had);
}

/* Returns true if the GPU leaks and the host does not. */
static bool is_worse_on_gpu(const struct facts *f)
{
    return f->gpu.is_known && f->gpu.leak == VERDICT_LEAK_YES &&
           !(f->job.is_known && f->job.leak == VERDICT_LEAK_YES);
}

/* Returns the first row of the GPU profile if it grew by a significant amount and its verdict does
 * not exclude a leak, else NULL. */
static const struct growth_row *gpu_keeper(const struct facts *f)
{
    const struct growth *g = &f->gpu_heap.growth;
    const struct growth_row *row = g->count ? g->rows : NULL;
    return row && row->verdict.leak != VERDICT_LEAK_NO &&
                   row->growth_bytes - 2 * row->growth_sigma > part_least_bytes
               ? row
               : NULL;
}

static void add_gpu_site(const struct question *q, struct hypothesis *h)
{
    h->site = gpu_keeper(q->f);
    if (h->site)
        evidence_for(h, FAIR, "memory that %s allocated on gpu %d grew by %s", PLACE(h->site),
                     h->site->gpu, SIZE(h->site->growth_bytes));
}

void test_gpu(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    double job = facts_growth(&f->gpu_heap.job, f->start_s, f->now_s);
    double torch = figure_growth(q, "cuda_allocated_bytes");
    double grown = isnan(torch) ? job : isnan(job) ? torch : fmax(job, torch);
    if (isnan(grown)) {
        evidence_absent(h, "GPU memory of the job was not sampled, or the job uses no GPU");
    } else if (grown > part_least_bytes && gpu_has_stopped(f, grown)) {
        evidence_against(h, STRONG, "GPU memory of the job grew by %s, but its verdict is \"%s\"",
                         SIZE(grown), verdict_word_name(f->gpu.word));
    } else if (grown > part_least_bytes) {
        bool is_question = !q->has_grown || is_worse_on_gpu(f);
        h->share = is_question ? 1 : 0.2;
        evidence_for(h, is_question ? STRONG + FAIR : WEAK, "GPU memory of the job grew by %s",
                     SIZE(grown));
        add_gpu_site(q, h);
    } else {
        evidence_against(h, STRONG, "GPU memory of the job changed by %s", CHANGE(grown));
    }
    if (q->has_grown && !is_worse_on_gpu(f))
        evidence_against(h, STRONG, "host memory grew by %s", SIZE(q->total));
}

/* Growth of reserved memory below this size is common in the first steps of any program. */
static const double reserved_least_bytes = 64 << 20;

/* Returns true if the peak of allocated memory explains the reserved memory, allowing for block
 * sizes that are rounded up. */
static bool is_reserved_needed(const struct facts_gpu *g)
{
    return !isnan(g->reserved_bytes) && g->reserved_bytes < 1.2 * g->most_allocated_bytes;
}

void test_gpu_fragments(const struct question *q, struct hypothesis *h)
{
    const struct facts *f = q->f;
    const struct facts_gpu *g = &f->gpu_heap;
    double had = facts_at(&f->gpu_heap.reserved, f->start_s);
    double reserved = facts_growth(&f->gpu_heap.reserved, f->start_s, f->now_s);
    double allocated = facts_growth(&f->gpu_heap.allocated, f->start_s, f->now_s);
    if (isnan(reserved) || isnan(allocated)) {
        evidence_absent(h, "PyTorch's allocator reported no reserved GPU memory");
        return;
    }
    if (reserved <= fmax(reserved_least_bytes, 0.1 * had)) {
        evidence_against(h, DECIDES, "reserved GPU memory changed by %s", CHANGE(reserved));
        return;
    }
    if (allocated > 0.3 * reserved) {
        evidence_against(h, DECIDES,
                         "allocated GPU memory grew by %s, and reserved GPU memory by %s",
                         SIZE(allocated), SIZE(reserved));
        return;
    }
    if (is_reserved_needed(g)) {
        evidence_against(h, DECIDES, "%s of %s reserved GPU memory was allocated at the peak",
                         SIZE(g->most_allocated_bytes), SIZE(g->reserved_bytes));
        return;
    }
    h->share = q->has_grown ? 0.2 : 1;
    evidence_for(h, STRONG,
                 "reserved GPU memory grew by %s, while allocated GPU memory changed by %s",
                 SIZE(reserved), CHANGE(allocated));
    if (!isnan(g->reserved_bytes))
        evidence_for(h, FAIR, "at most %s of %s reserved GPU memory was ever allocated at once",
                     SIZE(g->most_allocated_bytes), SIZE(g->reserved_bytes));
    decide_by(h, "run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
}

/* ---- huge pages ---- */

/* Compares the growth of huge pages with all growth. The ledger counts only memory in huge pages
 * that no other category explains. */
static void weigh_huge(const struct question *q, struct hypothesis *h)
{
    double grown = ledger_growth(q->l, LEDGER_HUGE);
    bool is_much = grown > fmax(part_least_bytes, 0.3 * q->total);
    if (is_much)
        h->share = share_of(q, grown);
    /* the evidence is weaker if the setting is "always": part of the memory in huge pages may be
     * retained by the allocator */
    evidence_add(h, is_much ? EVIDENCE_FOR : EVIDENCE_AGAINST,
                 !is_much                           ? STRONG
                 : strcmp(q->f->thp, "always") == 0 ? FAIR
                                                    : STRONG,
                 "huge pages outside the live heap grew by %s, out of a total growth of %s",
                 SIZE(fmax(0, grown)), SIZE(q->total));
}

/* Tests the hypothesis of huge pages if the memory in huge pages was not measured. Any growth
 * outside the live heap may then be in huge pages. */
static void guess_huge(const struct question *q, struct hypothesis *h)
{
    struct floors floors = baselines_of(q);
    double beside = floors.is_freed         ? q->total
                    : isnan(heap_growth(q)) ? (double)NAN
                                            : ledger_beside_growth(q->l);
    evidence_absent(h, "the share of memory in huge pages was not measured");
    if (strcmp(q->f->thp, "madvise") == 0)
        evidence_against(h, WEAK, "transparent huge pages are used on request only (madvise)");
    if (!isnan(beside) && beside > 0.3 * q->total) {
        h->share = share_of(q, beside) / 2;
        evidence_for(h, WEAK, "%s of the growth is outside the live heap and may be in huge pages",
                     SIZE(beside));
    } else if (!isnan(beside)) {
        evidence_against(h, STRONG, "the live heap grew along with resident memory");
    }
}

void test_thp(const struct question *q, struct hypothesis *h)
{
    bool is_measured = !isnan(main_growth(q, SAMPLE_HUGE));
    if (!q->f->thp[0] && !is_measured) {
        evidence_absent(h, "the kernel's huge-page setting was not recorded");
        return;
    }
    if (strcmp(q->f->thp, "never") == 0) {
        evidence_against(h, DECIDES, "transparent huge pages are off (never)");
        return;
    }
    if (!q->has_grown)
        evidence_add_no_growth(q, h, STRONG);
    else if (is_measured && !isnan(heap_growth(q)))
        weigh_huge(q, h);
    else
        guess_huge(q, h);
    decide_by(h, "run with GLIBC_TUNABLES=glibc.malloc.hugetlb=0, or set huge pages to madvise");
}
