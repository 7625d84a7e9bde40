/* The bounds of stacks. A thread's own stack is known without asking: the main one by where the
 * loader found it, that of another by its thread control block, which glibc puts at its top, also
 * when the program brought the memory. Whether a stack pointer is on it, or on a coroutine's or a
 * signal's stack somewhere below, is known by the memory between them being one stretch; glibc's
 * guard pages see to it that a foreign one is not. On a foreign stack each page is looked at before
 * it is read. */
#include "heap/unwind_stack.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/unwind.h"

enum {
    PAGE_BYTES = 4096, /* the smallest there is: with larger ones some are asked for twice */
    /* How much of a thread's own stack is looked at in one go, about 100 ns a page and once in the
     * thread's life. Its thread-local variables are there too, between stack and control block. */
    STRETCH_BYTES = 256 * PAGE_BYTES,
    GROWTH_BYTES = 256 * PAGE_BYTES,
    /* The kernel maps nothing else so near to the main stack, whatever its limit. */
    MAIN_GAP_BYTES = 128 << 20,
};

extern void *__libc_stack_end __attribute__((weak)); /* the loader's; not in every libc */

static uintptr_t page_of(uintptr_t address)
{
    return address & ~(uintptr_t)(PAGE_BYTES - 1);
}

/* The kernel reads the mask before it sees that it was asked for nothing it can do: EFAULT or
 * EINVAL, and no effect either way. */
static bool is_readable(uintptr_t page)
{
    int saved = errno;
    long r = syscall(SYS_rt_sigprocmask, ~0, page, NULL, 8);
    bool ret = r < 0 && errno == EINVAL;
    errno = saved;
    return ret;
}

static bool may_ask(void)
{
    return !atomic_load_explicit(&heap_process.is_confined, memory_order_relaxed);
}

static bool is_stretch(uintptr_t from, uintptr_t to)
{
    for (uintptr_t page = page_of(to - 1); page >= page_of(from); page -= PAGE_BYTES)
        if (!is_readable(page))
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
    if (sp >= t->stack_low || t->stack_low - sp > STRETCH_BYTES || !may_ask() ||
        !is_stretch(sp, t->stack_low))
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
        .low = sp, .high = page_of(sp) + PAGE_BYTES, .may_grow = may_ask()};
}

bool unwind_grow(struct unwind_extent *e, uintptr_t to)
{
    if (!e->may_grow || to < e->high || to - e->high > GROWTH_BYTES)
        return false;
    while (e->high < to) {
        if (!is_readable(e->high))
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
