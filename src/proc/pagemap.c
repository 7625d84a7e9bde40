/* Counts the pages that only one process has mapped: those for which bits 63 (present) and 56
 * (exclusive) are set in /proc/PID/pagemap, over the mappings in /proc/PID/maps. */
#include "proc/pagemap.h"

#include <errno.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/procfs.h"

enum { PRESENT_BIT = 63, FILE_BIT = 61, EXCLUSIVE_BIT = 56 }; /* bits of a pagemap entry */

/* The ioctl PAGEMAP_SCAN of Linux 6.7, which the headers of older distributions lack. */
struct scan_region {
    __u64 start, end, categories;
};
struct scan_arg {
    __u64 size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
        category_mask, category_anyof_mask, return_mask;
};
#define SCAN_IOCTL _IOWR('f', 16, struct scan_arg)
#define SCAN_IS_FILE (UINT64_C(1) << 2)
#define SCAN_IS_PRESENT (UINT64_C(1) << 3)
#define SCAN_IS_ZERO (UINT64_C(1) << 5)
#define SCAN_IS_HUGE (UINT64_C(1) << 6)

#define MIB (UINT64_C(1) << 20)
/* Minimum and maximum address range of one search for present pages. The kernel holds the process's
 * lock during the whole search, so the range limits how long the lock is held. Memory that is
 * released with MADV_DONTNEED leaves empty page tables behind; searching them takes about 3 ns per
 * page. */
#define SEEK_BYTES_MIN (64 * MIB)
#define SEEK_BYTES_MAX (2048 * MIB)

/* Mappings separated by a smaller gap are read in one call, because a call costs more than reading
 * a few unused entries. */
enum { GAP_PAGES_MAX = 64 };
/* The default maximum stack size of a glibc thread. A larger mapping above inaccessible pages is
 * not necessarily a stack. */
#define STACK_BYTES_MAX (8 * MIB)
#define GUARD_BYTES_MAX (MIB / 16)
#define ARENA_BYTES (64 * MIB)
/* The maximum number of regions that one PAGEMAP_SCAN call returns: HUGE_REGIONS in a search for
 * huge pages, OWN_REGIONS in a count of unshared memory. In a search for present pages, the kernel
 * returns at most 512 regions per call. */
enum { HUGE_REGIONS = 64, OWN_REGIONS = 512 };
/* Unshared mappings smaller than this are read together with adjacent mappings. */
#define OWN_BYTES_MIN (2 * MIB)

void pagemap_pace_init(struct pagemap_pace *pace, uint64_t budget_ns, bool no_seek)
{
    *pace = (struct pagemap_pace){
        .budget_ns = budget_ns,
        .chunk_pages = PAGEMAP_CHUNK_MIN,
        .seek_bytes = SEEK_BYTES_MIN,
        .no_seek = no_seek,
    };
}

void pagemap_begin(struct pagemap_scan *s, int maps_fd, int pagemap_fd, uint64_t page_bytes,
                   uint64_t rss_pages, bool has_own)
{
    /* the large arrays at the end of the struct need not be cleared */
    memset(s, 0, offsetof(struct pagemap_scan, text));
    s->maps_fd = maps_fd;
    s->pagemap_fd = pagemap_fd;
    s->page_bytes = page_bytes;
    s->rss_pages = rss_pages;
    s->has_own = has_own;
    s->run_pages = PAGEMAP_CHUNK_MIN;
}

void pagemap_end(struct pagemap_scan *s)
{
    close_fd(&s->maps_fd);
    close_fd(&s->pagemap_fd);
}

/* Doubles or halves the size of the next call, so that each call takes about one sixteenth of the
 * time budget. */
static uint64_t adapt_size(uint64_t size, uint64_t took_ns, uint64_t budget_ns, uint64_t min,
                           uint64_t max)
{
    if (took_ns > budget_ns / 8)
        size /= 2;
    else if (took_ns < budget_ns / 32)
        size *= 2;
    return size < min ? min : size > max ? max : size;
}

static uint64_t count_call(struct pagemap_pace *pace, uint64_t began_ns)
{
    uint64_t took = clock_mono_ns() - began_ns;
    pace->calls++;
    if (took > pace->longest_call_ns)
        pace->longest_call_ns = took;
    return took;
}

static bool begins_with(const struct proc_map *map, const char *prefix)
{
    size_t len = strlen(prefix);
    return map->path_len >= len && memcmp(map->path, prefix, len) == 0;
}

/* True if the pages of MAP are counted. Device memory has no countable pages, huge pages of
 * hugetlbfs are not part of RSS, and [vsyscall] belongs to the kernel. */
static bool is_countable(const struct proc_map *map, bool can_seek)
{
    if (begins_with(map, "[vsyscall]") || begins_with(map, "/anon_hugepage"))
        return false;
    if (begins_with(map, "/dev/") && !begins_with(map, "/dev/zero") &&
        !begins_with(map, "/dev/shm/"))
        return false;
    /* Reservations (PROT_NONE) may be terabytes in size. A reservation may contain pages that were
     * touched before it became inaccessible. Such pages are counted only if the kernel can skip
     * holes. */
    return can_seek || map->readable || map->writable || map->executable;
}

/* ---- purpose of a mapping ---- */

static enum pagemap_kind mapping_kind(const struct proc_map *map,
                                      const struct pagemap_range *before)
{
    uint64_t size = map->end - map->start;
    bool is_bare = map->inode == 0 && map->path_len == 0 && !map->shared && !map->executable;
    if (begins_with(map, "[heap]"))
        return PAGEMAP_HEAP;
    if (begins_with(map, "[stack]"))
        return PAGEMAP_STACK;
    if (!is_bare)
        return PAGEMAP_OTHER;
    if (!map->readable && !map->writable)
        return size <= GUARD_BYTES_MAX ? PAGEMAP_GUARD : PAGEMAP_RESERVED;
    bool is_above_guard = before->kind == PAGEMAP_GUARD && before->end == map->start;
    return is_above_guard && map->writable && size <= STACK_BYTES_MAX ? PAGEMAP_STACK
                                                                      : PAGEMAP_OTHER;
}

/* True if R is a glibc thread arena. An arena begins at a multiple of 64 MiB, and the mapping
 * BEHIND reserves the space up to the next multiple. Adjacent full arenas below R are part of the
 * same mapping. */
static bool is_glibc_arena(const struct pagemap_range *r, const struct pagemap_range *behind)
{
    uint64_t reserved = ARENA_BYTES - r->end % ARENA_BYTES;
    return r->kind == PAGEMAP_OTHER && r->at % ARENA_BYTES == 0 && behind->at == r->end &&
           behind->end == r->end + reserved &&
           (behind->kind == PAGEMAP_RESERVED || behind->kind == PAGEMAP_GUARD);
}

/* Parses the next line of maps in the buffer. Returns 1; 0 if more of maps must be read first; or
 * -EBADMSG. */
static int next_maps_line(struct pagemap_scan *s, struct proc_map *ret)
{
    const char *p = s->text + s->text_at, *end = s->text + s->text_len;
    if (!s->maps_done && !memchr(p, '\n', (size_t)(end - p)))
        return 0;
    int r = proc_maps_next(&p, end, ret);
    s->text_at = (size_t)(p - s->text);
    return r;
}

/* Gets the next mapping whose pages are counted. The kind of a mapping depends on the line that
 * follows it in maps, so the mapping is complete only when that line has been read. Returns 1 with
 * a mapping. Returns 0 at the end of maps or if more of maps must be read first. Returns -EBADMSG
 * if maps is invalid. */
static int next_mapping(struct pagemap_scan *s, bool can_seek, struct pagemap_range *ret)
{
    struct proc_map line;
    for (;;) {
        int r = next_maps_line(s, &line);
        if (r < 0 || (r == 0 && (!s->maps_done || s->ahead.end == 0)))
            return r;
        struct pagemap_range before = s->ahead;
        s->ahead = (struct pagemap_range){0};
        bool is_own = r > 0 && s->has_own && line.inode == 0 && !line.shared &&
                      line.end - line.start >= OWN_BYTES_MIN;
        if (r > 0)
            s->ahead = (struct pagemap_range){line.start, line.end, mapping_kind(&line, &before),
                                              is_countable(&line, can_seek), is_own};
        if (!before.is_countable)
            continue;
        if (is_glibc_arena(&before, &s->ahead))
            before.kind = PAGEMAP_HEAP;
        *ret = before;
        return 1;
    }
}

/* Reads a part of maps. The kernel returns as many mappings as fit into a page, then releases the
 * lock. The next read continues at the address after the last mapping, so mappings may change
 * between two reads. */
static int pagemap_read_maps(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    s->text_len -= s->text_at;
    memmove(s->text, s->text + s->text_at, s->text_len);
    s->text_at = 0;
    if (s->text_len == sizeof s->text)
        return -EBADMSG; /* no line of /proc/PID/maps is longer than the buffer */
    uint64_t began = clock_mono_ns();
    ssize_t n = read(s->maps_fd, s->text + s->text_len, sizeof s->text - s->text_len);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    count_call(pace, began);
    s->text_len += (size_t)n;
    s->maps_done = n == 0;
    return 0;
}

/* Starts the next range: the next mapping, and mappings of the same kind that follow closely. Reads
 * from maps at most once. If that is not enough, the range stays empty. */
static int next_range(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    struct pagemap_range found;
    bool have_read = false;
    s->now = s->next;
    s->next = (struct pagemap_range){0};
    for (;;) {
        int r = next_mapping(s, !pace->no_seek, &found);
        if (r < 0)
            return r;
        if (r == 0) {
            if (s->maps_done || have_read)
                break;
            r = pagemap_read_maps(s, pace);
            if (r < 0)
                return r;
            have_read = true;
            continue;
        }
        if (s->now.end == 0) {
            s->now = found;
        } else if (found.kind == s->now.kind && found.is_own == s->now.is_own &&
                   found.at >= s->now.end &&
                   found.at - s->now.end <= GAP_PAGES_MAX * s->page_bytes) {
            s->now.end = found.end;
        } else {
            s->next = found;
            break;
        }
    }
    s->run_pages = PAGEMAP_CHUNK_MIN;
    s->seek = s->now.end - s->now.at > 2 * PAGEMAP_CHUNK_MIN * s->page_bytes;
    return 0;
}

/* Makes one PAGEMAP_SCAN call. Returns the number of regions found, or -EAGAIN if this kernel does
 * not support the call. */
static int pagemap_search(const struct pagemap_scan *s, struct pagemap_pace *pace,
                          struct scan_arg *arg, uint64_t *ret_took_ns)
{
    uint64_t began = clock_mono_ns();
    arg->size = sizeof *arg;
    int r = ioctl(s->pagemap_fd, SCAN_IOCTL, arg);
    if (r < 0 && errno == ESRCH)
        return -ESRCH;
    if (r < 0) {
        pace->no_seek = errno != EINTR; /* ENOTTY: a kernel before 6.7 */
        return -EAGAIN;
    }
    *ret_took_ns = count_call(pace, began);
    return r;
}

/* Counts anonymous memory in huge pages in the range just read. Called only if there are huge
 * pages: for this count the kernel checks for each page whether it belongs to a file, which doubles
 * the cost. */
static int count_huge(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    struct scan_region regions[HUGE_REGIONS];
    const uint64_t others = SCAN_IS_FILE | SCAN_IS_ZERO;
    struct scan_arg arg = {
        .start = s->huge_at,
        .end = s->huge_end,
        .vec = (uintptr_t)regions,
        .vec_len = HUGE_REGIONS,
        .category_inverted = s->has_huge ? others : 0,
        .category_mask = SCAN_IS_PRESENT | SCAN_IS_HUGE | (s->has_huge ? others : 0),
        .return_mask = SCAN_IS_HUGE,
    };
    uint64_t took;
    int r = pagemap_search(s, pace, &arg, &took);
    if (r < 0)
        return r == -EAGAIN ? 0 : r;
    bool is_again = r > 0 && !s->has_huge;
    for (int i = 0; i < r && s->has_huge; i++)
        s->huge_bytes += regions[i].end - regions[i].start;
    s->has_huge = is_again;
    if (is_again)
        s->huge_at = regions[0].start;
    else
        s->huge_at = arg.walk_end > s->huge_at ? arg.walk_end : s->huge_end;
    return 0;
}

/* Skips to the next present page of the range. */
static int seek_present(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    struct scan_region region = {0};
    uint64_t left = s->now.end - s->now.at, took;
    struct scan_arg arg = {
        .start = s->now.at,
        .end = s->now.at + (left < pace->seek_bytes ? left : pace->seek_bytes),
        .vec = (uintptr_t)&region,
        .vec_len = 1,
        .max_pages = 1,
        .category_mask = SCAN_IS_PRESENT,
        .return_mask = SCAN_IS_PRESENT,
    };
    int r = pagemap_search(s, pace, &arg, &took);
    if (r < 0)
        return r == -EAGAIN ? 0 : r;
    pace->seek_bytes =
        adapt_size(pace->seek_bytes, took, pace->budget_ns, SEEK_BYTES_MIN, SEEK_BYTES_MAX);
    s->now.at = r > 0 ? region.start : arg.end;
    s->seek = r == 0;
    s->run_pages = PAGEMAP_CHUNK_MIN;
    return 0;
}

/* Counts the present pages of memory that cannot be shared, and how many of them are in huge pages.
 * This takes a fifth of the time of read_chunk, because the kernel need not check whether each page
 * is mapped only once. */
static int count_own(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    struct scan_region regions[OWN_REGIONS];
    uint64_t left = s->now.end - s->now.at, took;
    struct scan_arg arg = {
        .start = s->now.at,
        .end = s->now.at + (left < pace->seek_bytes ? left : pace->seek_bytes),
        .vec = (uintptr_t)regions,
        .vec_len = OWN_REGIONS,
        .category_inverted = SCAN_IS_ZERO,
        .category_mask = SCAN_IS_PRESENT | SCAN_IS_ZERO,
        .return_mask = SCAN_IS_HUGE,
    };
    int r = pagemap_search(s, pace, &arg, &took);
    if (r < 0)
        return r == -EAGAIN ? 0 : r;
    uint64_t bytes = 0;
    for (int i = 0; i < r; i++) {
        uint64_t size = regions[i].end - regions[i].start;
        bytes += size;
        s->huge_bytes += regions[i].categories & SCAN_IS_HUGE ? size : 0;
    }
    s->unique_pages += bytes / s->page_bytes;
    s->kind_pages[s->now.kind] += bytes / s->page_bytes;
    pace->seek_bytes =
        adapt_size(pace->seek_bytes, took, pace->budget_ns, SEEK_BYTES_MIN, SEEK_BYTES_MAX);
    s->now.at = r == OWN_REGIONS ? regions[r - 1].end : arg.end;
    return 0;
}

static size_t count_entries(struct pagemap_scan *s, size_t count)
{
    size_t present = 0, unique = 0, file = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t is_unique = s->entries[i] >> PRESENT_BIT & s->entries[i] >> EXCLUSIVE_BIT & 1u;
        present += s->entries[i] >> PRESENT_BIT;
        unique += is_unique;
        file += is_unique & s->entries[i] >> FILE_BIT;
    }
    s->unique_pages += unique;
    s->unique_file_pages += file;
    s->kind_pages[s->now.kind] += present;
    return present;
}

static int read_chunk(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    size_t count = s->run_pages < pace->chunk_pages ? s->run_pages : pace->chunk_pages;
    uint64_t left = (s->now.end - s->now.at) / s->page_bytes;
    if (count > left)
        count = (size_t)left;
    uint64_t began = clock_mono_ns();
    ssize_t n = pread(s->pagemap_fd, s->entries, count * sizeof s->entries[0],
                      (off_t)(s->now.at / s->page_bytes * sizeof s->entries[0]));
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    uint64_t took = count_call(pace, began);
    size_t got = (size_t)n / sizeof s->entries[0];
    if (got == 0)
        return -ESRCH; /* the process no longer has this address space */
    size_t present = count_entries(s, got);
    s->holes_pages += got - present;
    s->huge_at = s->now.at;
    s->now.at += got * s->page_bytes;
    s->huge_end = present > 0 ? s->now.at : s->huge_at;
    /* the duration of a short read does not predict that of a long read */
    if (count >= PAGEMAP_CHUNK_MIN)
        pace->chunk_pages = (size_t)adapt_size(pace->chunk_pages, took, pace->budget_ns,
                                               PAGEMAP_CHUNK_MIN, PAGEMAP_CHUNK_MAX);
    if (present >= got / 4)
        s->run_pages = s->run_pages < PAGEMAP_CHUNK_MAX ? s->run_pages * 2 : PAGEMAP_CHUNK_MAX;
    else
        s->run_pages = pace->no_seek ? PAGEMAP_CHUNK_MAX : PAGEMAP_CHUNK_MIN;
    s->seek = present == 0;
    /* Without PAGEMAP_SCAN, holes cannot be skipped. The number of entries read for holes is
     * limited, because a terabyte of address space has two gigabytes of entries. */
    uint64_t holes_max = 4 * s->rss_pages + (UINT64_C(8192) * MIB) / s->page_bytes;
    return pace->no_seek && s->holes_pages > holes_max ? -EOVERFLOW : 0;
}

int pagemap_step(struct pagemap_scan *s, struct pagemap_pace *pace)
{
    if (s->huge_at < s->huge_end && !pace->no_seek)
        return count_huge(s, pace);
    if (s->now.at < s->now.end && s->now.is_own && !pace->no_seek)
        return count_own(s, pace);
    if (s->now.at < s->now.end)
        return s->seek && !pace->no_seek ? seek_present(s, pace) : read_chunk(s, pace);
    if (s->maps_done && s->next.end == 0 && s->ahead.end == 0 && s->text_at == s->text_len)
        /* the end of maps is also reached if the process has lost its address space, so pagemap is
         * read to check that the address space still exists */
        return pread(s->pagemap_fd, s->entries, sizeof s->entries[0], 0) > 0 ? PAGEMAP_DONE
                                                                             : -ESRCH;
    return next_range(s, pace);
}
