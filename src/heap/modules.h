/* The libraries of this process: from an address to its module, with its build-id, in the table. */
#pragma once

#include "heap/heap.h"

enum { MODULE_NONE = 0 }; /* else the index + 1 */

/* The module that holds IP and its load bias; MODULE_NONE: none, or no room, and a bias of 0. Notes
 * a module at first sight. No lock, no allocation. IP must be on this thread's stack or in code
 * that is certain to stay: that is what keeps its library from being unloaded meanwhile. */
uint32_t modules_find(uintptr_t ip, uintptr_t *ret_base);
/* A library was or may have been unloaded (dlclose): what is mapped where may change. */
void modules_changed(void);
uint32_t modules_generation(void);
/* A new table. Looks up the program's own path, with one system call if there may be any. */
void modules_reset(void);
/* The frame word of a native frame. */
uint64_t modules_frame(uint32_t module, uintptr_t base, uintptr_t ip);

/* ---- for the unwinder, which wants a library's call frame information as well ---- */

enum { MODULE_BUSY = UINT16_MAX }; /* another thread was noting one for too long: ask again */

/* A library as the dynamic linker has it mapped. The pointers are good as long as it is loaded. */
struct module_map {
    uintptr_t start, end; /* addresses, with holes between the segments maybe */
    uintptr_t base;
    const char *name;    /* "": the program itself */
    const void *headers; /* ElfW(Phdr), header_count of them; NULL: not found */
    uint32_t header_count;
    uintptr_t eh_header; /* .eh_frame_hdr; 0: none that can be read */
    uintptr_t eh_start;  /* the segment that it is in */
    size_t eh_len;
};
bool modules_map(uintptr_t ip, struct module_map *ret);
/* Where the library around IP begins and ends; touches no memory of the library's. */
bool modules_extent(uintptr_t ip, uintptr_t *ret_start, uintptr_t *ret_end);
/* Its build-id: how many bytes. */
size_t modules_build_id(const struct module_map *map, uint8_t ret[HEAP_BUILD_ID_MAX]);

/* As modules_find, for what modules_map found; or MODULE_BUSY. */
uint32_t modules_note(const struct module_map *map);
/* By number; that of MODULE_NONE is 0, and of numbers that nobody has. */
enum { MODULE_NUMBERS = 2048 };
extern _Atomic(uintptr_t) modules_bases[MODULE_NUMBERS];
