/* Counts the pages of one process in steps of one short system call each. Private to proc/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAGEMAP_MAPS_TEXT = 8192,
    PAGEMAP_CHUNK_MAX = 8192, /* 64 KiB of entries, which cover 32 MiB of address space */
    PAGEMAP_CHUNK_MIN = 512,  /* one page table: the kernel holds the lock for at least that much */
};

/* The speed of this machine, remembered from process to process. */
struct pagemap_pace {
    uint64_t budget_ns;  /* time that one call may take */
    size_t chunk_pages;  /* entries per read */
    uint64_t seek_bytes; /* address space per search */
    bool no_seek;        /* the kernel has no PAGEMAP_SCAN */
    uint64_t calls, longest_call_ns;
};

void pagemap_pace_init(struct pagemap_pace *pace, uint64_t budget_ns, bool no_seek);

/* The purpose of a mapping, as far as maps shows it. */
enum pagemap_kind {
    PAGEMAP_OTHER,
    PAGEMAP_HEAP,     /* malloc's memory: [heap], and glibc's arenas for threads */
    PAGEMAP_STACK,    /* the stack of a thread, including the main thread */
    PAGEMAP_GUARD,    /* a few inaccessible pages: mostly below a stack */
    PAGEMAP_RESERVED, /* more inaccessible pages than a guard has */
    PAGEMAP_KINDS
};
struct pagemap_range {
    uint64_t at, end; /* 0 and 0: no range */
    enum pagemap_kind kind;
    bool is_countable;
    /* anonymous memory that cannot be shared, so its pages need not be checked one by one */
    bool is_own;
};

/* A count in progress. The mappings `now`, `next` and `ahead` are adjacent. */
struct pagemap_scan {
    int maps_fd, pagemap_fd; /* owned; -1 when idle */
    uint64_t page_bytes;
    uint64_t rss_pages;       /* scales the limit of holes */
    bool has_own;             /* no other process shares anonymous memory with this one */
    struct pagemap_range now; /* the rest of the range being read, which has mappings of one kind */
    struct pagemap_range next;  /* the mapping after `now`, already parsed */
    struct pagemap_range ahead; /* the mapping after `next`: it shows what kind `next` is */
    size_t
        run_pages; /* size of the next chunk: small after a hole, growing while pages are dense */
    bool seek;     /* search for the next present page first */
    bool maps_done;
    uint64_t unique_pages;
    uint64_t unique_file_pages; /* the part of unique_pages that is files and shared memory */
    uint64_t kind_pages[PAGEMAP_KINDS]; /* present pages by kind of mapping */
    uint64_t holes_pages;               /* entries read for pages that are not present */
    bool has_huge; /* there are huge pages from huge_at on, either of files or anonymous */
    uint64_t huge_at, huge_end; /* the range just read, not yet searched for huge pages */
    uint64_t huge_bytes; /* anonymous memory in huge pages; not counted without PAGEMAP_SCAN */
    size_t text_len, text_at;
    char text[PAGEMAP_MAPS_TEXT];
    uint64_t entries[PAGEMAP_CHUNK_MAX];
};

enum pagemap_step { PAGEMAP_MORE = 0, PAGEMAP_DONE = 1 };

/* Starts a count and takes ownership of both fds. HAS_OWN: no living process was forked from this
 * one without exec, and this one was not forked from a living process. */
void pagemap_begin(struct pagemap_scan *s, int maps_fd, int pagemap_fd, uint64_t page_bytes,
                   uint64_t rss_pages, bool has_own);
/* Makes one call. PAGEMAP_MORE; PAGEMAP_DONE (unique_pages is complete); or -ESRCH (the process
 * died or called exec), -EOVERFLOW (too many holes to read without PAGEMAP_SCAN), -errno. */
int pagemap_step(struct pagemap_scan *s, struct pagemap_pace *pace);
void pagemap_end(struct pagemap_scan *s); /* closes the fds; S may be idle */
