/* Resolves addresses in modules to functions and lines, and decides which file to read. */
#include "profile/symbols.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/span.h"
#include "profile/demangle.h"
#include "profile/symbols_private.h"

enum { ID_MAX = 32, MODULES_MAX = 1 << 16 };

/* One module of the recording; its file is read when first needed. */
struct module {
    char *path;
    uint8_t id[ID_MAX];
    size_t id_len;
    bool is_read;
    struct elf_functions functions;
    struct elf_file dwarf_file;
    struct dwarf_index *dwarf;
};

struct symbols {
    struct symbols_options options;
    char *sysroot;
    struct module *modules;
    size_t n_modules;
    struct texts texts;
};

int symbols_new(const struct symbols_options *options, struct symbols **ret)
{
    struct symbols *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->options = *options;
    if (options->sysroot && !(s->options.sysroot = s->sysroot = strdup(options->sysroot))) {
        free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

static void module_fini(struct module *m)
{
    dwarf_index_free(m->dwarf);
    elf_functions_fini(&m->functions);
    elf_file_close(&m->dwarf_file);
    free(m->path);
}

void symbols_free(struct symbols *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_modules; i++)
        module_fini(&s->modules[i]);
    free(s->modules);
    texts_fini(&s->texts);
    free(s->sysroot);
    free(s);
}

const char *symbols_readable(struct texts *texts, const char *name)
{
    struct buf readable = {0};
    demangle(&readable, name);
    const char *kept = readable.failed ? NULL : texts_keep(texts, readable.data, readable.len);
    buf_fini(&readable);
    return kept;
}

static struct module *module_add(struct symbols *s, const char *path, size_t len,
                                 const struct build_id *id)
{
    struct module *wide = reallocarray(s->modules, s->n_modules + 1, sizeof *wide);
    if (!wide)
        return NULL;
    s->modules = wide;
    struct module *m = &wide[s->n_modules];
    *m = (struct module){
        .path = span_copy((struct span){path, len}), .id_len = id->len, .dwarf_file = {-1, NULL}};
    if (!m->path)
        return NULL;
    if (id->len)
        memcpy(m->id, id->bytes, id->len);
    s->n_modules++;
    return m;
}

/* Finds or adds a module. A path that is too long is replaced by an empty path, which has no
 * file. */
static struct module *module_of(struct symbols *s, const char *path, size_t len,
                                const struct build_id *id)
{
    if (!path || memchr(path, '\0', len) || len >= PATH_MAX)
        len = 0;
    for (size_t i = s->n_modules; i-- > 0;) {
        struct module *m = &s->modules[i];
        if (m->id_len == id->len && (!id->len || memcmp(m->id, id->bytes, id->len) == 0) &&
            strlen(m->path) == len && strncmp(m->path, len ? path : "", len) == 0)
            return m;
    }
    return s->n_modules < MODULES_MAX ? module_add(s, len ? path : "", len, id) : NULL;
}

static void read_dwarf(struct symbols *s, struct module *m, const struct elf_file *f)
{
    if (elf_file_has(f, ".debug_info") && elf_file_map(f, &m->dwarf_file) == 0)
        dwarf_index_new(s->options.sysroot, &m->dwarf_file, &m->dwarf);
}

/* Reads the symbols of a module. If the module's file is stripped, some symbols are in that file
 * and the others in a separate debug file. */
static void read_module(struct symbols *s, struct module *m)
{
    struct elf_file file = {-1, NULL}, debug = {-1, NULL};
    struct build_id id = {m->id, m->id_len};
    symbols_open_module(&s->options, m->path, &id, &file);
    read_dwarf(s, m, &file);
    if (!m->dwarf && symbols_open_debug(&s->options, m->path, &id, &file, &debug) == 0)
        read_dwarf(s, m, &debug);
    if (!elf_file_has(&debug, ".symtab") || elf_functions_read(&debug, &m->functions) < 0)
        elf_functions_read(&file, &m->functions);
    elf_file_close(&file);
    elf_file_close(&debug);
    m->is_read = true;
}

static size_t look_up(struct symbols *s, struct module *m, uint64_t offset,
                      struct symbol ret[SYMBOL_INLINE_MAX])
{
    char name[ELF_NAME_MAX];
    size_t n = m->dwarf ? dwarf_index_find(m->dwarf, offset, &s->texts, ret) : 0;
    bool is_named = n > 0 && ret[n - 1].function;
    if (is_named || !elf_functions_find(&m->functions, offset, name))
        return n;
    n = n ? n : 1;
    if (n == 1)
        ret[0] = (struct symbol){0};
    ret[n - 1].function = symbols_readable(&s->texts, name);
    return n;
}

size_t symbols_find(struct symbols *s, const char *path, size_t path_len, const uint8_t *build_id,
                    size_t build_id_len, uint64_t offset, struct symbol ret[SYMBOL_INLINE_MAX])
{
    struct build_id id = {build_id, build_id_len < ID_MAX ? build_id_len : ID_MAX};
    struct module *m = module_of(s, path, path_len, &id);
    if (!m)
        return 0;
    if (!m->is_read)
        read_module(s, m);
    return look_up(s, m, offset, ret);
}
