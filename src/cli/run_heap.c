/* The heap profiler around a run: the job's program, and what was found. */
#include "cli/run_heap.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "engine/heap_json.h"
#include "profile/marks.h"
#include "profile/folder.h"

enum { GROWING_MAX = 3, GROWING_LEAST = 1 << 20 };
enum { HEAD_BYTES = 4096, SCRIPTS_MAX = 4, PROGRAM_HEADERS_MAX = 64 };

#if __SIZEOF_POINTER__ == 8
enum { OTHER_CLASS = ELFCLASS32 };
#else
enum { OTHER_CLASS = ELFCLASS64 };
#endif

/* The loader named in the file, "" if none; false: cannot be told. */
static bool read_loader(int fd, const char *head, size_t len, char ret[PATH_MAX])
{
    Elf64_Ehdr elf;
    Elf64_Phdr p;
    if (len < sizeof elf)
        return false;
    memcpy(&elf, head, sizeof elf);
    if (elf.e_phentsize != sizeof p || elf.e_phnum > PROGRAM_HEADERS_MAX ||
        elf.e_phoff > INT64_MAX / 2)
        return false;
    ret[0] = '\0';
    for (unsigned i = 0; i < elf.e_phnum; i++) {
        if (pread(fd, &p, sizeof p, (off_t)(elf.e_phoff + i * sizeof p)) != (ssize_t)sizeof p)
            return false;
        if (p.p_type != PT_INTERP)
            continue;
        ssize_t n =
            p.p_offset < INT64_MAX / 2 ? pread(fd, ret, PATH_MAX - 1, (off_t)p.p_offset) : -1;
        if (n < 0)
            return false;
        ret[(uint64_t)n < p.p_filesz ? (uint64_t)n : p.p_filesz] = '\0';
        return true;
    }
    return true;
}

static const char *elf_obstacle(int fd, const char *head, size_t len)
{
    char loader[PATH_MAX];
    if (head[EI_CLASS] == OTHER_CLASS)
        return "it is of another word size than ebb";
    if (!read_loader(fd, head, len, loader))
        return NULL;
    if (!loader[0])
        return "it is a static program";
    if (strstr(loader, "musl"))
        return "it uses musl, not glibc";
    return NULL;
}

/* "#!/usr/bin/env python3" → the interpreter; of env the program is not known here. */
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

const char *run_heap_obstacle(const char *path)
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
                return "it changes its user or group when it starts";
            return elf_obstacle(fd, head, (size_t)len);
        }
        if (memcmp(head, "#!", 2) != 0 || !script_interpreter(head, (size_t)len, next))
            return NULL;
        path = next;
    }
    return NULL;
}

/* ---- what was found ---- */

/* Those that surely grew, and of which the verdict does not say that it is over. */
static size_t growing_rows(const struct growth *g)
{
    size_t n = 0;
    while (n < g->count && n < GROWING_MAX && g->rows[n].verdict.leak != VERDICT_LEAK_NO &&
           g->rows[n].growth_bytes - 2 * g->rows[n].growth_sigma > GROWING_LEAST)
        n++;
    return n;
}

static json_t *growing_json(const char *folder, const struct profile *p)
{
    AUTO_FREE struct growth_mark *marks = NULL;
    struct growth_options options = {.by = GROWTH_BY_LOCATION};
    const struct symbols_options symbols = {.debuginfod = false};
    struct names *names;
    struct growth g;
    json_t *rows = NULL;
    if (marks_read(folder, p->pid, p->start_ns, &marks, &options.n_marks, NULL) < 0 ||
        names_new(p, &symbols, &names) < 0)
        return NULL;
    options.marks = marks;
    if (growth_of(p, names, &options, &g, NULL) == 0) {
        json_t *doc = heap_growth_json(p, names, &g, growing_rows(&g), false);
        rows = json_incref(json_object_get(doc, "rows"));
        json_decref(doc);
        growth_fini(&g);
    }
    names_free(names);
    return rows;
}

void run_heap_growing(json_t *doc)
{
    json_t *heap = json_object_get(doc, "heap");
    const char *folder = json_string_value(json_object_get(doc, "run_dir"));
    struct folder_heap found = {0};
    if (!json_is_true(json_object_get(heap, "on")) || !folder ||
        folder_heap_read(folder, 0, &found, NULL) < 0)
        return;
    json_t *rows = growing_json(folder, found.profile);
    if (rows)
        json_object_set_new(heap, "growing", rows);
    folder_heap_fini(&found);
}
