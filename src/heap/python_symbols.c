/* Finds the interpreter among the loaded modules, and its exported symbols. */
#include "heap/python_symbols.h"

#include <link.h>
#include <string.h>

#include "heap/module_names.h"
#include "heap/modules.h"

/* Converts an object pointer to a function pointer. ISO C has no such conversion. */
#define FUNCTION(t, name, ret)                                                                     \
    do {                                                                                           \
        void *at = module_names_address(t, name);                                                  \
        memcpy(ret, &at, sizeof at);                                                               \
    } while (0)

static void find_allocators(const struct module_names *t, struct python_symbols *ret)
{
    FUNCTION(t, "PyMem_GetAllocator", &ret->allocator_get);
    FUNCTION(t, "PyMem_SetAllocator", &ret->allocator_set);
    FUNCTION(t, "_PyMem_GetCurrentAllocatorName", &ret->allocator_name);
    FUNCTION(t, "PyObject_GetArenaAllocator", &ret->arenas_get);
    FUNCTION(t, "PyObject_SetArenaAllocator", &ret->arenas_set);
    FUNCTION(t, "PyMem_RawMalloc", &ret->raw_malloc);
    FUNCTION(t, "PyMem_RawCalloc", &ret->raw_calloc);
}

static bool in_module(uintptr_t base, const void *headers, size_t count, struct python_symbols *ret)
{
    struct module_names t;
    if (!module_names_of(base, headers, count, &t))
        return false;
    const ElfW(Sym) *eval = module_names_find(&t, "_PyEval_EvalFrameDefault");
    if (!eval)
        return false;
    struct python_symbols s = {
        .eval = base + eval->st_value,
        .eval_end = base + eval->st_value + eval->st_size,
        .version = module_names_address(&t, "Py_Version"),
        .runtime = module_names_address(&t, "_PyRuntime"),
        .code_type = module_names_address(&t, "PyCode_Type"),
        .text_type = module_names_address(&t, "PyUnicode_Type"),
        .bytes_type = module_names_address(&t, "PyBytes_Type"),
    };
    FUNCTION(&t, "Py_GetVersion", &s.get_version);
    FUNCTION(&t, "Py_IsInitialized", &s.is_initialized);
    FUNCTION(&t, "Py_IsFinalizing", &s.is_finalizing);
    if (!s.is_finalizing) /* before 3.13 */
        FUNCTION(&t, "_Py_IsFinalizing", &s.is_finalizing);
    FUNCTION(&t, "PyGILState_GetThisThreadState", &s.thread_mine);
    FUNCTION(&t, "PyThreadState_GetUnchecked", &s.thread_current);
    if (!s.thread_current) /* before 3.13 */
        FUNCTION(&t, "_PyThreadState_UncheckedGet", &s.thread_current);
    find_allocators(&t, &s);
    if (!s.get_version || !s.is_initialized || !s.is_finalizing || !s.thread_mine || !s.code_type ||
        !s.text_type || !s.bytes_type)
        return false;
    *ret = s;
    return true;
}

static int in_next(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    return in_module(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, ret);
}

bool python_symbols_anywhere(struct python_symbols *ret)
{
    return dl_iterate_phdr(in_next, ret) != 0;
}

bool python_symbols_at(uintptr_t address, struct python_symbols *ret)
{
    struct module_map map;
    return modules_map(address, &map) && map.headers &&
           in_module(map.base, map.headers, map.header_count, ret);
}
