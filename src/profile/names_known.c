/* Tables of allocators and of plumbing: library code that runs between the user's line and the
 * allocation and is never the cause of a leak. If a table lists too much, the cause of a leak may
 * be hidden; if it lists too little, one extra frame is shown. The tables therefore list only code
 * that is certainly an allocator or plumbing. */
#include "profile/names_known.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "profile/demangle.h"

/* Names of allocating functions, without parameters and return types. */
static const char allocators[] =
    /* libc, including its functions that only allocate for their caller */
    "malloc calloc realloc reallocarray free cfree memalign aligned_alloc posix_memalign "
    "valloc pvalloc __libc_malloc __libc_calloc __libc_realloc __libc_memalign __libc_valloc "
    "__libc_pvalloc __libc_free __posix_memalign _int_malloc _int_realloc _int_memalign "
    "_mid_memalign sysmalloc sysmalloc_mmap tcache_init* malloc_hook_ini new_heap "
    "arena_get2* mmap mmap64 __mmap __mmap64 mremap __mremap sbrk brk strdup __strdup "
    "strndup __strndup wcsdup asprintf vasprintf __asprintf* __vasprintf* getline getdelim "
    "__getdelim _mm_malloc xmalloc xcalloc xrealloc xstrdup "
    /* C++ */
    "operator~new* operator~delete* __cxa_allocate_exception std::* __gnu_cxx::* "
    /* Rust */
    "__rust_alloc* __rust_realloc* __rdl_* __rg_* alloc::* hashbrown::* "
    /* other allocators that may be linked into a program */
    "je_* mallocx rallocx tc_malloc* tc_new* tc_calloc* tc_realloc* tcmalloc::* mi_* _mi_* "
    "scalable_malloc scalable_calloc scalable_aligned_malloc scalable_realloc rml::* "
    "g_malloc* g_realloc* g_try_malloc* g_slice_alloc* g_strdup CRYPTO_malloc CRYPTO_zalloc "
    "CRYPTO_realloc OPENSSL_malloc* "
    /* CPython */
    "PyMem_* _PyMem_* PyObject_Malloc PyObject_Calloc PyObject_Realloc PyObject_Free "
    "_PyObject_Malloc _PyObject_Calloc _PyObject_Realloc _PyObject_Alloc _PyObject_New "
    "_PyObject_NewVar _PyObject_GC_* PyObject_GC_* gc_alloc _PyType_AllocNoTrack "
    "PyType_GenericAlloc PyType_GenericNew pymalloc_alloc new_arena _PyObject_Arena* "
    "allocate_from_new_pool arena_map_mark_used _PyObject_DebugMalloc* "
    /* numpy */
    "npy_alloc_cache* _npy_alloc_cache npy_alloc* PyDataMem_* default_malloc default_calloc "
    "default_realloc PyArray_malloc PyArray_realloc PyArray_NewFromDescr* "
    /* torch: functions that allocate memory and empty tensors for their callers */
    "c10::alloc_cpu c10::free_cpu c10::DefaultCPUAllocator::* "
    "c10::DefaultMobileCPUAllocator::* c10::CPUCachingAllocator::* c10::Allocator::* "
    "c10::GetCPUAllocator c10::StorageImpl::* c10::Storage::* "
    "c10::cuda::CUDACachingAllocator::* c10::intrusive_ptr<c10::StorageImpl* "
    "c10::make_intrusive<* at::CachingHostAllocatorImpl<* "
    "at::CachingHostAllocatorInterface<* at::detail::empty* at::detail::_empty* "
    "at::detail::make_tensor* at::native::empty_cpu at::native::empty_like "
    "at::native::empty_strided_cpu at::native::empty_generic* at::native::empty at::empty "
    "at::empty_like at::empty_strided at::_ops::empty* at::native::resize_bytes_cpu "
    "at::native::storage_new_* ";

/* Libraries that do nothing but allocate. */
static const char allocator_libs[] =
    "libebb-heap.* libjemalloc.* libtcmalloc* libmimalloc* libtbbmalloc* libhoard.* ";

/* Paths of plumbing below site-packages (or the folder that a package was installed in). */
static const char plumbing[] =
    /* torch: code that calls modules, functions and operators for its caller, or loads its data */
    "torch/_* torch/nn/* torch/functional.py torch/overrides.py torch/autograd/* torch/amp/* "
    "torch/fx/* torch/jit/* torch/storage.py torch/multiprocessing/* torch/utils/_* "
    "torch/utils/data/_utils/* torch/utils/data/dataloader.py torch/utils/data/dataset.py "
    "torch/utils/data/sampler.py torch/utils/checkpoint.py torch/optim/optimizer.py "
    "torch/optim/lr_scheduler.py torch/cuda/amp/* "
    /* arrays and images: the cause is the line that calls these packages */
    "numpy/* PIL/* pandas/* einops/* "
    /* wrappers in training frameworks */
    "accelerate/hooks.py accelerate/utils/operations.py accelerate/utils/memory.py "
    "accelerate/utils/modeling.py transformers/utils/generic.py "
    "transformers/utils/deprecation.py lightning/pytorch/trainer/call.py "
    "lightning/pytorch/utilities/* lightning/fabric/wrappers.py lightning/fabric/utilities/* "
    "pytorch_lightning/trainer/call.py pytorch_lightning/utilities/* "
    "lightning_fabric/wrappers.py lightning_fabric/utilities/* lightning_utilities/* "
    /* general wrappers */
    "tqdm/* wrapt/* decorator.py typing_extensions.py jaxtyping/* beartype/* ebb/* ";

/* Returns true if NAME is one of the words of LIST. A word that ends in * matches every name
 * with that prefix; ~ stands for a space. */
static bool is_one_of(const char *list, const char *name, size_t len)
{
    for (const char *word = list; *word; word += strcspn(word, " ") + 1) {
        size_t n = strcspn(word, " "), i = 0;
        while (i < n && i < len && name[i] == (word[i] == '~' ? ' ' : word[i]))
            i++;
        if (i + 1 == n ? word[i] == '*' : i == n && i == len)
            return true;
    }
    return false;
}

bool known_allocator(const char *function, const char *lib)
{
    size_t len;
    if (lib && is_one_of(allocator_libs, lib, strlen(lib)))
        return true;
    const char *bare = function ? demangle_bare(function, &len) : NULL;
    return bare && is_one_of(allocators, bare, len);
}

bool known_backward(const char *function, const char **ret, size_t *ret_len)
{
    static const char space[] = "torch::autograd::";
    const char *end = strstr(function, "::apply("), *at = end;
    if (!end || strncmp(function, space, sizeof space - 1) != 0)
        return false;
    while (at[-1] == '_' || isalnum((unsigned char)at[-1]))
        at--;
    size_t len = (size_t)(end - at);
    /* PyNode runs Python code, whose own frames are shown instead */
    if (at[-1] != ':' || len == 0 || (len == strlen("PyNode") && memcmp(at, "PyNode", len) == 0))
        return false;
    *ret = at;
    *ret_len = len;
    return true;
}

/* Returns the path after the last "…/site-packages/" (or Debian's dist-packages), or NULL. */
static const char *package_path(const char *file)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    const char *found = NULL;
    for (size_t i = 0; i < 2; i++)
        for (const char *at = file; (at = strstr(at, folders[i])); at++)
            found = at + strlen(folders[i]);
    return found;
}

/* Matches "…/lib/python3.11/queue.py" and "…/lib/python311.zip/queue.py". */
static bool is_standard_library(const char *file)
{
    for (const char *at = file; (at = strstr(at, "/python3")); at++) {
        bool is_below_lib = (at - file >= 4 && strncmp(at - 4, "/lib", 4) == 0) ||
                            (at - file >= 6 && strncmp(at - 6, "/lib64", 6) == 0);
        const char *rest = at + strlen("/python3");
        size_t version = strspn(rest, ".0123456789t");
        bool is_folder = rest[version] == '/' || strncmp(rest + version, ".zip/", 5) == 0 ||
                         (version && strncmp(rest + version - 1, ".zip/", 5) == 0);
        if (is_below_lib && version && is_folder)
            return true;
    }
    return false;
}

/* Returns true for "<frozen importlib._bootstrap>" and code generated by numpy, dataclasses and
 * named tuples. Code passed to python -c or typed interactively belongs to the user: "<string>",
 * "<stdin>", "<ipython-input-3-…>". */
static bool is_generated(const char *function, const char *file)
{
    return strncmp(file, "<frozen ", 8) == 0 || strncmp(file, "<__array_function__", 19) == 0 ||
           strncmp(file, "<attrs generated", 16) == 0 ||
           strncmp(file, "<eval_with_key>", 15) == 0 ||
           (function && strncmp(function, "__create_fn__.<locals>", 22) == 0) ||
           (function && strcmp(function, "<lambda>") == 0 && strcmp(file, "<string>") == 0);
}

bool known_library(const char *file)
{
    return file && (package_path(file) || is_standard_library(file) || is_generated(NULL, file));
}

bool known_plumbing(const char *function, const char *file)
{
    if (!file || is_generated(function, file))
        return true;
    const char *inside = package_path(file);
    if (!inside)
        return is_standard_library(file) || strstr(file, "/python/ebb/");
    return is_one_of(plumbing, inside, strlen(inside));
}

bool known_package(const char *file, size_t *ret_len)
{
    const char *inside = file ? package_path(file) : NULL;
    if (!inside)
        return false;
    *ret_len = (size_t)(inside - file) + strcspn(inside, "/");
    return true;
}

bool known_wrapper(const char *function, const char *file, uint32_t line)
{
    enum { WRAPPER_LINES = 12 };
    const char *base = file ? strrchr(file, '/') : NULL;
    return base && base - file >= 4 && strncmp(base - 4, "/bin", 4) == 0 && !strchr(base, '.') &&
           strcmp(function, "<module>") == 0 && line <= WRAPPER_LINES;
}

bool known_comprehension(const char *inner, const char *outer)
{
    static const char *const kinds[] = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"};
    size_t len = strlen(inner), outer_len = strlen(outer);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if (len < n || strcmp(inner + len - n, kinds[i]) != 0)
            continue;
        bool is_inside = strncmp(inner, outer, outer_len) == 0 &&
                         strncmp(inner + outer_len, ".<locals>.", 10) == 0;
        return len == n || is_inside;
    }
    return false;
}
