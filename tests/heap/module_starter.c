/* The library that late.c loads. Its constructor waits for a thread that calls operator new and
 * delete, which this library defines, and operator new[] and delete[], which it does not define. */
#include <pthread.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

extern void *_Znam(size_t size) __attribute__((weak));
extern void _ZdaPv(void *p) __attribute__((weak));
static int called;

EXPORT void *_Znwm(size_t size);
void *_Znwm(size_t size)
{
    called++;
    return malloc(size);
}

EXPORT void _ZdlPv(void *p);
void _ZdlPv(void *p)
{
    called++;
    free(p);
}

EXPORT int starter_called(void);
int starter_called(void)
{
    return called;
}

static void *work(void *unused)
{
    (void)unused;
    _ZdlPv(_Znwm(100));
    if (_Znam && _ZdaPv)
        _ZdaPv(_Znam(100));
    return NULL;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) == 0)
        pthread_join(thread, NULL);
}
