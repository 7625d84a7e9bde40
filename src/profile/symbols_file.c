/* Finds the files with symbols. The paths come from a recording, possibly from another machine or
 * an attacker. Therefore, files that could block are not opened, and files with another build-id
 * are ignored. */
#include "profile/symbols_private.h"

#include <dlfcn.h>
#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "profile/profile.h"

#define DEBUG_ROOT "/usr/lib/debug"

static int elf_of_fd(int fd, struct elf_file *ret)
{
    elf_version(EV_CURRENT);
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    if (!elf || elf_kind(elf) != ELF_K_ELF) {
        elf_end(elf);
        return -ENOEXEC;
    }
    *ret = (struct elf_file){fd, elf};
    return 0;
}

int elf_file_open(const char *path, struct elf_file *ret)
{
    struct stat st;
    /* Opening a device may have side effects, so the file type is checked first. */
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOEXEC;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? elf_of_fd(fd, ret) : -ENOEXEC;
    if (r < 0)
        close(fd);
    return r;
}

int elf_file_map(const struct elf_file *f, struct elf_file *ret)
{
    Elf *elf = elf_begin(f->fd, ELF_C_READ_MMAP, NULL);
    if (!elf || elf_cntl(elf, ELF_C_FDREAD) < 0) {
        elf_end(elf);
        return -EIO;
    }
    *ret = (struct elf_file){-1, elf};
    return 0;
}

void elf_file_close(struct elf_file *f)
{
    elf_end(f->elf);
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct elf_file){-1, NULL};
}

static bool find_id_note(Elf_Data *data, struct build_id *ret)
{
    GElf_Nhdr note;
    size_t at = 0, next, name, bytes;
    while (data && (next = gelf_getnote(data, at, &note, &name, &bytes)) > 0) {
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
            memcmp((const char *)data->d_buf + name, "GNU", sizeof("GNU")) == 0 && note.n_descsz) {
            *ret = (struct build_id){(const uint8_t *)data->d_buf + bytes, note.n_descsz};
            return true;
        }
        at = next;
    }
    return false;
}

/* Reads the build-id of a file. libdw has a function for this, but that function also searches for
 * files, which ebb must not do. */
static bool read_id(const struct elf_file *f, struct build_id *ret)
{
    size_t headers = 0;
    for (Elf_Scn *scn = elf_nextscn(f->elf, NULL); scn; scn = elf_nextscn(f->elf, scn)) {
        GElf_Shdr shdr;
        if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_NOTE &&
            find_id_note(elf_getdata(scn, NULL), ret))
            return true;
    }
    if (elf_getphdrnum(f->elf, &headers) < 0)
        return false;
    for (size_t i = 0; i < headers && i <= INT_MAX; i++) {
        GElf_Phdr phdr;
        if (gelf_getphdr(f->elf, (int)i, &phdr) && phdr.p_type == PT_NOTE &&
            find_id_note(elf_getdata_rawchunk(f->elf, (int64_t)phdr.p_offset, phdr.p_filesz,
                                              phdr.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR),
                         ret))
            return true;
    }
    return false;
}

bool elf_file_has_id(const struct elf_file *f, const struct build_id *id)
{
    struct build_id own;
    if (!read_id(f, &own))
        return id->len == 0;
    /* The recorded build-id may be cut off at HEAP_BUILD_ID_MAX bytes. */
    size_t recorded = own.len < HEAP_BUILD_ID_MAX ? own.len : HEAP_BUILD_ID_MAX;
    return (id->len == own.len || id->len == recorded) &&
           memcmp(own.bytes, id->bytes, id->len) == 0;
}

static Elf_Scn *find_section(const struct elf_file *f, const char *name, GElf_Shdr *ret)
{
    size_t strings;
    if (!f->elf || elf_getshdrstrndx(f->elf, &strings) < 0)
        return NULL;
    for (Elf_Scn *scn = elf_nextscn(f->elf, NULL); scn; scn = elf_nextscn(f->elf, scn)) {
        const char *found = gelf_getshdr(scn, ret) ? elf_strptr(f->elf, strings, ret->sh_name) : "";
        if (found && strcmp(found, name) == 0)
            return scn;
    }
    return NULL;
}

bool elf_file_has(const struct elf_file *f, const char *name)
{
    GElf_Shdr shdr;
    return find_section(f, name, &shdr) && shdr.sh_type != SHT_NOBITS && shdr.sh_size > 0;
}

/* Opens ROOT + PATH if it has the build-id ID. */
static int open_checked(const char *root, const char *path, const struct build_id *id,
                        struct elf_file *ret)
{
    char whole[PATH_MAX];
    struct elf_file f = {-1, NULL};
    int n = snprintf(whole, sizeof whole, "%s%s", root ? root : "", path);
    if (n < 0 || (size_t)n >= sizeof whole)
        return -ENAMETOOLONG;
    int r = elf_file_open(whole, &f);
    if (r < 0)
        return r;
    if (!elf_file_has_id(&f, id)) {
        elf_file_close(&f);
        return -ESTALE;
    }
    *ret = f;
    return 0;
}

static int open_in_roots(const char *sysroot, const char *path, const struct build_id *id,
                         struct elf_file *ret)
{
    if (sysroot && open_checked(sysroot, path, id, ret) == 0)
        return 0;
    return open_checked(NULL, path, id, ret);
}

int symbols_open_module(const struct symbols_options *options, const char *path,
                        const struct build_id *id, struct elf_file *ret)
{
    static const char deleted[] = " (deleted)";
    char whole[PATH_MAX];
    size_t len = strlen(path);
    if (path[0] != '/')
        return -ENOENT; /* the path is the name of the vDSO, or relative to an unknown folder */
    int r = open_in_roots(options->sysroot, path, id, ret);
    if (r == 0 || id->len == 0 || len < sizeof deleted || len >= sizeof whole ||
        strcmp(path + len - sizeof deleted + 1, deleted) != 0)
        return r;
    /* The file was deleted while the job ran. A file with the same build-id may exist at that path
     * again. */
    memcpy(whole, path, len - sizeof deleted + 1);
    whole[len - sizeof deleted + 1] = '\0';
    return open_in_roots(options->sysroot, whole, id, ret);
}

int symbols_open_by_id(const char *sysroot, const struct build_id *id, struct elf_file *ret)
{
    char path[128] = DEBUG_ROOT "/.build-id/";
    size_t at = strlen(path);
    if (id->len < 2 || id->len > 32)
        return -ENOENT;
    for (size_t i = 0; i < id->len; i++) {
        at += (size_t)snprintf(path + at, sizeof path - at, "%02x%s", id->bytes[i],
                               i == 0 ? "/" : "");
    }
    snprintf(path + at, sizeof path - at, ".debug");
    return open_in_roots(sysroot, path, id, ret);
}

static bool has_crc(int fd, uint32_t wanted)
{
    enum { CHUNK = 1 << 16 };
    AUTO_FREE unsigned char *chunk = malloc(CHUNK);
    uLong crc = crc32(0, NULL, 0);
    off_t at = 0;
    ssize_t n = 0;
    while (chunk && (n = pread(fd, chunk, CHUNK, at)) > 0) {
        crc = crc32(crc, chunk, (uInt)n);
        at += n;
    }
    return chunk && n == 0 && crc == wanted;
}

static int open_linked(const char *root, const char *debug_root, const struct profile_text *folder,
                       const char *below, const char *name, const struct build_id *id,
                       struct elf_file *ret)
{
    char whole[PATH_MAX];
    int n = snprintf(whole, sizeof whole, "%s%s%.*s/%s%s", root, debug_root, (int)folder->len,
                     folder->at, below, name);
    return n < 0 || (size_t)n >= sizeof whole ? -ENAMETOOLONG : open_checked(NULL, whole, id, ret);
}

/* Searches for the debug file in the module's folder, in the folder .debug there, and among
 * installed debug files. */
static int open_debuglink(const char *sysroot, const char *path, const struct build_id *id,
                          const struct elf_file *module, struct elf_file *ret)
{
    static const struct {
        const char *root, *below;
    } places[] = {{"", ""}, {"", ".debug/"}, {DEBUG_ROOT, ""}};
    GElf_Word crc = 0;
    const char *name = dwelf_elf_gnu_debuglink(module->elf, &crc);
    const char *slash = strrchr(path, '/');
    if (!name || !slash || strchr(name, '/'))
        return -ENOENT;
    struct profile_text folder = {path, (size_t)(slash - path)};
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        const char *root = i % 2 ? "" : sysroot;
        if (!root ||
            open_linked(root, places[i / 2].root, &folder, places[i / 2].below, name, id, ret) < 0)
            continue;
        if (id->len > 0 || has_crc(ret->fd, crc))
            return 0;
        elf_file_close(ret);
    }
    return -ENOENT;
}

typedef void *debuginfod_begin_fn(void);
typedef int debuginfod_find_fn(void *client, const unsigned char *id, int id_len, char **path);
typedef void debuginfod_end_fn(void *client);

/* Loads a function. dlsym returns an object pointer; POSIX guarantees that its bytes are the
 * function's address. */
static void load_function(void *library, const char *symbol, void *ret_function)
{
    void *address = library ? dlsym(library, symbol) : NULL;
    memcpy(ret_function, &address, sizeof address);
}

/* Loads the debuginfod client, which uses $DEBUGINFOD_URLS; called only on request. */
static int open_from_network(const struct build_id *id, struct elf_file *ret)
{
    void *library = id->len ? dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    debuginfod_begin_fn *begin = NULL;
    debuginfod_find_fn *find = NULL;
    debuginfod_end_fn *end = NULL;
    load_function(library, "debuginfod_begin", &begin);
    load_function(library, "debuginfod_find_debuginfo", &find);
    load_function(library, "debuginfod_end", &end);
    void *client = begin && find && end ? begin() : NULL;
    if (!client)
        return -ENOENT;
    AUTO_FREE char *path = NULL;
    AUTO_CLOSE int fd = find(client, id->bytes, (int)id->len, &path);
    end(client);
    return fd >= 0 && path ? open_checked(NULL, path, id, ret) : -ENOENT;
}

int symbols_open_debug(const struct symbols_options *options, const char *path,
                       const struct build_id *id, const struct elf_file *module,
                       struct elf_file *ret)
{
    int r = symbols_open_by_id(options->sysroot, id, ret);
    if (r < 0 && module->elf)
        r = open_debuglink(options->sysroot, path, id, module, ret);
    if (r < 0 && options->debuginfod)
        r = open_from_network(id, ret);
    return r;
}
