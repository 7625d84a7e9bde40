/* The library that plugins.c loads. */
#include <stdlib.h>

__attribute__((visibility("default"))) void *plugin_allocate(size_t size);
void *plugin_allocate(size_t size)
{
    return malloc(size);
}
