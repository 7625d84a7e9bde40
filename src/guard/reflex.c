/* The main loop's part of the reflex: allocates its memory, starts its thread, and maintains its
 * gauges and table of processes. */
#include "guard/reflex.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "guard/reflex_private.h"

/* glibc requires a stack of at least PTHREAD_STACK_MIN: 16 KiB, and 128 KiB on aarch64. */
#ifdef __aarch64__
#define REFLEX_STACK_BYTES (128 << 10)
#else
#define REFLEX_STACK_BYTES (64 << 10)
#endif

/* sanitizers need a larger stack */
#if defined(__SANITIZE_ADDRESS__)
enum { STACK_BYTES = 1 << 20 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { STACK_BYTES = 1 << 20 };
#else
enum { STACK_BYTES = REFLEX_STACK_BYTES };
#endif
#else
enum { STACK_BYTES = REFLEX_STACK_BYTES };
#endif
enum { FREE = -1 };

extern const char __start_ebb_reflex[], __stop_ebb_reflex[];

/* Locks pages by a direct system call, because the sanitizers replace mlock() by a function that
 * only returns 0. */
static bool lock_pages(const void *p, size_t bytes)
{
    return syscall(SYS_mlock, p, bytes) == 0;
}

static size_t page_up(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void *map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void key_set(struct reflex_key *key, const char *text, const char *end)
{
    if (text)
        key->len = (size_t)snprintf(key->text, sizeof key->text, "%s%s", text, end);
}

static void block_fill(struct reflex *r, int kill_fd, bool may_kill, int event_fd)
{
    memset(r, 0, sizeof *r); /* clearing the memory also touches every page */
    r->kill_fd = kill_fd;
    r->may_kill = may_kill;
    r->event_fd = event_fd;
    r->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < LIMIT_STATS; i++) {
        key_set(&r->keys[REFLEX_CGROUP_V1][i], limit_files(LIMIT_CGROUP_V1)->keys[i], " ");
        key_set(&r->keys[REFLEX_CGROUP_V2][i], limit_files(LIMIT_CGROUP_V2)->keys[i], " ");
    }
    key_set(&r->keys[REFLEX_HOST][0], "MemTotal", ":");
    key_set(&r->keys[REFLEX_HOST][1], "MemAvailable", ":");
    for (size_t i = 0; i < REFLEX_PROCESSES; i++)
        r->processes[i].pidfd = r->processes[i].statm_fd = FREE;
}

/* Allocates the thread's stack, with a guard page below it. */
static int stack_make(struct reflex *r)
{
    size_t guard = (size_t)r->page_bytes;
    r->stack = map_pages(guard + STACK_BYTES);
    if (!r->stack)
        return -errno;
    mprotect(r->stack, guard, PROT_NONE);
    char *stack = (char *)r->stack + guard;
    memset(stack, 0, STACK_BYTES);
    r->is_locked = lock_pages(stack, STACK_BYTES) && r->is_locked;
    return 0;
}

/* Gives forked children zeroed pages in place of the thread's stack. A shared page would be
 * copy-on-write, so the thread's first write after a fork would have to allocate a page. The page
 * at the end of the stack stays shared: glibc keeps the thread descriptor there, and since glibc
 * 2.41 the child follows pointers in it. */
static void keep_from_children(struct reflex *r)
{
#ifdef __GLIBC__
    char *stack = (char *)r->stack + r->page_bytes;
    uintptr_t used = (uintptr_t)r->thread - (uintptr_t)stack;
    if (used < STACK_BYTES)
        madvise(stack, used & ~(uintptr_t)(r->page_bytes - 1), MADV_WIPEONFORK);
#else
    (void)r;
#endif
}

static int reflex_thread_start(struct reflex *r)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int e = pthread_attr_init(&attr);
    if (e != 0)
        return -e;
    e = pthread_attr_setstack(&attr, (char *)r->stack + r->page_bytes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (e == 0)
        e = pthread_create(&r->thread, &attr, reflex_thread, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (e == 0) {
        pthread_setname_np(r->thread, "ebb-reflex");
        keep_from_children(r);
    }
    return -e;
}

static void block_free(struct reflex *r)
{
    if (r->stack)
        munmap(r->stack, (size_t)r->page_bytes + STACK_BYTES);
    close(r->event_fd);
    munmap(r, page_up(sizeof *r));
}

int reflex_new(int kill_fd, bool may_kill, struct reflex **ret, struct err *err)
{
    struct reflex *r = map_pages(page_up(sizeof *r));
    if (!r)
        return err_set(err, -errno, "cannot allocate memory for the guard: %s", strerror(errno));
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0) {
        int r_event =
            err_set(err, -errno, "cannot create an eventfd for the guard: %s", strerror(errno));
        munmap(r, page_up(sizeof *r));
        return r_event;
    }
    block_fill(r, kill_fd, may_kill, event_fd);
    /* forked children do not inherit these pages, so the pages never become copy-on-write */
    madvise(r, page_up(sizeof *r), MADV_DONTFORK);
    r->is_locked = lock_pages(r, sizeof *r);
    /* reflex_free does not unlock the section. Locks do not nest, so unlocking would also unlock
     * the section for another reflex. */
    if (!lock_pages(__start_ebb_reflex, (size_t)(__stop_ebb_reflex - __start_ebb_reflex)))
        r->is_locked = false;
    int e = stack_make(r);
    if (e == 0)
        e = reflex_thread_start(r);
    if (e < 0) {
        block_free(r);
        return err_set(err, e, "cannot start the guard's thread: %s", strerror(-e));
    }
    *ret = r;
    return 0;
}

static bool is_retired(int fd)
{
    return fd < FREE;
}

static int retired(int fd)
{
    return -2 - fd; /* retired(retired(fd)) is fd again */
}

static uint32_t phase_of(const struct reflex *r)
{
    return __atomic_load_n(&r->phase, __ATOMIC_SEQ_CST);
}

static void close_any(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Closes removed fds, unless a sample that may use them is still in progress. */
static void close_retired(struct reflex *r)
{
    uint32_t phase = phase_of(r);
    if (r->n_retired == 0 || ((phase & 1) && phase == r->retired_phase))
        return;
    for (uint32_t i = 0; i < r->n_processes && r->n_retired > 0; i++) {
        struct reflex_process *p = &r->processes[i];
        if (!is_retired(p->pidfd))
            continue;
        close_any(retired(p->pidfd));
        if (is_retired(p->statm_fd))
            close_any(retired(p->statm_fd));
        __atomic_store_n(&p->statm_fd, FREE, __ATOMIC_SEQ_CST);
        __atomic_store_n(&p->pidfd, FREE, __ATOMIC_SEQ_CST);
        r->n_retired--;
    }
}

/* Waits until the sample in progress, if any, has ended. */
static void wait_for_sample(const struct reflex *r)
{
    const struct timespec moment = {0, 100000};
    uint32_t phase = phase_of(r);
    while ((phase & 1) && phase_of(r) == phase)
        nanosleep(&moment, NULL);
}

void reflex_free(struct reflex *r)
{
    if (!r)
        return;
    __atomic_store_n(&r->stop, 1, __ATOMIC_SEQ_CST);
    reflex_wake(r);
    pthread_join(r->thread, NULL);
    for (uint32_t i = 0; i < r->n_processes; i++) {
        const struct reflex_process *p = &r->processes[i];
        close_any(is_retired(p->pidfd) ? retired(p->pidfd) : p->pidfd);
        close_any(is_retired(p->statm_fd) ? retired(p->statm_fd) : p->statm_fd);
    }
    block_free(r);
}

bool reflex_is_locked(const struct reflex *r)
{
    return r->is_locked;
}

int reflex_event_fd(const struct reflex *r)
{
    return r->event_fd;
}

void reflex_gauge(struct reflex *r, unsigned which, const struct reflex_gauge *gauge)
{
    __atomic_add_fetch(&r->gauge_seq[which], 1, __ATOMIC_SEQ_CST);
    ((volatile struct reflex_gauge *)r->gauges)[which] = *gauge;
    __atomic_add_fetch(&r->gauge_seq[which], 1, __ATOMIC_SEQ_CST);
    wait_for_sample(r); /* the caller may close the old fds after this */
    reflex_wake(r);
}

void reflex_overlap(struct reflex *r, uint64_t bytes, uint64_t shared_bytes)
{
    __atomic_store_n(&r->overlap_shared_pages, shared_bytes / r->page_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&r->overlap_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_add_fetch(&r->overlap_gen, 1, __ATOMIC_SEQ_CST);
    reflex_wake(r);
}

static struct reflex_process *find_slot(struct reflex *r, uint32_t slot)
{
    for (uint32_t i = 0; i < r->n_processes; i++)
        if (r->processes[i].slot == slot && r->processes[i].pidfd >= 0)
            return &r->processes[i];
    return NULL;
}

static struct reflex_process *find_free(struct reflex *r)
{
    for (uint32_t i = 0; i < r->n_processes; i++)
        if (r->processes[i].pidfd == FREE)
            return &r->processes[i];
    return r->n_processes < REFLEX_PROCESSES ? &r->processes[r->n_processes] : NULL;
}

/* Fills in an entry of the table. The fds are stored last, so that the thread sees only complete
 * entries. */
static void process_put(struct reflex *r, struct reflex_process *p, uint32_t slot, int pidfd,
                        int statm_fd)
{
    uint64_t resident, shared, anon = 0;
    char text[128];
    if (statm_fd >= 0 && reflex_statm(statm_fd, text, sizeof text, &resident, &shared))
        anon = resident > shared ? resident - shared : 0;
    p->slot = slot;
    p->base_pages = anon < UINT32_MAX ? (uint32_t)anon : UINT32_MAX;
    p->overlap_gen = r->overlap_gen;
    __atomic_store_n(&p->statm_fd, statm_fd >= 0 ? statm_fd : FREE, __ATOMIC_SEQ_CST);
    __atomic_store_n(&p->pidfd, pidfd, __ATOMIC_SEQ_CST);
    if (p == &r->processes[r->n_processes])
        __atomic_add_fetch(&r->n_processes, 1, __ATOMIC_SEQ_CST);
}

int reflex_add(struct reflex *r, uint32_t slot, int pidfd, int statm_fd)
{
    if (pidfd < 0) {
        close_any(statm_fd);
        return -EBADF;
    }
    reflex_remove(r, slot);
    struct reflex_process *p = find_free(r);
    if (p)
        process_put(r, p, slot, pidfd, statm_fd);
    /* This check follows the insertion, so that no process escapes a kill in progress: either the
     * kill finds the process in the table, or the process is killed here. */
    if (__atomic_load_n(&r->arm, __ATOMIC_SEQ_CST) & 1)
        reflex_signal(pidfd);
    if (p)
        return 0;
    close(pidfd);
    close_any(statm_fd);
    return -ENOSPC;
}

void reflex_remove(struct reflex *r, uint32_t slot)
{
    struct reflex_process *p = find_slot(r, slot);
    close_retired(r);
    if (!p)
        return;
    __atomic_store_n(&p->pidfd, retired(p->pidfd), __ATOMIC_SEQ_CST);
    if (p->statm_fd >= 0)
        __atomic_store_n(&p->statm_fd, retired(p->statm_fd), __ATOMIC_SEQ_CST);
    r->n_retired++;
    r->retired_phase = phase_of(r);
    close_retired(r);
}

#define SHOWN(field) __atomic_load_n(&s->field, __ATOMIC_RELAXED)

void reflex_read(struct reflex *r, unsigned which, struct reflex_reading *ret)
{
    const struct timespec moment = {0, 100000};
    const struct reflex_shown *s = &r->shown[which];
    close_retired(r);
    for (;;) {
        uint32_t seq = __atomic_load_n(&r->shown_seq[which], __ATOMIC_SEQ_CST);
        *ret = (struct reflex_reading){.known = SHOWN(known) != 0,
                                       .t_ns = SHOWN(t_ns),
                                       .used_bytes = SHOWN(used_bytes),
                                       .room_bytes = SHOWN(room_bytes),
                                       .least_headroom_bytes = SHOWN(least_headroom_bytes),
                                       .pace_bytes_per_s = (double)SHOWN(pace)};
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(seq & 1) && __atomic_load_n(&r->shown_seq[which], __ATOMIC_SEQ_CST) == seq)
            return;
        nanosleep(&moment, NULL);
    }
}

int reflex_kill(struct reflex *r)
{
    __atomic_or_fetch(&r->arm, 1, __ATOMIC_SEQ_CST);
    int count = reflex_signal_all(r);
    __atomic_store_n(&r->release, 1, __ATOMIC_SEQ_CST);
    reflex_wake(r); /* the thread calls process_mrelease, which would take too long in the loop */
    return count;
}

uint64_t reflex_killed_ns(const struct reflex *r, unsigned *ret_which)
{
    uint64_t ns = __atomic_load_n(&r->killed_ns, __ATOMIC_ACQUIRE);
    if (ns != 0 && ret_which)
        *ret_which = __atomic_load_n(&r->killed_which, __ATOMIC_RELAXED);
    return ns;
}

void reflex_rearm(struct reflex *r)
{
    uint32_t next = (r->arm & ~1u) + 2;
    /* Bit 0 prevents a new kill until killed_ns has been reset. Otherwise the reset could erase the
     * time of the new kill. */
    __atomic_store_n(&r->arm, next | 1, __ATOMIC_SEQ_CST);
    wait_for_sample(r);
    __atomic_store_n(&r->killed_ns, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&r->arm, next, __ATOMIC_SEQ_CST);
    reflex_wake(r);
}
