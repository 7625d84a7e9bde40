/* Threads allocate blocks and free blocks that other threads allocated, while further threads start
 * and exit, some with the smallest possible stack. All blocks are freed at the end. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 64, SHORT_LIVED = 200, ROUNDS = 4000, SHARED = 512 };

static _Atomic(void *) shared[SHARED];
static pthread_key_t key;
static _Atomic(unsigned) errors;

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245 + 12345;
    return *state >> 8;
}

/* A block starts with its size; its last byte is the lowest byte of the size. */
static void *make(unsigned *state)
{
    size_t size = 32 + next(state) % 20000;
    unsigned char *p = next(state) % 4 ? malloc(size) : realloc(malloc(16), size);
    memcpy(p, &size, sizeof(size));
    p[size - 1] = (unsigned char)size;
    return p;
}

static void check_and_free(void *block)
{
    unsigned char *p = block;
    size_t size;
    if (!p)
        return;
    memcpy(&size, p, sizeof(size));
    if (p[size - 1] != (unsigned char)size)
        atomic_fetch_add(&errors, 1);
    free(p);
}

static void *churn(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    /* The destructor frees this block while the thread exits. */
    pthread_setspecific(key, make(&state));
    for (int i = 0; i < ROUNDS; i++)
        check_and_free(atomic_exchange(&shared[next(&state) % SHARED], make(&state)));
    return NULL;
}

static void *come_and_go(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    pthread_setspecific(key, make(&state));
    check_and_free(make(&state));
    return NULL;
}

static void *come_and_go_all(void *nothing)
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (size_t)PTHREAD_STACK_MIN);
    for (uintptr_t i = 0; i < SHORT_LIVED; i++) {
        pthread_t thread;
        if (pthread_create(&thread, i % 2 ? &small : NULL, come_and_go, (void *)(i + 1000)) == 0)
            pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&small);
    return nothing;
}

int main(void)
{
    pthread_t threads[THREADS], other;
    pthread_key_create(&key, check_and_free);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) != 0)
            return 2;
    if (pthread_create(&other, NULL, come_and_go_all, NULL) != 0)
        return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < SHARED; i++)
        check_and_free(atomic_load(&shared[i]));
    printf("%u\n", atomic_load(&errors));
    return 0;
}
