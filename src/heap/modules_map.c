/* Finds the module that contains an address. From glibc 2.35 on, this takes no lock. Older versions
 * require dl_iterate_phdr, which takes one of the linker's locks. gcc's unwinder takes the same
 * lock for every exception. */
#include "heap/modules.h"

#include <elf.h>
#include <link.h>
#include <string.h>

enum { HEADERS_MAX = 64, FIRST_PAGE_BYTES = 4096 };

/* The layout of struct dl_find_object in glibc 2.35's <dlfcn.h>, with room for the fields that
 * some architectures add at its end. */
struct found {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *eh_header;
    void *rest[16];
};
extern int find_object(void *address, struct found *ret) __asm__("_dl_find_object")
    __attribute__((weak));

static void headers_from_elf(struct module_map *m)
{
    const ElfW(Ehdr) *e = (const void *)m->start;
    if (m->end - m->start < sizeof *e || memcmp(e->e_ident, ELFMAG, SELFMAG) != 0 ||
        e->e_phentsize != sizeof(ElfW(Phdr)) || e->e_phnum > HEADERS_MAX ||
        e->e_phoff > FIRST_PAGE_BYTES - e->e_phnum * sizeof(ElfW(Phdr)) ||
        e->e_phoff % _Alignof(ElfW(Phdr)) != 0)
        return;
    m->headers = (const void *)(m->start + e->e_phoff);
    m->header_count = e->e_phnum;
}

/* Finds the readable segment that contains ADDRESS. */
static bool segment_around(const struct module_map *m, uintptr_t address, uintptr_t *ret_start,
                           size_t *ret_len)
{
    const ElfW(Phdr) *h = m->headers;
    for (uint32_t i = 0; h && i < m->header_count; i++) {
        uintptr_t start = m->base + h[i].p_vaddr;
        if (h[i].p_type == PT_LOAD && (h[i].p_flags & PF_R) && address - start < h[i].p_memsz) {
            *ret_start = start;
            *ret_len = h[i].p_memsz;
            return true;
        }
    }
    return false;
}

static void set_eh_header(struct module_map *m, uintptr_t eh_header)
{
    m->eh_header = 0;
    if (eh_header && segment_around(m, eh_header, &m->eh_start, &m->eh_len))
        m->eh_header = eh_header;
}

struct search {
    uintptr_t ip;
    struct module_map *ret;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *user)
{
    struct search *search = user;
    uintptr_t start = UINTPTR_MAX, end = 0, eh_header = 0;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_GNU_EH_FRAME)
            eh_header = at;
        if (h->p_type != PT_LOAD)
            continue;
        start = at < start ? at : start;
        end = at + h->p_memsz > end ? at + h->p_memsz : end;
    }
    if (search->ip < start || search->ip >= end)
        return 0;
    *search->ret = (struct module_map){.start = start & ~(uintptr_t)(FIRST_PAGE_BYTES - 1),
                                       .end = end,
                                       .base = info->dlpi_addr,
                                       .name = info->dlpi_name,
                                       .headers = info->dlpi_phdr,
                                       .header_count = info->dlpi_phnum};
    set_eh_header(search->ret, eh_header);
    return 1;
}

bool modules_map(uintptr_t ip, struct module_map *ret)
{
    struct found found;
    if (!find_object) {
        struct search search = {.ip = ip, .ret = ret};
        return dl_iterate_phdr(visit_object, &search) != 0;
    }
    if (find_object((void *)ip, &found) != 0)
        return false;
    *ret = (struct module_map){.start = (uintptr_t)found.start,
                               .end = (uintptr_t)found.end,
                               .base = found.map->l_addr,
                               .name = found.map->l_name};
    headers_from_elf(ret);
    set_eh_header(ret, (uintptr_t)found.eh_header);
    return true;
}

bool modules_extent(uintptr_t ip, uintptr_t *ret_start, uintptr_t *ret_end)
{
    struct module_map map;
    struct found found;
    if (!find_object) {
        if (!modules_map(ip, &map))
            return false;
        *ret_start = map.start;
        *ret_end = map.end;
        return true;
    }
    if (find_object((void *)ip, &found) != 0)
        return false;
    *ret_start = (uintptr_t)found.start;
    *ret_end = (uintptr_t)found.end;
    return true;
}

bool modules_contain(const struct dl_phdr_info *info, uintptr_t address)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
            return true;
    }
    return false;
}

enum { ORDER_UNKNOWN, ORDER_BEFORE_LIBC, ORDER_AFTER_LIBC };

/* A preloaded library precedes libc in the dynamic linker's list. A library that was loaded late
 * follows libc. */
static int find_order(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char libc[] = "libc.so.6";
    size_t len = strlen(info->dlpi_name);
    (void)size;
    if (modules_contain(info, (uintptr_t)user))
        return ORDER_BEFORE_LIBC;
    if (len >= sizeof libc - 1 && strcmp(info->dlpi_name + len - (sizeof libc - 1), libc) == 0)
        return ORDER_AFTER_LIBC;
    return ORDER_UNKNOWN;
}

bool modules_is_late(void)
{
    static _Atomic(int) order;
    int known = HEAP_LOAD(order);
    if (known == ORDER_UNKNOWN) {
        known = dl_iterate_phdr(find_order, &order);
        HEAP_STORE(order, known);
    }
    return known == ORDER_AFTER_LIBC;
}

static size_t align_to_4(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

static size_t id_of_notes(const uint8_t *notes, size_t len, uint8_t ret[HEAP_BUILD_ID_MAX])
{
    ElfW(Nhdr) h;
    while (len >= sizeof h) {
        memcpy(&h, notes, sizeof h);
        if (h.n_namesz > len || h.n_descsz > len)
            return 0;
        size_t name = sizeof h, desc = name + align_to_4(h.n_namesz);
        size_t next = desc + align_to_4(h.n_descsz);
        if (desc + h.n_descsz > len)
            return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(notes + name, "GNU", 4)) {
            size_t n = h.n_descsz < HEAP_BUILD_ID_MAX ? h.n_descsz : HEAP_BUILD_ID_MAX;
            memcpy(ret, notes + desc, n);
            return n;
        }
        if (next > len)
            return 0;
        notes += next;
        len -= next;
    }
    return 0;
}

size_t modules_build_id(const struct module_map *map, uint8_t ret[HEAP_BUILD_ID_MAX])
{
    const ElfW(Phdr) *h = map->headers;
    uintptr_t start;
    size_t len, n = 0;
    for (uint32_t i = 0; h && i < map->header_count && n == 0; i++) {
        uintptr_t at = map->base + h[i].p_vaddr;
        if (h[i].p_type == PT_NOTE && segment_around(map, at, &start, &len) &&
            h[i].p_memsz <= len - (at - start))
            n = id_of_notes((const uint8_t *)at, h[i].p_memsz, ret);
    }
    return n;
}
