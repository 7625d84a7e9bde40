/* Signal handlers allocate at any time and on a small alternate stack, and memory is allocated and
 * freed at the very end of the process. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>

enum { ROUNDS = 300, CHURN = 200000 };

static _Atomic(unsigned) handled, mapped;
static void *kept[8];

static void on_usr1(int signal)
{
    (void)signal;
    void *p = malloc(50000), *q = calloc(10, 5000);
    p = realloc(p, 90000);
    if (p && q)
        atomic_fetch_add(&handled, 1);
    free(p);
    free(q);
}

/* The handler may interrupt malloc itself, so it can only use mmap. */
static void on_alarm(int signal)
{
    (void)signal;
    void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED && munmap(p, 1 << 20) == 0)
        atomic_fetch_add(&mapped, 1);
}

static void at_the_end(void)
{
    for (int i = 0; i < 8; i++) {
        free(kept[i]);
        kept[i] = malloc(100000);
    }
}

__attribute__((destructor)) static void later_still(void)
{
    for (int i = 0; i < 8; i++)
        free(kept[i]);
    free(malloc(1000000));
}

int main(void)
{
    /* The alternate stack must hold the kernel's signal frame, whose size depends on the registers
     * of the machine. */
    size_t frame = getauxval(51 /* AT_MINSIGSTKSZ */), least = (size_t)MINSIGSTKSZ;
    size_t len = (frame > least ? frame : least) + 8192;
    stack_t small = {.ss_sp = malloc(len), .ss_size = len};
    struct sigaction usr1 = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
    struct sigaction alarm = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    if (sigaltstack(&small, NULL) != 0)
        return 2;
    sigaction(SIGUSR1, &usr1, NULL);
    sigaction(SIGALRM, &alarm, NULL);
    atexit(at_the_end);
    for (int i = 0; i < ROUNDS; i++)
        raise(SIGUSR1);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < CHURN || atomic_load(&mapped) < 20; i++) {
        void **place = &kept[i % 8];
        free(*place);
        *place = malloc((size_t)(i % 5000) + 1);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%u\n", atomic_load(&handled));
    return 0;
}
