/* Fuzzes the code that reads a program or library file: the parsers of its build ID and symbol
 * table, and queries to libdw. The input is the content of the file. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "profile/symbols_private.h"
#include "target.h"

enum { LOOKUPS = 8 };

static void must(bool is_true)
{
    if (!is_true)
        abort();
}

static void find(const struct elf_functions *functions, struct dwarf_index *dwarf, uint64_t address)
{
    char name[ELF_NAME_MAX];
    struct symbol found[SYMBOL_INLINE_MAX];
    struct texts texts = {0};
    if (elf_functions_find(functions, address, name))
        must(strnlen(name, sizeof name) < sizeof name);
    size_t n = dwarf ? dwarf_index_find(dwarf, address, &texts, found) : 0;
    must(n <= SYMBOL_INLINE_MAX);
    for (size_t i = 0; i < n; i++)
        must(found[i].is_inlined == (i + 1 < n) && (!found[i].file || strlen(found[i].file) > 0));
    texts_fini(&texts);
}

static void read_file(const struct elf_file *file)
{
    struct elf_functions functions = {.fd = -1};
    struct elf_file mapped = {-1, NULL}, debug = {-1, NULL};
    const struct symbols_options options = {.sysroot = "/nonexistent"};
    struct dwarf_index *dwarf = NULL;
    elf_file_has_id(file, &(struct build_id){(const uint8_t *)"01234567890123456789", 20});
    symbols_open_debug(&options, "/nonexistent/module", &(struct build_id){0}, file, &debug);
    elf_file_close(&debug);
    elf_functions_read(file, &functions);
    if (elf_file_has(file, ".debug_info") && elf_file_map(file, &mapped) == 0)
        dwarf_index_new(options.sysroot, &mapped, &dwarf);
    for (size_t i = 0; i < LOOKUPS && i < functions.count; i++) {
        find(&functions, dwarf, functions.items[i].start);
        find(&functions, dwarf, functions.items[i].start + functions.items[i].size / 2);
    }
    find(&functions, dwarf, 0x1000);
    dwarf_index_free(dwarf);
    elf_file_close(&mapped);
    elf_functions_fini(&functions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct elf_file file;
    char path[32];
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (elf_file_open(path, &file) == 0) {
        read_file(&file);
        elf_file_close(&file);
    }
    return 0;
}
