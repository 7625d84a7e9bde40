/* Writes the ELF notes that describe the probes, in the format of SystemTap's sys/sdt.h. That
 * header is not used, because cross compilers come only with the headers of libc. */
#include "heap/probes.h"

/* The section in which tracers find the semaphores. */
#define LISTENERS __attribute__((section(".probes"), used))

LISTENERS volatile uint16_t probes_alloc_listeners = 0;
LISTENERS volatile uint16_t probes_free_listeners = 0;

/* The layout of a note: the sizes of its name and its content, type 3, and the name. The content
 * consists of the address of the nop, the address of a section that shows whether the file was
 * prelinked, the address of the semaphore, the provider, the probe's name and its arguments. Each
 * argument is written as SIZE@OPERAND, with the size in bytes. The addresses are fixed when the
 * library is linked, because the section with the notes is not loaded. */
#define PROBE(name, semaphore, arguments)                                                          \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt, \"\", \"note\"\n"                                                 \
    ".balign 4\n"                                                                                  \
    ".4byte 992f - 991f, 994f - 993f, 3\n"                                                         \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                                            \
    ".asciz \"otel_memory\"\n"                                                                     \
    ".asciz \"" name "\"\n"                                                                        \
    ".asciz \"" arguments "\"\n"                                                                   \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"                                                                                \
    ".ifndef _.stapsdt.base\n"                                                                     \
    ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"                    \
    ".weak _.stapsdt.base\n"                                                                       \
    ".hidden _.stapsdt.base\n"                                                                     \
    "_.stapsdt.base: .space 1\n"                                                                   \
    ".size _.stapsdt.base, 1\n"                                                                    \
    ".popsection\n"                                                                                \
    ".endif\n"

/* Not inlined: a second copy of the function would be a second probe of the same name. */
__attribute__((noinline)) void probes_fire_alloc(const void *p, uint64_t size, uint64_t weight)
{
    __asm__ volatile(PROBE("alloc", "probes_alloc_listeners", "8@%0 8@%1 8@%2")
                     :
                     : "r"(p), "r"(size), "r"(weight));
}

__attribute__((noinline)) void probes_fire_free(const void *p)
{
    __asm__ volatile(PROBE("free", "probes_free_listeners", "8@%0") : : "r"(p));
}
