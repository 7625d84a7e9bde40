/* Reads ELF headers and looks up symbols by GNU hash in the memory of another process. */
#include "attach/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "attach/target.h"

enum {
    HEADERS_MAX = 64,  /* maximum number of program headers; programs have about a dozen */
    DYNAMIC_MAX = 256, /* maximum number of entries in the dynamic section */
    NAME_MAX_LEN = 64,
    CHAIN_MAX = 4096, /* maximum number of symbols in one bucket */
};

/* The header of a GNU hash table. The bloom filter of 64-bit words, the buckets and the chains
 * follow. */
struct gnu_hash {
    uint32_t bucket_count, first_symbol, bloom_count, bloom_shift;
};

/* Extends the module's range by a segment. If the segment is writable, also stores the range of
 * unused bytes between the end of the segment and the end of the page. */
static void take_segment(struct elf_module *m, const Elf64_Phdr *p, uint64_t page_bytes)
{
    uint64_t end = m->bias + p->p_vaddr + p->p_memsz;
    if (end > m->end)
        m->end = end;
    if (!(p->p_flags & PF_W) || p->p_memsz == 0 || end <= m->tail)
        return;
    m->tail = end;
    m->tail_bytes = (page_bytes - end % page_bytes) % page_bytes;
}

/* Converts an address in the dynamic section to a memory address. glibc's loader has already
 * converted the addresses there; musl's loader has not. */
static uint64_t in_memory(const struct elf_module *m, uint64_t address)
{
    return address < m->bias ? address + m->bias : address;
}

static void take_entry(struct elf_module *m, const Elf64_Dyn *d)
{
    if (d->d_tag == DT_SYMTAB)
        m->symbols = in_memory(m, d->d_un.d_ptr);
    else if (d->d_tag == DT_STRTAB)
        m->names = in_memory(m, d->d_un.d_ptr);
    else if (d->d_tag == DT_STRSZ)
        m->names_bytes = d->d_un.d_val;
    else if (d->d_tag == DT_GNU_HASH)
        m->hash = in_memory(m, d->d_un.d_ptr);
}

static int read_dynamic(struct elf_module *m, uint64_t address, uint64_t bytes)
{
    Elf64_Dyn d;
    for (size_t i = 0; i < DYNAMIC_MAX && i < bytes / sizeof d; i++) {
        if (!attach_read(m->mem_fd, address + i * sizeof d, &d, sizeof d))
            return -EIO;
        if (d.d_tag == DT_NULL)
            break;
        take_entry(m, &d);
    }
    return m->symbols && m->names && m->hash ? 0 : -EBADMSG;
}

static bool is_known_kind(const Elf64_Ehdr *h)
{
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
           h->e_ident[EI_DATA] == ELFDATA2LSB && h->e_phentsize == sizeof(Elf64_Phdr) &&
           (h->e_type == ET_DYN || h->e_type == ET_EXEC);
}

int elf_module_read(int mem_fd, uint64_t address, uint64_t page_bytes, struct elf_module *ret)
{
    struct elf_module m = {.mem_fd = mem_fd, .start = address};
    Elf64_Ehdr h;
    Elf64_Phdr p[HEADERS_MAX];
    const Elf64_Phdr *dynamic = NULL;
    bool is_biased = false;
    if (!attach_read(mem_fd, address, &h, sizeof h))
        return -EIO;
    if (!is_known_kind(&h) || h.e_phnum == 0 || h.e_phnum > HEADERS_MAX)
        return -EBADMSG;
    if (!attach_read(mem_fd, address + h.e_phoff, p, h.e_phnum * sizeof *p))
        return -EIO;
    for (size_t i = 0; i < h.e_phnum; i++) {
        /* the first PT_LOAD segment contains the ELF header */
        if (p[i].p_type == PT_LOAD && !is_biased) {
            m.bias = address - (p[i].p_vaddr - p[i].p_vaddr % page_bytes);
            is_biased = true;
        }
        if (p[i].p_type == PT_LOAD)
            take_segment(&m, &p[i], page_bytes);
        else if (p[i].p_type == PT_DYNAMIC)
            dynamic = &p[i];
    }
    int r = dynamic && is_biased ? read_dynamic(&m, m.bias + dynamic->p_vaddr, dynamic->p_memsz)
                                 : -EBADMSG;
    if (r == 0)
        *ret = m;
    return r;
}

static uint32_t gnu_hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

/* Returns true if the symbol with this index is called NAME and is defined. */
static bool is_symbol(const struct elf_module *m, uint64_t index, const char *name,
                      uint64_t *ret_address)
{
    Elf64_Sym s;
    char text[NAME_MAX_LEN + 1];
    size_t len = strlen(name) + 1;
    if (len > sizeof text || !attach_read(m->mem_fd, m->symbols + index * sizeof s, &s, sizeof s))
        return false;
    if (s.st_shndx == SHN_UNDEF || s.st_name > m->names_bytes || m->names_bytes - s.st_name < len ||
        !attach_read(m->mem_fd, m->names + s.st_name, text, len) || memcmp(text, name, len) != 0)
        return false;
    uint64_t address = m->bias + s.st_value;
    if (address < m->start || address >= m->end)
        return false;
    *ret_address = address;
    return true;
}

bool elf_module_symbol(const struct elf_module *m, const char *name, uint64_t *ret_address)
{
    struct gnu_hash h;
    uint32_t hash = gnu_hash_of(name), index, chain;
    if (!attach_read(m->mem_fd, m->hash, &h, sizeof h) || h.bucket_count == 0)
        return false;
    uint64_t buckets = m->hash + sizeof h + UINT64_C(8) * h.bloom_count;
    uint64_t chains = buckets + UINT64_C(4) * h.bucket_count;
    if (!attach_read_int(m->mem_fd, buckets + UINT64_C(4) * (hash % h.bucket_count), &index) ||
        index < h.first_symbol)
        return false;
    for (size_t i = 0; i < CHAIN_MAX; i++, index++) {
        if (!attach_read_int(m->mem_fd, chains + UINT64_C(4) * (index - h.first_symbol), &chain))
            return false;
        if ((chain | 1) == (hash | 1) && is_symbol(m, index, name, ret_address))
            return true;
        if (chain & 1) /* this symbol is the last one of its bucket */
            return false;
    }
    return false;
}
