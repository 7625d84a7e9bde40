/* Counts the pages of one process in steps; each step is one short system call. Private to
 * proc/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAGEMAP_MAPS_TEXT = 8192,
    PAGEMAP_CHUNK_MAX = 8192, /* 64 KiB of pagemap entries, which cover 32 MiB of address space */
    /* number of entries in one page table; the kernel holds its lock for one page table at a
     * time */
    PAGEMAP_CHUNK_MIN = 512,
};

/* The time budget, and the chunk sizes that were adapted to it. They are used again when the next
 * process is counted. */
struct pagemap_pace {
    uint64_t budget_ns;  /* maximum duration of a system call; chunks shrink to meet it */
    size_t chunk_pages;  /* maximum number of entries per read */
    uint64_t seek_bytes; /* maximum address range per search */
    bool no_seek;        /* the kernel does not support PAGEMAP_SCAN */
    uint64_t calls, longest_call_ns;
};

void pagemap_pace_init(struct pagemap_pace *pace, uint64_t budget_ns, bool no_seek);

/* The purpose of a mapping, as far as /proc/PID/maps reveals it. */
enum pagemap_kind {
    PAGEMAP_OTHER,
    PAGEMAP_HEAP,     /* malloc's memory: [heap], and glibc's arenas for threads */
    PAGEMAP_STACK,    /* the stack of a thread, including the main thread */
    PAGEMAP_GUARD,    /* a few inaccessible pages, usually the guard below a stack */
    PAGEMAP_RESERVED, /* inaccessible memory that is larger than a guard */
    PAGEMAP_KINDS
};
struct pagemap_range {
    uint64_t at, end; /* bounds of an address range; both are 0 if there is no range */
    enum pagemap_kind kind;
    bool is_countable;
    /* anonymous memory that cannot be shared, so its pages need not be checked for sharing */
    bool is_own;
};

/* A count in progress. The mappings `now`, `next` and `ahead` are consecutive. */
struct pagemap_scan {
    int maps_fd, pagemap_fd; /* fds that the scan owns; -1 when no count is in progress */
    uint64_t page_bytes;
    /* number of resident pages, which determines how many entries may be read for holes */
    uint64_t rss_pages;
    bool has_own; /* no other process shares anonymous memory with the scanned process */
    /* the unread rest of the current range; all its mappings have the same kind */
    struct pagemap_range now;
    struct pagemap_range next; /* the mapping after `now`, already parsed */
    /* the mapping after `next`, which may determine the kind of `next` */
    struct pagemap_range ahead;
    /* size of the next chunk: small after a hole, larger while most pages are present */
    size_t run_pages;
    bool seek; /* the next system call searches for the next present page */
    bool maps_done;
    uint64_t unique_pages;
    /* how many of unique_pages are pages of files and shared memory */
    uint64_t unique_file_pages;
    uint64_t kind_pages[PAGEMAP_KINDS]; /* number of present pages per kind of mapping */
    uint64_t holes_pages;               /* number of entries read for absent pages */
    bool has_huge; /* there are huge pages of files or anonymous memory, starting at huge_at */
    /* the part of the range just read that has not been searched for huge pages yet */
    uint64_t huge_at, huge_end;
    uint64_t huge_bytes; /* anonymous memory in huge pages; unknown without PAGEMAP_SCAN */
    size_t text_len, text_at;
    char text[PAGEMAP_MAPS_TEXT];
    uint64_t entries[PAGEMAP_CHUNK_MAX];
};

enum pagemap_step { PAGEMAP_MORE = 0, PAGEMAP_DONE = 1 };

/* Starts a count and takes ownership of both fds. HAS_OWN means that this process shares no
 * anonymous memory: it was not forked from a living process, and every living process that was
 * forked from it has called exec. */
void pagemap_begin(struct pagemap_scan *s, int maps_fd, int pagemap_fd, uint64_t page_bytes,
                   uint64_t rss_pages, bool has_own);
/* Makes one system call. Returns PAGEMAP_MORE if the count continues; PAGEMAP_DONE if unique_pages
 * is complete; -ESRCH if the process died or called exec; -EOVERFLOW if there are too many holes to
 * read without PAGEMAP_SCAN; or -errno. */
int pagemap_step(struct pagemap_scan *s, struct pagemap_pace *pace);
void pagemap_end(struct pagemap_scan *s); /* closes the fds; S need not have a count in progress */
