/* A small library that plugins.c loads and unloads. */
#include <stdlib.h>

__attribute__((visibility("default"))) void *plugin_allocate(size_t size);
void *plugin_allocate(size_t size)
{
    return malloc(size);
}
