/* An ELF module in the memory of another process, and its exported symbols. They are found through
 * the dynamic section in memory, so the file may be deleted or stripped. All data is untrusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_module {
    int mem_fd;
    uint64_t bias;       /* an address in memory minus the corresponding address in the file */
    uint64_t start, end; /* the range of addresses that the module occupies */
    uint64_t symbols, names, hash;
    uint64_t names_bytes;
    /* The unused zero bytes after the module's last variable, up to the end of the page. There may
     * be none. */
    uint64_t tail, tail_bytes;
};

/* Reads the module whose ELF header is at ADDRESS. Returns 0; -EBADMSG if there is no ELF header at
 * ADDRESS, or the module has no symbols; or -EIO if the memory cannot be read. */
int elf_module_read(int mem_fd, uint64_t address, uint64_t page_bytes, struct elf_module *ret);
/* Finds the symbol NAME. Returns false if the module does not define it. */
bool elf_module_symbol(const struct elf_module *m, const char *name, uint64_t *ret_address);
