/* Reads the functions of an ELF file's symbol table. */
#include "profile/symbols_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

enum {
    /* An address is searched for in at most this many functions that start at or before the
     * address. */
    NEST_MAX = 16,
    ALIASES_MAX = 16,   /* maximum number of names at one address that are compared */
    UNSIZED_MAX = 4096, /* size in bytes that is assumed for functions without a size */
};

static bool is_function(const GElf_Sym *sym)
{
    unsigned type = GELF_ST_TYPE(sym->st_info);
    return (type == STT_FUNC || type == STT_GNU_IFUNC) && sym->st_shndx != SHN_UNDEF &&
           sym->st_name != 0;
}

/* Orders functions by start address, then by size. The search for an address goes backwards, so
 * among functions with the same start the largest is checked first. */
static int by_start(const void *a, const void *b)
{
    const struct elf_function *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

static int read_table(const struct elf_file *f, Elf_Scn *scn, const GElf_Shdr *shdr,
                      struct elf_functions *ret)
{
    GElf_Shdr strings;
    Elf_Scn *strings_scn = elf_getscn(f->elf, shdr->sh_link);
    Elf_Data *data = elf_getdata(scn, NULL);
    if (!data || !data->d_buf || !shdr->sh_entsize || !gelf_getshdr(strings_scn, &strings) ||
        strings.sh_type != SHT_STRTAB || strings.sh_flags & SHF_COMPRESSED)
        return -ENODATA;
    size_t n = data->d_size / shdr->sh_entsize;
    struct elf_functions t = {
        .fd = -1, .strings_at = strings.sh_offset, .strings_len = strings.sh_size};
    t.items = calloc(n ? n : 1, sizeof *t.items);
    if (t.items)
        t.fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    if (t.fd < 0) {
        free(t.items);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n && i <= INT32_MAX; i++) {
        GElf_Sym sym;
        if (gelf_getsym(data, (int)i, &sym) && is_function(&sym))
            t.items[t.count++] = (struct elf_function){
                sym.st_value, sym.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)sym.st_size,
                sym.st_name};
    }
    qsort(t.items, t.count, sizeof *t.items, by_start);
    *ret = t;
    return 0;
}

int elf_functions_read(const struct elf_file *f, struct elf_functions *ret)
{
    static const GElf_Word types[] = {SHT_SYMTAB, SHT_DYNSYM};
    for (size_t i = 0; i < 2; i++) {
        for (Elf_Scn *scn = elf_nextscn(f->elf, NULL); scn; scn = elf_nextscn(f->elf, scn)) {
            GElf_Shdr shdr;
            if (gelf_getshdr(scn, &shdr) && shdr.sh_type == types[i] &&
                read_table(f, scn, &shdr, ret) == 0)
                return 0;
        }
    }
    return -ENODATA;
}

void elf_functions_fini(struct elf_functions *t)
{
    if (t->items)
        close(t->fd);
    free(t->items);
    *t = (struct elf_functions){0};
}

static bool read_symbol_name(const struct elf_functions *t, uint32_t name, char ret[ELF_NAME_MAX])
{
    uint64_t left = name < t->strings_len ? t->strings_len - name : 0;
    size_t len = left < ELF_NAME_MAX - 1 ? (size_t)left : ELF_NAME_MAX - 1;
    ssize_t n = len ? pread(t->fd, ret, len, (off_t)(t->strings_at + name)) : -1;
    ret[n > 0 ? n : 0] = '\0';
    return ret[0] != '\0';
}

/* Returns the function that contains ADDRESS. If there is none, but the nearest function before
 * ADDRESS has no size, returns that function; hand-written assembly often has no size. */
static const struct elf_function *find_holder(const struct elf_functions *t, uint64_t address)
{
    size_t after = ARRAY_SEARCH(i, t->count, t->items[i].start <= address);
    if (after == 0)
        return NULL;
    for (size_t i = 1; i <= NEST_MAX && i <= after; i++)
        if (address - t->items[after - i].start < t->items[after - i].size)
            return &t->items[after - i];
    const struct elf_function *f = &t->items[after - 1];
    return f->size == 0 && address - f->start < UNSIZED_MAX ? f : NULL;
}

static size_t underscores(const char *name)
{
    return strspn(name, "_");
}

/* Prefers the name with the fewest leading underscores, such as malloc over __libc_malloc. */
bool elf_functions_find(const struct elf_functions *t, uint64_t address, char ret[ELF_NAME_MAX])
{
    char other[ELF_NAME_MAX];
    const struct elf_function *f = find_holder(t, address);
    if (!f || !read_symbol_name(t, f->name, ret))
        return false;
    for (size_t i = 1; i < ALIASES_MAX && f - t->items >= (ptrdiff_t)i; i++) {
        const struct elf_function *alias = f - i;
        if (alias->start != f->start || alias->size != f->size)
            break;
        if (read_symbol_name(t, alias->name, other) && underscores(other) < underscores(ret))
            memcpy(ret, other, sizeof other);
    }
    return true;
}
