/* late PATH: loads and unloads a library a few times and prints how often the library's own
 * operator new and delete were called. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

enum { TIMES = 5 };

int main(int argc, char **argv)
{
    int called = 0;
    for (int i = 0; i < TIMES && argc > 1; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library)
            break;
        called += ((int (*)(void))(uintptr_t)dlsym(library, "starter_called"))();
        if (dlclose(library) != 0)
            break;
    }
    printf("%d%s\n", called, dlerror() ? " and an error" : "");
    return called != 2 * TIMES;
}
