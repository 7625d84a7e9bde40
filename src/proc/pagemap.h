/* One process's pages, counted step by step: each step is one short system call. Private to
 * proc/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAGEMAP_MAPS_TEXT = 8192,
    PAGEMAP_CHUNK_MAX = 8192, /* entries: 64 KiB of them, 32 MiB of address space */
    PAGEMAP_CHUNK_MIN = 512,  /* one page table; the kernel holds the lock for no less */
};

/* How fast this machine answers; kept from process to process. */
struct pagemap_pace {
    uint64_t budget_ns;  /* for one call */
    size_t chunk_pages;  /* entries for one read */
    uint64_t seek_bytes; /* address space for one search */
    bool no_seek;        /* the kernel has no PAGEMAP_SCAN */
    uint64_t calls, longest_call_ns;
};

void pagemap_pace_init(struct pagemap_pace *pace, uint64_t budget_ns, bool no_seek);

/* Whose a mapping is, as far as maps tells. */
enum pagemap_kind {
    PAGEMAP_OTHER,
    PAGEMAP_HEAP,     /* malloc's: [heap], and glibc's arenas for threads */
    PAGEMAP_STACK,    /* of a thread, the first one included */
    PAGEMAP_GUARD,    /* a few pages that nobody may touch: below a stack, mostly */
    PAGEMAP_RESERVED, /* more of them */
    PAGEMAP_KINDS
};
struct pagemap_range {
    uint64_t at, end; /* 0 and 0: none */
    enum pagemap_kind kind;
    bool is_countable;
    bool is_own; /* anonymous memory that nobody can share: no page of it need be asked */
};

/* One count under way. */
struct pagemap_scan {
    int maps_fd, pagemap_fd; /* owned; -1 when idle */
    uint64_t page_bytes;
    uint64_t rss_pages;         /* for scale */
    bool has_own;               /* nobody shares the anonymous memory of the process */
    struct pagemap_range now;   /* the rest of what is being read: mappings of one kind */
    struct pagemap_range next;  /* the mapping behind it, already taken off maps */
    struct pagemap_range ahead; /* and the one behind that: it tells what the one before is */
    size_t run_pages;           /* next chunk: small after a hole, growing while pages are dense */
    bool seek;                  /* look for the next present page first */
    bool maps_done;
    uint64_t unique_pages;
    uint64_t unique_file_pages;         /* of them, those of files and of shared memory */
    uint64_t kind_pages[PAGEMAP_KINDS]; /* present ones */
    uint64_t holes_pages;               /* entries read in vain */
    bool has_huge;                      /* there are some from huge_at on: of files, or not */
    uint64_t huge_at, huge_end;         /* what was read and is still to be searched for them */
    uint64_t huge_bytes;                /* of anonymous memory; not counted without PAGEMAP_SCAN */
    size_t text_len, text_at;
    char text[PAGEMAP_MAPS_TEXT];
    uint64_t entries[PAGEMAP_CHUNK_MAX];
};

enum pagemap_step { PAGEMAP_MORE = 0, PAGEMAP_DONE = 1 };

/* Takes both fds over. HAS_OWN: no process was forked from this one that lives without another
 * exec, nor this one from another. */
void pagemap_begin(struct pagemap_scan *s, int maps_fd, int pagemap_fd, uint64_t page_bytes,
                   uint64_t rss_pages, bool has_own);
/* PAGEMAP_MORE, PAGEMAP_DONE (unique_pages is whole), or -ESRCH (died or exec'd), -EOVERFLOW (too
 * many holes to read without PAGEMAP_SCAN), -errno. */
int pagemap_step(struct pagemap_scan *s, struct pagemap_pace *pace);
void pagemap_end(struct pagemap_scan *s); /* closes; idle is fine */
