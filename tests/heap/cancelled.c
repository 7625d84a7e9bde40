/* A thread that has a pending cancellation allocates memory: malloc must not be a cancellation
 * point. Prints how many allocations succeeded. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic(int) is_asked, got_through;

static void *allocate(void *nothing)
{
    while (!atomic_load(&is_asked))
        ;
    for (int i = 0; i < 20; i++) {
        void *p = malloc(64 << 20);
        free(p);
        atomic_fetch_add(&got_through, 1);
    }
    pthread_testcancel();
    return nothing;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate, NULL) != 0)
        return 2;
    pthread_cancel(thread);
    atomic_store(&is_asked, 1);
    void *result;
    pthread_join(thread, &result);
    printf("%d %d\n", atomic_load(&got_through), result == PTHREAD_CANCELED);
    return 0;
}
