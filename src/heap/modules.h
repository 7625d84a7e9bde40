/* The libraries of this process: maps an address to its module in the heap table. */
#pragma once

#include "heap/heap.h"

enum { MODULE_NONE = 0 }; /* 0 means no module; any other number is the module's index + 1 */

/* Finds the module that contains IP, and its load bias. Returns MODULE_NONE and a bias of 0 if IP
 * is in no module or the table is full. A module is added when it is first found. Finding a known
 * module takes no lock. The library of IP must stay loaded during the call, so IP must be the code
 * address of a frame on this thread's stack, or be in code that is never unloaded. */
uint32_t modules_find(uintptr_t ip, uintptr_t *ret_base);
/* To be called when a library may have been unloaded (dlclose): its addresses may then belong to
 * another module. */
void modules_changed(void);
uint32_t modules_generation(void);
/* Resets the modules for a new table. Looks up the program's path with one system call, if system
 * calls are permitted. */
void modules_reset(void);
/* Encodes a native frame as a frame word. */
uint64_t modules_frame(uint32_t module, uintptr_t base, uintptr_t ip);

/* ---- functions for the unwinder, which also needs a library's call frame information ---- */

/* returned by modules_add if another thread held the lock for too long; the caller may try again */
enum { MODULE_BUSY = UINT16_MAX };

/* A library as mapped by the dynamic linker. The pointers are valid while it is loaded. */
struct module_map {
    uintptr_t start, end; /* end is exclusive; there may be holes between the segments */
    uintptr_t base;
    const char *name; /* path of the library, or "" for the program itself */
    /* Array of header_count program headers (ElfW(Phdr)), or NULL if not found. */
    const void *headers;
    uint32_t header_count;
    uintptr_t eh_header; /* address of .eh_frame_hdr, or 0 if there is none or it is not readable */
    uintptr_t eh_start;  /* start of the segment that contains .eh_frame_hdr */
    size_t eh_len;
};
bool modules_map(uintptr_t ip, struct module_map *ret);
/* Returns true if ADDRESS is in the module that INFO of dl_iterate_phdr describes. */
struct dl_phdr_info;
bool modules_contain(const struct dl_phdr_info *info, uintptr_t address);
/* Returns true if this library was not preloaded but loaded into a running process. */
bool modules_is_late(void);
/* Finds the start and end of the library around IP without touching the library's memory. */
bool modules_extent(uintptr_t ip, uintptr_t *ret_start, uintptr_t *ret_end);
/* Copies the library's build-id and returns its length in bytes. */
size_t modules_build_id(const struct module_map *map, uint8_t ret[HEAP_BUILD_ID_MAX]);

/* Like modules_find, for a module that modules_map found. Returns MODULE_BUSY if another thread
 * held the lock for too long. */
uint32_t modules_add(const struct module_map *map);
/* Load biases by module number; 0 for MODULE_NONE and for unused numbers. */
enum { MODULE_NUMBERS = 2048 };
extern _Atomic(uintptr_t) modules_bases[MODULE_NUMBERS];
