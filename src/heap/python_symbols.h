/* The exported symbols of the interpreter, found in its module's own tables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct python_allocator { /* PyMemAllocatorEx */
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t count, size_t size);
    void *(*realloc)(void *ctx, void *p, size_t size);
    void (*free)(void *ctx, void *p);
};
enum python_domain { PYTHON_DOMAIN_RAW, PYTHON_DOMAIN_MEM, PYTHON_DOMAIN_OBJ };

struct python_arenas { /* PyObjectArenaAllocator */
    void *ctx;
    void *(*alloc)(void *ctx, size_t size);
    void (*free)(void *ctx, void *p, size_t size);
};

/* A symbol is NULL if this version of Python lacks it. */
struct python_symbols {
    const char *(*get_version)(void);
    const unsigned long *version; /* from 3.11 on */
    int (*is_initialized)(void);
    int (*is_finalizing)(void);
    void *(*thread_mine)(void);    /* returns the state of this thread, with or without the GIL */
    void *(*thread_current)(void); /* returns the state of the thread that holds the GIL */
    const void *runtime;
    const void *code_type, *text_type, *bytes_type;
    uintptr_t eval, eval_end;

    void (*allocator_get)(int domain, struct python_allocator *ret);
    void (*allocator_set)(int domain, const struct python_allocator *allocator);
    const char *(*allocator_name)(void);
    void (*arenas_get)(struct python_arenas *ret);
    void (*arenas_set)(const struct python_arenas *arenas);
    void *(*raw_malloc)(size_t size);
    void *(*raw_calloc)(size_t count, size_t size);
};

/* Searches all modules of this process; returns false if none contains an interpreter. Takes the
 * dynamic linker's lock, so only constructors may call it. */
bool python_symbols_anywhere(struct python_symbols *ret);
/* Searches the module that is mapped at ADDRESS. */
bool python_symbols_at(uintptr_t address, struct python_symbols *ret);
