/* Examines the file of the job's program: its path, and whether its ELF headers allow preloading
 * a library. */
#include "cli/run_program.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { HEAD_BYTES = 4096, SCRIPTS_MAX = 4 };
enum { OWN_CLASS = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32 };

static bool is_sanitizer(const char *library)
{
    static const char *const names[] = {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so",
                                        "libclang_rt."};
    for (size_t i = 0; library && i < sizeof names / sizeof names[0]; i++)
        if (strncmp(library, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Returns true if the program needs a sanitizer's library. */
static bool is_sanitized(Elf *elf)
{
    GElf_Shdr header;
    GElf_Dyn d;
    for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
        if (!gelf_getshdr(section, &header) || header.sh_type != SHT_DYNAMIC)
            continue;
        Elf_Data *data = elf_getdata(section, NULL);
        for (int i = 0; data && gelf_getdyn(data, i, &d); i++)
            if (d.d_tag == DT_NEEDED && is_sanitizer(elf_strptr(elf, header.sh_link, d.d_un.d_val)))
                return true;
    }
    return false;
}

static const char *elf_obstacle(Elf *elf)
{
    GElf_Phdr header;
    size_t count;
    bool is_dynamic = false;
    if (elf_kind(elf) != ELF_K_ELF || elf_getphdrnum(elf, &count) < 0)
        return NULL;
    if (gelf_getclass(elf) != OWN_CLASS)
        return "the program's word size differs from ebb's";
    for (int i = 0; !is_dynamic && i < (int)count; i++)
        is_dynamic = gelf_getphdr(elf, i, &header) && header.p_type == PT_INTERP;
    if (!is_dynamic)
        return "the program is statically linked";
    const Elf_Data *loader =
        elf_getdata_rawchunk(elf, (int64_t)header.p_offset, header.p_filesz, ELF_T_BYTE);
    if (loader && memmem(loader->d_buf, loader->d_size, "musl", strlen("musl")))
        return "the program uses musl, not glibc";
    if (is_sanitized(elf))
        return "the program is built with a sanitizer, which watches the heap itself";
    return NULL;
}

/* Reads the interpreter from a line such as "#!/usr/bin/python3". For "#!/usr/bin/env python3"
 * the interpreter is env, and the program that it starts is unknown here. */
static bool script_interpreter(const char *head, size_t len, char ret[PATH_MAX])
{
    size_t at = 2, n = 0;
    while (at < len && (head[at] == ' ' || head[at] == '\t'))
        at++;
    while (at < len && n < PATH_MAX - 1 && !strchr(" \t\n", head[at]))
        ret[n++] = head[at++];
    ret[n] = '\0';
    return n > 0;
}

const char *run_program_obstacle(const char *path)
{
    char head[HEAD_BYTES + 1], next[PATH_MAX];
    struct stat st;
    for (int i = 0; i < SCRIPTS_MAX; i++) {
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t len = fd >= 0 ? pread(fd, head, HEAD_BYTES, 0) : -1;
        if (len < 4 || fstat(fd, &st) < 0)
            return NULL;
        head[len] = '\0';
        if (memcmp(head, ELFMAG, SELFMAG) == 0) {
            if (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
                ((st.st_mode & S_ISGID) && st.st_gid != getegid()))
                return "the program is setuid or setgid";
            elf_version(EV_CURRENT);
            Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
            const char *obstacle = elf_obstacle(elf);
            elf_end(elf);
            return obstacle;
        }
        if (memcmp(head, "#!", 2) != 0 || !script_interpreter(head, (size_t)len, next))
            return NULL;
        path = next;
    }
    return NULL;
}

static int program_check(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

int run_program_find(const char *name, char ret_path[PATH_MAX])
{
    if (strchr(name, '/')) {
        snprintf(ret_path, PATH_MAX, "%s", name);
        return program_check(name);
    }
    const char *path = getenv("PATH");
    int found = -ENOENT;
    for (const char *at = path ? path : "/bin:/usr/bin"; name[0];) {
        size_t len = strcspn(at, ":");
        snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)len, at, len ? "/" : "", name);
        int r = program_check(ret_path);
        if (r == 0)
            return 0;
        /* EACCES may also mean that a folder in the path is inaccessible. So EACCES counts only if
         * the file exists. */
        if (r == -EACCES && access(ret_path, F_OK) == 0)
            found = r;
        if (!at[len])
            break;
        at += len + 1;
    }
    return found;
}
