/* Finds the bounds of stacks. The loader publishes the bounds of the main thread's stack. The stack
 * of any other thread ends at its thread control block, which glibc places at the top of the stack,
 * even in memory that the program provided.
 *
 * SP may also be on the stack of a coroutine or of a signal handler, below the thread's own stack.
 * SP is on the thread's own stack if all memory between SP and the top is mapped, because glibc's
 * guard pages would otherwise leave a gap. On any other stack, each page is probed before it is
 * read. */
#include "heap/unwind_stack.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/unwind.h"

enum {
    /* The smallest page size of all systems. On a system with larger pages, a page may be probed
     * more than once. */
    PAGE_BYTES = 4096,
    /* At most this much of a thread's own stack is probed at once. A page is probed once in the
     * thread's life, at a cost of about 100 ns. Thread-local variables lie between the stack and
     * the control block, and are probed too. */
    STRETCH_BYTES = 256 * PAGE_BYTES,
    GROWTH_BYTES = 256 * PAGE_BYTES,
    /* The kernel maps nothing else within this distance of the main stack, regardless of the
     * stack's limit. */
    MAIN_GAP_BYTES = 128 << 20,
};

/* Highest address of the main stack, set by the loader of most libcs. */
extern void *__libc_stack_end __attribute__((weak));

static uintptr_t page_of(uintptr_t address)
{
    return address & ~(uintptr_t)(PAGE_BYTES - 1);
}

/* Probes the address by rt_sigprocmask with an invalid request. The kernel reads the mask before it
 * rejects the request, so the result is EFAULT if ADDRESS cannot be read, else EINVAL. For NULL the
 * kernel reads no mask, and the call succeeds. */
bool unwind_is_readable(uintptr_t address)
{
    int saved = errno;
    long r = syscall(SYS_rt_sigprocmask, ~0, address, NULL, 8);
    bool ret = r < 0 && errno == EINVAL;
    errno = saved;
    return ret;
}

static bool may_probe(void)
{
    return !HEAP_LOAD(heap_process.is_confined);
}

static bool is_all_readable(uintptr_t from, uintptr_t to)
{
    for (uintptr_t page = page_of(to - 1); page >= page_of(from); page -= PAGE_BYTES)
        if (!unwind_is_readable(page))
            return false;
    return true;
}

static uintptr_t thread_pointer(void)
{
    uintptr_t tp;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(tp));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(tp));
#else
    tp = 0;
#endif
    return tp;
}

static bool is_on_main(uintptr_t sp, uintptr_t *ret_end)
{
    uintptr_t end = &__libc_stack_end ? (uintptr_t)__libc_stack_end : 0;
    *ret_end = end;
    return sp < end && end - sp < MAIN_GAP_BYTES;
}

uintptr_t unwind_stack_end(struct heap_thread *t, uintptr_t sp)
{
    uintptr_t end;
    if (HEAP_LIKELY(sp >= t->stack_low && sp < t->stack_end))
        return t->stack_end;
    if (is_on_main(sp, &end))
        return end;
    if (!t->stack_end) {
        end = thread_pointer();
        t->stack_low = end;
        t->stack_end = end;
    }
    if (sp >= t->stack_low || t->stack_low - sp > STRETCH_BYTES || !may_probe() ||
        !is_all_readable(sp, t->stack_low))
        return 0;
    t->stack_low = page_of(sp);
    return t->stack_end;
}

struct unwind_extent unwind_extent(struct heap_thread *t, uintptr_t sp)
{
    uintptr_t end = unwind_stack_end(t, sp);
    if (end)
        return (struct unwind_extent){.low = sp, .high = end};
    return (struct unwind_extent){
        .low = sp, .high = page_of(sp) + PAGE_BYTES, .may_grow = may_probe()};
}

bool unwind_grow(struct unwind_extent *e, uintptr_t to)
{
    if (!e->may_grow || to < e->high || to - e->high > GROWTH_BYTES)
        return false;
    while (e->high < to) {
        if (!unwind_is_readable(e->high))
            return false;
        e->high += PAGE_BYTES;
    }
    return true;
}

void unwind_reset(void)
{
    heap_thread.stack_end = 0;
    heap_thread.stack_low = 0;
}
