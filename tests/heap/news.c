/* Allocates by operator new, 16 MiB in pieces of 4 KiB, and deletes half of them; and 8 MiB by
 * malloc. Stays until its input ends. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECES = 4096, PIECE = 4096 };

int main(void)
{
    void *(*make)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "_Znwm");
    void (*drop)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "_ZdlPv");
    static void *pieces[PIECES], *others[PIECES / 2];
    if (!make || !drop)
        return 1;
    for (int i = 0; i < PIECES; i++)
        pieces[i] = make(PIECE);
    for (int i = 0; i < PIECES; i += 2)
        drop(pieces[i]);
    for (int i = 0; i < PIECES / 2; i++)
        others[i] = malloc(PIECE);
    puts("ready");
    fflush(stdout);
    char end;
    return read(0, &end, 1) != 0 || !others[0];
}
