/* Calls every hooked function with edge cases and prints the results, which must be the same with
 * and without the hooks. Prints properties of addresses, not the addresses. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* volatile hides the values from the compiler, which otherwise warns about calls with a huge or
 * zero size. */
static volatile size_t huge = SIZE_MAX, half = SIZE_MAX / 2, zero = 0;

/* Returns P, but the compiler cannot know that. It assumes that realloc always frees a block, and
 * would warn about uses of P after a failed realloc. */
static void *same(void *p)
{
    __asm__("" : "+r"(p));
    return p;
}

static void said(const char *what, const void *p, size_t alignment)
{
    int error = errno;
    printf("%s: %s, errno %d", what, p ? "a block" : "NULL", p ? 0 : error);
    if (p && alignment)
        printf(", aligned %d", (uintptr_t)p % alignment == 0);
    printf("\n");
    errno = 0;
}

static void fill(void *p, size_t len)
{
    memset(p, 0x5a, len);
}

static int holds(const unsigned char *p, size_t len, unsigned char what)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != what)
            return 0;
    return 1;
}

static void plain(void)
{
    void *p = malloc(zero);
    said("malloc(0)", p, 16);
    free(p);
    said("malloc(huge)", malloc(huge), 0);
    said("malloc(half)", malloc(half), 0);
    said("malloc(half+2)", malloc(half + 2), 0);
    p = malloc(100000);
    said("malloc", p, 16);
    fill(p, 100000);
    printf("usable %d\n", malloc_usable_size(p) >= 100000);
    free(p);
    free(NULL);
    errno = 77;
    free(malloc(300000));
    printf("errno after free %d\n", errno);
    errno = 0;
}

static void zeroed(void)
{
    said("calloc overflow", calloc(huge, 2), 0);
    said("calloc overflow 2", calloc(half, 3), 0);
    said("calloc too much", calloc(half / 2, 2), 0);
    void *none = calloc(zero, 8);
    said("calloc(0, 8)", none, 16);
    free(none);
    for (int i = 0; i < 4; i++) {
        unsigned char *p = calloc(1000, 100);
        printf("zeroed %d\n", holds(p, 100000, 0));
        fill(p, 100000);
        free(p);
    }
}

static void grown(void)
{
    unsigned char *p = realloc(NULL, 1000);
    fill(p, 1000);
    for (size_t len = 1000; len < 3000000; len = len * 3 / 2) {
        p = realloc(p, len * 3 / 2);
        printf("kept %d\n", holds(p, len, 0x5a));
        fill(p, len * 3 / 2);
    }
    said("realloc(huge)", realloc(same(p), huge), 0);
    said("realloc(half)", realloc(same(p), half), 0);
    said("reallocarray overflow", reallocarray(same(p), half, 3), 0);
    printf("kept after failure %d\n", holds(p, 3000000, 0x5a));
    p = realloc(p, 10);
    printf("kept when shrunk %d\n", holds(p, 10, 0x5a));
    p = reallocarray(p, 1000, 1000);
    printf("kept %d\n", holds(p, 10, 0x5a));
    said("realloc(p, 0)", realloc(p, zero), 0);
    void *again = realloc(NULL, zero);
    said("realloc(NULL, 0)", again, 16);
    free(again);
}

static void aligned(void)
{
    void *p = &p;
    printf("posix_memalign(3) %d, untouched %d\n", posix_memalign(&p, zero + 3, 10), p == &p);
    printf("posix_memalign(4) %d\n", posix_memalign(&p, zero + 4, 10));
    printf("posix_memalign(0) %d\n", posix_memalign(&p, zero, 10));
    printf("posix_memalign(huge) %d, untouched %d\n", posix_memalign(&p, 64, huge), p == &p);
    for (size_t to = 8; to <= 1 << 21; to *= 8) {
        printf("posix_memalign %d", posix_memalign(&p, to, 200000));
        said("", p, to);
        fill(p, 200000);
        free(p);
        p = memalign(to, 200000);
        said("memalign", p, to);
        free(p);
        p = aligned_alloc(to, 1 << 21);
        said("aligned_alloc", p, to);
        p = realloc(p, 1 << 22);
        said("realloc of it", p, 16);
        free(p);
    }
    printf("posix_memalign of nothing %d\n", posix_memalign(&p, 64, zero));
    free(p);
    said("aligned_alloc(huge)", aligned_alloc(64, huge), 0);
    said("memalign(huge)", memalign(64, huge), 0);
    p = valloc(100000);
    said("valloc", p, 4096);
    free(p);
    p = pvalloc(100001);
    said("pvalloc", p, 4096);
    free(p);
    said("valloc(huge)", valloc(huge), 0);
    said("pvalloc(huge)", pvalloc(huge), 0);
}

static void *mapping(void *p)
{
    return p == MAP_FAILED ? NULL : p;
}

static void mapped(void)
{
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    said("mmap(0)", mapping(mmap(NULL, zero, prot, flags, -1, 0)), 0);
    said("mmap(huge)", mapping(mmap(NULL, huge, prot, flags, -1, 0)), 0);
    said("mmap of no file", mapping(mmap(NULL, 4096, prot, MAP_PRIVATE, -1, 0)), 0);
    unsigned char *p = mmap(NULL, 8 << 20, prot, flags, -1, 0);
    said("mmap", mapping(p), 4096);
    fill(p, 8 << 20);
    said("mmap fixed", mapping(mmap(p + (1 << 20), 1 << 20, prot, flags | MAP_FIXED, -1, 0)), 4096);
    printf("new %d, old %d\n", holds(p + (1 << 20), 1 << 20, 0), holds(p, 1 << 20, 0x5a));
    printf("munmap unaligned %d\n", munmap(p + 1, 4096));
    printf("munmap of nothing %d\n", munmap(p, zero));
    printf("munmap the middle %d\n", munmap(p + (2 << 20), 1 << 20));
    printf("munmap the rest %d\n", munmap(p, 8 << 20));
    p = mmap(NULL, 2 << 20, prot, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(p, 2 << 20);
    said("mremap(huge)", mapping(mremap(p, 2 << 20, half, MREMAP_MAYMOVE)), 0);
    p = mremap(p, 2 << 20, 1 << 20, 0);
    said("mremap shrinks", mapping(p), 4096);
    unsigned char *place = mmap(NULL, 4 << 20, PROT_NONE, flags, -1, 0);
    p = mremap(p, 1 << 20, 1 << 20, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    printf("mremap fixed %d, kept %d\n", p == place, holds(p, 1 << 20, 0x5a));
    printf("munmap %d\n", munmap(place, 4 << 20));
}

typedef void *new_function(size_t size);
typedef void *new_aligned_function(size_t size, size_t alignment);
typedef void delete_function(void *p);

static void *function(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* Loads a C++ library late, as importing a Python extension does. */
static void created(void)
{
    void *library = dlopen("libstdc++.so.6", RTLD_NOW);
    printf("C++ %d\n", library != NULL);
    if (!library)
        return;
    new_function *plain_new = (new_function *)(uintptr_t)dlsym(library, "_Znwm");
    new_function *hooked_new = (new_function *)(uintptr_t)function("_Znwm");
    new_aligned_function *aligned_new =
        (new_aligned_function *)(uintptr_t)function("_ZnwmSt11align_val_t");
    delete_function *plain_delete = (delete_function *)(uintptr_t)function("_ZdlPv");
    /* Without the preloaded library, the symbol is not in the program's own scope. */
    if (!hooked_new)
        hooked_new = plain_new;
    if (!plain_delete)
        plain_delete = (delete_function *)(uintptr_t)dlsym(library, "_ZdlPv");
    if (!aligned_new)
        aligned_new = (new_aligned_function *)(uintptr_t)dlsym(library, "_ZnwmSt11align_val_t");
    void *p = hooked_new(500000);
    said("new", p, 16);
    plain_delete(p);
    p = hooked_new(zero);
    said("new of nothing", p, 16);
    plain_delete(p);
    p = aligned_new(500000, 256);
    said("new aligned", p, 256);
    free(p);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    for (int i = 0; i < 3; i++) {
        plain();
        zeroed();
        grown();
        aligned();
        mapped();
        created();
    }
    printf("dlclose of nothing %d\n", dlclose(dlopen(NULL, RTLD_NOW)));
    printf("prctl %d\n", prctl(PR_GET_DUMPABLE));
    return 0;
}
