/* Reads functions, inlined functions and lines from DWARF. */
#include "profile/symbols_private.h"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    NEST_MAX = 64, /* deepest nesting of namespaces and blocks; real programs have less */
    /* an address is searched for in at most this many ranges that start at or before the address */
    BACK_MAX = 8,
};

struct stretch {
    uint64_t start, end;
    Dwarf_Off unit; /* offset of the compilation unit's entry */
};

struct dwarf_index {
    Dwarf *dwarf;
    struct elf_file
        alt_file; /* debug information shared by several debug files (.gnu_debugaltlink) */
    Dwarf *alt;
    struct stretch *stretches; /* sorted by start address */
    size_t count, cap;
};

static int by_start(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Indexes the address ranges of a unit from its entries, because not every compiler writes
 * .debug_aranges. */
static int index_unit(struct dwarf_index *d, Dwarf_Die *unit)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(unit, at, &base, &start, &end)) > 0) {
        if (start >= end)
            continue;
        if (!ARRAY_ROOM(d->stretches, d->count, d->cap))
            return -ENOMEM;
        d->stretches[d->count++] = (struct stretch){start, end, dwarf_dieoffset(unit)};
    }
    return 0;
}

static int index_units(struct dwarf_index *d)
{
    Dwarf_Off at = 0, next;
    size_t header;
    int r = 0;
    while (r == 0 && dwarf_nextcu(d->dwarf, at, &next, &header, NULL, NULL, NULL) == 0) {
        Dwarf_Die unit;
        if (dwarf_offdie(d->dwarf, at + header, &unit))
            r = index_unit(d, &unit);
        if (next <= at)
            break;
        at = next;
    }
    if (d->count)
        qsort(d->stretches, d->count, sizeof *d->stretches, by_start);
    return r;
}

/* Attaches the installed file with shared debug information. If that file is missing, the module's
 * DWARF is not read at all. Otherwise libdw would open a path that the untrusted file contains, and
 * would block if that path is a FIFO. */
static int attach_alt(struct dwarf_index *d, const char *sysroot)
{
    const char *name = NULL;
    const void *id = NULL;
    ssize_t len = dwelf_dwarf_gnu_debugaltlink(d->dwarf, &name, &id);
    if (len == 0)
        return 0;
    if (len < 0)
        return -EBADMSG;
    struct build_id build_id = {id, (size_t)len};
    struct elf_file file = {-1, NULL};
    int r = symbols_open_by_id(sysroot, &build_id, &file);
    if (r < 0)
        return r;
    r = elf_file_map(&file, &d->alt_file);
    elf_file_close(&file);
    if (r < 0)
        return r;
    d->alt = dwarf_begin_elf(d->alt_file.elf, DWARF_C_READ, NULL);
    if (!d->alt)
        return -EBADMSG;
    dwarf_setalt(d->dwarf, d->alt);
    return 0;
}

int dwarf_index_new(const char *sysroot, const struct elf_file *f, struct dwarf_index **ret)
{
    struct dwarf_index *d = calloc(1, sizeof *d);
    if (!d)
        return -ENOMEM;
    d->alt_file.fd = -1;
    d->dwarf = dwarf_begin_elf(f->elf, DWARF_C_READ, NULL);
    int r = d->dwarf ? attach_alt(d, sysroot) : -EBADMSG;
    if (r == 0)
        r = index_units(d);
    if (r < 0) {
        dwarf_index_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void dwarf_index_free(struct dwarf_index *d)
{
    if (!d)
        return;
    dwarf_end(d->dwarf);
    dwarf_end(d->alt);
    elf_file_close(&d->alt_file);
    free(d->stretches);
    free(d);
}

static bool find_unit(struct dwarf_index *d, uint64_t address, Dwarf_Die *ret)
{
    size_t after = ARRAY_SEARCH(i, d->count, d->stretches[i].start <= address);
    for (size_t i = 1; i <= BACK_MAX && i <= after; i++)
        if (address < d->stretches[after - i].end)
            return dwarf_offdie(d->dwarf, d->stretches[after - i].unit, ret) != NULL;
    return false;
}

static bool is_container(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
           tag == DW_TAG_class_type;
}

/* Unused functions that the linker dropped are still described, at address 0, where they would
 * overlap other functions. */
static bool function_contains(Dwarf_Die *function, uint64_t address)
{
    Dwarf_Addr start;
    bool is_dropped = dwarf_lowpc(function, &start) == 0 && start == 0;
    return !is_dropped && dwarf_haspc(function, address) > 0;
}

/* Finds the function below PARENT that contains ADDRESS. */
static bool find_function(Dwarf_Die *parent, uint64_t address, unsigned depth, Dwarf_Die *ret)
{
    Dwarf_Die die;
    if (depth > NEST_MAX || dwarf_child(parent, &die) != 0)
        return false;
    do {
        int tag = dwarf_tag(&die);
        if (tag == DW_TAG_subprogram && function_contains(&die, address)) {
            *ret = die;
            return true;
        }
        if (is_container(tag) && find_function(&die, address, depth + 1, ret))
            return true;
    } while (dwarf_siblingof(&die, &die) == 0);
    return false;
}

/* Descends one level from PARENT towards ADDRESS, into a block or an inlined function. */
static bool step_down(const Dwarf_Die *parent, uint64_t address, Dwarf_Die *ret)
{
    Dwarf_Die from = *parent, die;
    if (dwarf_child(&from, &die) != 0)
        return false;
    do {
        int tag = dwarf_tag(&die);
        if ((tag == DW_TAG_inlined_subroutine || tag == DW_TAG_lexical_block) &&
            dwarf_haspc(&die, address) > 0) {
            *ret = die;
            return true;
        }
    } while (dwarf_siblingof(&die, &die) == 0);
    return false;
}

/* Stores FUNCTION and the functions inlined into it at ADDRESS, outermost first. If there are too
 * many, leaves out the innermost. */
static size_t chain_of(const Dwarf_Die *function, uint64_t address,
                       Dwarf_Die ret[SYMBOL_INLINE_MAX])
{
    Dwarf_Die at = *function, next;
    size_t n = 0;
    ret[n++] = at;
    for (unsigned depth = 0; depth < NEST_MAX && n < SYMBOL_INLINE_MAX; depth++) {
        if (!step_down(&at, address, &next))
            break;
        at = next;
        if (dwarf_tag(&at) == DW_TAG_inlined_subroutine)
            ret[n++] = at;
    }
    return n;
}

static const char *function_name(Dwarf_Die *die, struct texts *texts)
{
    Dwarf_Attribute attr;
    const char *name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_linkage_name, &attr));
    if (!name)
        name = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attr));
    if (!name)
        name = dwarf_diename(die);
    return name && *name ? symbols_readable(texts, name) : NULL;
}

static void line_at(Dwarf_Die *unit, uint64_t address, struct texts *texts, struct symbol *ret)
{
    int number = 0;
    Dwarf_Line *line = dwarf_getsrc_die(unit, address);
    const char *file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    if (file)
        ret->file = texts_keep(texts, file, strlen(file));
    if (line && dwarf_lineno(line, &number) == 0 && number > 0)
        ret->line = (uint32_t)number;
}

/* Finds the line in the surrounding function that calls INLINED. */
static void line_of_call(Dwarf_Die *unit, Dwarf_Die *inlined, struct texts *texts,
                         struct symbol *ret)
{
    Dwarf_Attribute attr;
    Dwarf_Files *files;
    Dwarf_Word number = 0;
    size_t count;
    const char *file = NULL;
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attr), &number) == 0 &&
        dwarf_getsrcfiles(unit, &files, &count) == 0 && number < count)
        file = dwarf_filesrc(files, number, NULL, NULL);
    if (file)
        ret->file = texts_keep(texts, file, strlen(file));
    if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attr), &number) == 0 &&
        number <= INT32_MAX)
        ret->line = (uint32_t)number;
}

size_t dwarf_index_find(struct dwarf_index *d, uint64_t address, struct texts *texts,
                        struct symbol ret[SYMBOL_INLINE_MAX])
{
    Dwarf_Die unit, function, chain[SYMBOL_INLINE_MAX];
    if (!find_unit(d, address, &unit) || !find_function(&unit, address, 0, &function))
        return 0;
    size_t n = chain_of(&function, address, chain);
    for (size_t i = 0; i < n; i++) {
        size_t outward = n - 1 - i;
        ret[i] = (struct symbol){.function = function_name(&chain[outward], texts),
                                 .is_inlined = outward > 0};
        if (i == 0)
            line_at(&unit, address, texts, &ret[i]);
        else
            line_of_call(&unit, &chain[outward + 1], texts, &ret[i]);
    }
    return n;
}
