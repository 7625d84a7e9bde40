/* What of the interpreter's exported names is used, found in its module's own tables. */
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

/* NULL: this interpreter does not have it. */
struct python_symbols {
    const char *(*get_version)(void);
    const unsigned long *version; /* from 3.11 on */
    int (*is_initialized)(void);
    int (*is_finalizing)(void);
    void *(*thread_mine)(void);    /* of this thread, with or without the lock */
    void *(*thread_current)(void); /* of the thread that has the lock */
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

/* In any module of this process; false: none has the interpreter in it. Takes the dynamic linker's
 * lock: for a constructor. */
bool python_symbols_anywhere(struct python_symbols *ret);
/* In the module that is mapped at ADDRESS. */
bool python_symbols_at(uintptr_t address, struct python_symbols *ret);
