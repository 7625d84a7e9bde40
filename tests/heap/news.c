/* Allocates 48 MiB with one operator new, 8 MiB with operator new[] in blocks of 4112 bytes, 16 MiB
 * with operator new in blocks of 4 KiB (half are deleted), and 8 MiB with malloc, slowly enough to
 * keep the sampling interval. Exits when its input ends. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PIECES = 4096, PIECE = 4096, LARGE = 48 << 20 };

static void rest(int i)
{
    struct timespec pause = {.tv_nsec = 10000000};
    if (i % 64 == 0)
        nanosleep(&pause, NULL);
}

int main(void)
{
    void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "_Znwm");
    void *(*make_array)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "_Znam");
    void (*drop)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "_ZdlPv");
    static void *pieces[PIECES], *others[PIECES / 2], *arrays[PIECES / 2];
    if (!make || !make_array || !drop)
        return 1;
    void *large = make(LARGE);
    for (int i = 0; i < PIECES / 2; i++) {
        arrays[i] = make_array(PIECE + 16);
        rest(i);
    }
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = make(PIECE);
        rest(i);
    }
    for (int i = 0; i < PIECES; i += 2)
        drop(pieces[i]);
    for (int i = 0; i < PIECES / 2; i++) {
        others[i] = malloc(PIECE);
        rest(i);
    }
    puts("ready");
    fflush(stdout);
    char end;
    return read(0, &end, 1) != 0 || !large || !others[0] || !arrays[0];
}
