/* Examines the file of the job's program: its path, and whether its ELF headers allow preloading
 * a library. */
#include "cli/run_program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { HEAD_BYTES = 4096, SCRIPTS_MAX = 4, PROGRAM_HEADERS_MAX = 64 };
enum { NEEDED_MAX = 1024, NAME_MAX_BYTES = 256 };

#if __SIZEOF_POINTER__ == 8
enum { OTHER_CLASS = ELFCLASS32 };
#else
enum { OTHER_CLASS = ELFCLASS64 };
#endif

struct program {
    int fd;
    unsigned count;
    Elf64_Phdr headers[PROGRAM_HEADERS_MAX];
};

static bool program_read_at(int fd, uint64_t at, void *ret, size_t len)
{
    return at < INT64_MAX / 2 && pread(fd, ret, len, (off_t)at) == (ssize_t)len;
}

static bool read_headers(int fd, const char *head, size_t len, struct program *ret)
{
    Elf64_Ehdr elf;
    if (len < sizeof elf)
        return false;
    memcpy(&elf, head, sizeof elf);
    ret->fd = fd;
    ret->count = elf.e_phnum;
    return elf.e_phentsize == sizeof ret->headers[0] && elf.e_phnum <= PROGRAM_HEADERS_MAX &&
           program_read_at(fd, elf.e_phoff, ret->headers, elf.e_phnum * sizeof ret->headers[0]);
}

static const Elf64_Phdr *find_header(const struct program *p, uint32_t type)
{
    for (unsigned i = 0; i < p->count; i++)
        if (p->headers[i].p_type == type)
            return &p->headers[i];
    return NULL;
}

/* Reads a string from the file, truncated to SIZE; "" if there is none. */
static void read_text(int fd, uint64_t at, char *ret, size_t size)
{
    ssize_t n = at < INT64_MAX / 2 ? pread(fd, ret, size - 1, (off_t)at) : -1;
    ret[n > 0 ? n : 0] = '\0';
}

/* Returns the offset in the file of the bytes that will be mapped at ADDRESS, or UINT64_MAX if
 * they are not in the file. */
static uint64_t offset_of(const struct program *p, uint64_t address)
{
    for (unsigned i = 0; i < p->count; i++) {
        const Elf64_Phdr *h = &p->headers[i];
        if (h->p_type == PT_LOAD && address - h->p_vaddr < h->p_filesz)
            return h->p_offset + (address - h->p_vaddr);
    }
    return UINT64_MAX;
}

static bool read_dynamic(const struct program *p, const Elf64_Phdr *h, unsigned i, Elf64_Dyn *ret)
{
    return i < h->p_filesz / sizeof *ret &&
           program_read_at(p->fd, h->p_offset + i * sizeof *ret, ret, sizeof *ret) &&
           ret->d_tag != DT_NULL;
}

static bool is_sanitizer(const char *library)
{
    static const char *const names[] = {"libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so",
                                        "libclang_rt."};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(library, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* Returns true if the program needs a sanitizer's library. */
static bool is_sanitized(const struct program *p)
{
    const Elf64_Phdr *dynamic = find_header(p, PT_DYNAMIC);
    uint64_t texts = UINT64_MAX;
    char name[NAME_MAX_BYTES];
    Elf64_Dyn d;
    for (unsigned i = 0; dynamic && i < NEEDED_MAX && read_dynamic(p, dynamic, i, &d); i++)
        if (d.d_tag == DT_STRTAB)
            texts = offset_of(p, d.d_un.d_ptr);
    if (texts == UINT64_MAX)
        return false;
    for (unsigned i = 0; i < NEEDED_MAX && read_dynamic(p, dynamic, i, &d); i++) {
        if (d.d_tag != DT_NEEDED || d.d_un.d_val > INT32_MAX)
            continue;
        read_text(p->fd, texts + d.d_un.d_val, name, sizeof name);
        if (is_sanitizer(name))
            return true;
    }
    return false;
}

static const char *elf_obstacle(int fd, const char *head, size_t len)
{
    struct program p;
    char loader[PATH_MAX];
    if (head[EI_CLASS] == OTHER_CLASS)
        return "the program's word size differs from ebb's";
    if (!read_headers(fd, head, len, &p))
        return NULL;
    const Elf64_Phdr *named = find_header(&p, PT_INTERP);
    if (!named)
        return "the program is statically linked";
    read_text(fd, named->p_offset, loader, sizeof loader);
    if (strstr(loader, "musl"))
        return "the program uses musl, not glibc";
    if (is_sanitized(&p))
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
            return elf_obstacle(fd, head, (size_t)len);
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
        /* EACCES can also mean that a folder in the path may not be entered */
        if (r == -EACCES && access(ret_path, F_OK) == 0)
            found = r;
        if (!at[len])
            break;
        at += len + 1;
    }
    return found;
}
