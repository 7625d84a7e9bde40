/* plugins PATH: loads and unloads a library a few hundred times. Each time the library allocates
 * memory that is freed after unloading. Prints how often the library was loaded. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 300 };

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 0; i < TIMES && argc > 1; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library)
            break;
        void *(*allocate)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(library, "plugin_allocate");
        void *p = allocate(100000 + (size_t)i * 64);
        if (dlclose(library) != 0)
            break;
        free(p);
        n++;
    }
    printf("%d\n", n);
    return n != TIMES;
}
