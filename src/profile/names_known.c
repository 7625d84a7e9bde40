/* Tables of allocators and of plumbing. Hiding the culprit is worse than showing a frame too many:
 * what is not surely plumbing is not in here. */
#include "profile/names_known.h"

#include <stddef.h>
#include <string.h>

#include "profile/demangle.h"

/* X(name): a function's name without its parameters and return type; one that ends in * stands for
 * all that begin so. */
#define ALLOCATORS(X)                                                                              \
    /* libc, and what in it does nothing but allocate for its caller */                            \
    X("malloc")                                                                                    \
    X("calloc")                                                                                    \
    X("realloc")                                                                                   \
    X("reallocarray")                                                                              \
    X("free")                                                                                      \
    X("cfree")                                                                                     \
    X("memalign")                                                                                  \
    X("aligned_alloc") X("posix_memalign") X("valloc") X("pvalloc") X("__libc_malloc")             \
        X("__libc_calloc") X("__libc_realloc") X("__libc_memalign") X("__libc_valloc")             \
            X("__libc_pvalloc") X("__libc_free") X("__posix_memalign") X("_int_malloc")            \
                X("_int_realloc") X("_int_memalign") X("_mid_memalign") X("sysmalloc")             \
                    X("sysmalloc_mmap") X("tcache_init*") X("malloc_hook_ini") X("new_heap")       \
                        X("arena_get2*") X("mmap") X("mmap64") X("__mmap") X("__mmap64")           \
                            X("mremap") X("__mremap") X("sbrk") X("brk") X("strdup") X("__strdup") \
                                X("strndup") X("__strndup") X("wcsdup") X("asprintf")              \
                                    X("vasprintf") X("__asprintf*") X("__vasprintf*") X("getline") \
                                        X("getdelim") X("__getdelim") X("_mm_malloc") X("xmalloc") \
                                            X("xcalloc") X("xrealloc") X("xstrdup") /* C++ */      \
        X("operator new*") X("operator delete*") X("__cxa_allocate_exception") X("std::*")         \
            X("__gnu_cxx::*") /* Rust */                                                           \
        X("__rust_alloc*") X("__rust_realloc*") X("__rdl_*") X("__rg_*") X("alloc::*")             \
            X("hashbrown::*") /* other allocators, where they are part of a program */             \
        X("je_*") X("mallocx") X("rallocx") X("tc_malloc*") X("tc_new*") X("tc_calloc*")           \
            X("tc_realloc*") X("tcmalloc::*") X("mi_*") X("_mi_*") X("scalable_malloc")            \
                X("scalable_calloc") X("scalable_aligned_malloc") X("scalable_realloc")            \
                    X("rml::*") X("g_malloc*") X("g_realloc*") X("g_try_malloc*")                  \
                        X("g_slice_alloc*") X("g_strdup") X("CRYPTO_malloc") X("CRYPTO_zalloc")    \
                            X("CRYPTO_realloc") X("OPENSSL_malloc*") /* CPython */                 \
        X("PyMem_*") X("_PyMem_*") X("PyObject_Malloc") X("PyObject_Calloc") X("PyObject_Realloc") \
            X("PyObject_Free") X("_PyObject_Malloc") X("_PyObject_Calloc") X("_PyObject_Realloc")  \
                X("_PyObject_Alloc") X("_PyObject_New") X("_PyObject_NewVar") X("_PyObject_GC_*")  \
                    X("PyObject_GC_*") X("gc_alloc") X("_PyType_AllocNoTrack")                     \
                        X("PyType_GenericAlloc") X("PyType_GenericNew") X("pymalloc_alloc")        \
                            X("new_arena") X("_PyObject_Arena*") X("allocate_from_new_pool")       \
                                X("arena_map_mark_used") X("_PyObject_DebugMalloc*") /* numpy */   \
        X("npy_alloc_cache*") X("_npy_alloc_cache") X("npy_alloc*") X("PyDataMem_*")               \
            X("default_malloc") X("default_calloc") X("default_realloc") X("PyArray_malloc")       \
                X("PyArray_realloc")                                                               \
                    X("PyArray_NewFromDescr*") /* torch: what makes memory and empty tensors for   \
                                                  whoever computes */                              \
        X("c10::alloc_cpu") X("c10::free_cpu") X("c10::DefaultCPUAllocator::*")                    \
            X("c10::DefaultMobileCPUAllocator::*") X("c10::CPUCachingAllocator::*")                \
                X("c10::Allocator::*") X("c10::GetCPUAllocator") X("c10::StorageImpl::*")          \
                    X("c10::Storage::*") X("c10::cuda::CUDACachingAllocator::*") X(                \
                        "c10::CachingDeviceAllocator*") X("c10::intrusive_ptr<c10::StorageImpl*")  \
                        X("c10::make_intrusive<*") X("at::CachingHostAllocatorImpl<*")             \
                            X("at::CachingHostAllocatorInterface<*") X("at::detail::empty*")       \
                                X("at::detail::_empty*") X("at::detail::make_tensor*")             \
                                    X("at::native::empty_cpu") X("at::native::empty_like")         \
                                        X("at::native::empty_strided_cpu")                         \
                                            X("at::native::empty_generic*") X("at::native::empty") \
                                                X("at::empty") X("at::empty_like")                 \
                                                    X("at::empty_strided") X("at::_ops::empty*")   \
                                                        X("at::native::resize_bytes_cpu")          \
                                                            X("at::native::storage_new_*")

#define X(name) name,
static const char *const allocators[] = {ALLOCATORS(X)};
#undef X

/* Libraries that do nothing else, by how their names begin. */
static const char *const allocator_libs[] = {
    "libebb-heap.", "libjemalloc.", "libtcmalloc", "libmimalloc", "libtbbmalloc", "libhoard.",
};

/* Below site-packages (or the folder that a package was put in); one that ends in * is all that
 * begins so. */
static const char *const plumbing[] = {
    /* torch: what calls modules, functions and operators, and what loads data for whoever asked */
    "torch/_*",
    "torch/nn/*",
    "torch/functional.py",
    "torch/overrides.py",
    "torch/autograd/*",
    "torch/amp/*",
    "torch/fx/*",
    "torch/jit/*",
    "torch/storage.py",
    "torch/multiprocessing/*",
    "torch/utils/_*",
    "torch/utils/data/_utils/*",
    "torch/utils/data/dataloader.py",
    "torch/utils/data/dataset.py",
    "torch/utils/data/sampler.py",
    "torch/utils/checkpoint.py",
    "torch/optim/optimizer.py",
    "torch/optim/lr_scheduler.py",
    "torch/cuda/amp/*",
    /* arrays and pictures: asked for by the line above */
    "numpy/*",
    "PIL/*",
    "pandas/*",
    "einops/*",
    /* wrappers of trainers */
    "accelerate/hooks.py",
    "accelerate/utils/operations.py",
    "accelerate/utils/memory.py",
    "accelerate/utils/modeling.py",
    "transformers/utils/generic.py",
    "transformers/utils/deprecation.py",
    "lightning/pytorch/trainer/call.py",
    "lightning/pytorch/utilities/*",
    "lightning/fabric/wrappers.py",
    "lightning/fabric/utilities/*",
    "pytorch_lightning/trainer/call.py",
    "pytorch_lightning/utilities/*",
    "lightning_fabric/wrappers.py",
    "lightning_fabric/utilities/*",
    "lightning_utilities/*",
    /* wrappers of anything */
    "tqdm/*",
    "wrapt/*",
    "decorator.py",
    "typing_extensions.py",
    "jaxtyping/*",
    "beartype/*",
    "ebb/*",
};

static bool is_one_of(const char *const *list, size_t count, const char *s, size_t len)
{
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(list[i]);
        if (list[i][n - 1] == '*' ? len >= n - 1 && strncmp(list[i], s, n - 1) == 0
                                  : len == n && strncmp(list[i], s, n) == 0)
            return true;
    }
    return false;
}

bool known_allocator(const char *function, const char *lib)
{
    for (size_t i = 0; lib && i < sizeof(allocator_libs) / sizeof(*allocator_libs); i++)
        if (strncmp(lib, allocator_libs[i], strlen(allocator_libs[i])) == 0)
            return true;
    if (!function)
        return false;
    size_t len;
    const char *bare = demangle_bare(function, &len);
    return is_one_of(allocators, sizeof(allocators) / sizeof(*allocators), bare, len);
}

/* What is behind the last "…/site-packages/" (or Debian's dist-packages); NULL: not so installed.
 */
static const char *package_path(const char *file)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    const char *found = NULL;
    for (size_t i = 0; i < 2; i++)
        for (const char *at = file; (at = strstr(at, folders[i])); at++)
            found = at + strlen(folders[i]);
    return found;
}

/* "…/lib/python3.11/queue.py" and "…/lib/python311.zip/queue.py". */
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

/* "<frozen importlib._bootstrap>" and what numpy and dataclasses write for themselves; but what was
 * given to python -c or typed is the user's: "<string>", "<stdin>", "<ipython-input-3-…>". */
static bool is_generated(const char *function, const char *file)
{
    return strncmp(file, "<frozen ", 8) == 0 || strncmp(file, "<__array_function__", 19) == 0 ||
           strncmp(file, "<attrs generated", 16) == 0 ||
           strncmp(file, "<eval_with_key>", 15) == 0 ||
           (function && strncmp(function, "__create_fn__.<locals>", 22) == 0);
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
    return is_one_of(plumbing, sizeof(plumbing) / sizeof(*plumbing), inside, strlen(inside));
}
