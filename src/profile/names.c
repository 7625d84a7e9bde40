/* Resolves the frames of stacks to names, and stores each result for reuse. */
#include "profile/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/span.h"
#include "profile/names_known.h"
#include "profile/pylines.h"
#include "base/texts.h"

/* The program's own files, determined at the first use. A zeroed struct is valid. */
struct program {
    bool is_known;
    /* Path such as "…/site-packages/mypkg" if the program is an installed package, else NULL. */
    char *package;
};

/* The frames that one frame word resolves to. */
struct named {
    struct name *list;
    size_t count;
};

struct names {
    const struct profile *profile;
    struct symbols *symbols;
    struct texts texts;
    struct numbers by_frame; /* maps a frame word to an index in ALL */
    struct named *all;
    size_t count, cap;
    struct program program;
};

static const struct name no_stack = {.kind = NAME_UNKNOWN, .function = "(no stack)"};
static const struct name no_memory = {.kind = NAME_UNKNOWN,
                                      .function = "(name unknown: ebb is out of memory)"};

/* ---- which files are the program's own ---- */

/* number of packages for which stacks are counted; further packages are ignored */
enum { PACKAGES = 16 };

/* A package, and the number of stacks that begin in it. */
struct begun {
    char *package;
    size_t count;
};

static bool is_users(const char *function, const char *file, uint32_t line)
{
    return !known_plumbing(function, file) && !known_library(file) &&
           !known_wrapper(function, file, line);
}

/* Returns a copy of the path of a Python frame's file, or NULL for a native frame. */
static char *file_of_node(const struct profile *p, uint32_t node)
{
    uint64_t frame = p->nodes[node].frame;
    uint64_t at = frame >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK;
    return frame & HEAP_FRAME_PYTHON && at < p->n_codes
               ? span_copy((struct span){p->codes[at].file.at, p->codes[at].file.len})
               : NULL;
}

static bool has_users(const struct profile *p)
{
    bool found = false;
    for (size_t i = 0; !found && i < p->n_codes; i++) {
        const struct profile_code *code = &p->codes[i];
        char *file = span_copy((struct span){code->file.at, code->file.len});
        char *name = span_copy((struct span){code->name.at, code->name.len});
        found = file && name && *file && is_users(name, file, code->first_line);
        free(file);
        free(name);
    }
    return found;
}

static void count_package(struct begun list[PACKAGES], const char *file)
{
    size_t len, at = 0;
    if (!known_package(file, &len))
        return;
    while (at < PACKAGES && list[at].package &&
           (strncmp(list[at].package, file, len) != 0 || list[at].package[len]))
        at++;
    if (at == PACKAGES)
        return;
    if (!list[at].package)
        list[at].package = span_copy((struct span){file, len});
    list[at].count++;
}

/* Returns true if no caller of NODE is in a package, so that the stack begins in NODE's package. */
static bool begins_stack(const struct profile *p, uint32_t node)
{
    for (uint32_t at = p->nodes[node].parent; at; at = p->nodes[at].parent) {
        char *file = file_of_node(p, at);
        size_t len;
        bool is_package = file && known_package(file, &len);
        free(file);
        if (is_package)
            return false;
    }
    return true;
}

static char *package_started(const struct profile *p)
{
    struct begun list[PACKAGES] = {0};
    size_t best = 0;
    for (uint32_t i = 1; i < p->n_nodes; i++) {
        char *file = file_of_node(p, i);
        if (file && begins_stack(p, i))
            count_package(list, file);
        free(file);
    }
    for (size_t i = 1; i < PACKAGES; i++)
        best = list[i].count > list[best].count ? i : best;
    for (size_t i = 0; i < PACKAGES; i++)
        if (i != best)
            free(list[i].package);
    return list[best].package;
}

/* Returns true for a Python frame in the user's own files. If the profile has no such frame, the
 * package that was started is treated as the user's own. */
static bool program_has(struct program *p, const struct profile *profile, const char *function,
                        const char *file, uint32_t line)
{
    if (!p->is_known) {
        p->package = has_users(profile) ? NULL : package_started(profile);
        p->is_known = true;
    }
    if (!p->package)
        return is_users(function, file, line);
    size_t len = strlen(p->package);
    return file && strncmp(file, p->package, len) == 0 && (file[len] == '/' || !file[len]);
}

/* ---- naming ---- */

int names_new(const struct profile *p, const struct symbols_options *options, struct names **ret)
{
    struct names *n = calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    n->profile = p;
    int r = symbols_new(options, &n->symbols);
    if (r < 0) {
        free(n);
        return r;
    }
    *ret = n;
    return 0;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->count; i++)
        free(n->all[i].list);
    free(n->all);
    numbers_fini(&n->by_frame);
    free(n->program.package);
    texts_fini(&n->texts);
    symbols_free(n->symbols);
    free(n);
}

static const char *keep_or(struct names *n, const struct profile_text *text, const char *other)
{
    return text->len ? texts_keep(&n->texts, text->at, text->len) : other;
}

static size_t name_python(struct names *n, uint64_t frame, struct name *ret)
{
    uint64_t code_at = frame >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK;
    uint32_t instr = (uint32_t)(frame & HEAP_FRAME_INSTR_MASK);
    if (code_at >= n->profile->n_codes) {
        *ret = (struct name){.kind = NAME_UNKNOWN, .function = "(Python)"};
        return 1;
    }
    const struct profile_code *code = &n->profile->codes[code_at];
    *ret = (struct name){.kind = NAME_PYTHON,
                         .function = keep_or(n, &code->name, "(Python)"),
                         .file = keep_or(n, &code->file, NULL),
                         .line = code->first_line};
    if (instr != HEAP_INSTR_UNKNOWN)
        pylines_find(code->lines.at, code->lines.len, n->profile->cost.python_version,
                     code->first_line, instr, &ret->line);
    ret->is_own = ret->function && ret->file &&
                  program_has(&n->program, n->profile, ret->function, ret->file, ret->line);
    return ret->function ? 1 : 0;
}

static const char *base_name(const struct profile_text *path, size_t *ret_len)
{
    static const char deleted[] = " (deleted)";
    size_t len = path->len, start;
    if (len >= sizeof deleted &&
        memcmp(path->at + len - sizeof deleted + 1, deleted, sizeof deleted - 1) == 0)
        len -= sizeof deleted - 1;
    for (start = len; start > 0 && path->at[start - 1] != '/';)
        start--;
    *ret_len = len - start;
    return path->at + start;
}

static const char *keep_address(struct names *n, const char *lib, uint64_t offset)
{
    char text[320];
    snprintf(text, sizeof text, "%.255s%s0x%" PRIx64, lib, *lib ? "+" : "", offset);
    return texts_keep(&n->texts, text, sizeof text);
}

static size_t name_gpu(struct names *n, uint64_t frame, struct name *ret)
{
    char text[16];
    int len = snprintf(text, sizeof text, "gpu %u", (unsigned)(frame & HEAP_FRAME_OFFSET_MASK));
    *ret =
        (struct name){.kind = NAME_UNKNOWN, .function = texts_keep(&n->texts, text, (size_t)len)};
    return ret->function ? 1 : 0;
}

/* Names the function after its autograd node, whose name is shorter and better known than that of
 * the C++ function. */
static const char *name_backward(struct names *n, const char *function, bool *ret_is)
{
    char text[128];
    const char *node;
    size_t len;
    *ret_is = known_backward(function, &node, &len);
    if (!*ret_is)
        return function;
    int n_text =
        snprintf(text, sizeof text, "backward of %.*s", (int)(len < 100 ? len : 100), node);
    return texts_keep(&n->texts, text, (size_t)n_text);
}

static size_t name_native(struct names *n, uint64_t frame, struct name ret[SYMBOL_INLINE_MAX])
{
    uint64_t module_at = frame >> HEAP_FRAME_MODULE_SHIFT & HEAP_FRAME_MODULE_MASK;
    uint64_t offset = frame & HEAP_FRAME_OFFSET_MASK;
    struct symbol found[SYMBOL_INLINE_MAX];
    if (module_at == 0 || module_at > n->profile->n_modules) {
        *ret = (struct name){.kind = NAME_UNKNOWN, .function = keep_address(n, "", offset)};
        return ret->function ? 1 : 0;
    }
    const struct profile_module *m = &n->profile->modules[module_at - 1];
    size_t len, count = symbols_find(n->symbols, m->path.at, m->path.len, m->build_id,
                                     m->build_id_len, offset, found);
    const char *base = base_name(&m->path, &len);
    const char *lib = texts_keep(&n->texts, len ? base : "?", len ? len : 1);
    if (count == 0)
        found[count++] = (struct symbol){0};
    for (size_t i = 0; lib && i < count; i++) {
        const char *function = found[i].function ? found[i].function : keep_address(n, lib, offset);
        bool is_backward = false;
        if (found[i].function)
            function = name_backward(n, function, &is_backward);
        if (!function)
            return 0;
        ret[i] = (struct name){.kind = NAME_NATIVE,
                               .function = function,
                               .file = found[i].file,
                               .lib = lib,
                               .line = found[i].line,
                               .is_allocator = known_allocator(found[i].function, lib),
                               .is_inlined = found[i].is_inlined,
                               .is_backward = is_backward};
    }
    return lib ? count : 0;
}

static int add_named(struct names *n, uint64_t frame, const struct name *list, size_t count)
{
    if (!ARRAY_ROOM(n->all, n->count, n->cap))
        return -ENOMEM;
    struct name *copy = calloc(count, sizeof *copy);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, list, count * sizeof *copy);
    if (numbers_put(&n->by_frame, frame, (uint32_t)n->count) < 0) {
        free(copy);
        return -ENOMEM;
    }
    n->all[n->count++] = (struct named){copy, count};
    return 0;
}

size_t names_of_node(struct names *n, uint32_t node, const struct name **ret)
{
    struct name list[SYMBOL_INLINE_MAX];
    uint32_t at;
    *ret = &no_stack;
    if (node == 0 || node >= n->profile->n_nodes)
        return 1;
    uint64_t frame = n->profile->nodes[node].frame;
    if (!numbers_get(&n->by_frame, frame, &at)) {
        size_t count = heap_frame_is_gpu(frame)    ? name_gpu(n, frame, list)
                       : frame & HEAP_FRAME_PYTHON ? name_python(n, frame, list)
                                                   : name_native(n, frame, list);
        *ret = &no_memory;
        if (count == 0 || add_named(n, frame, list, count) < 0)
            return 1;
        at = (uint32_t)n->count - 1;
    }
    *ret = n->all[at].list;
    return n->all[at].count;
}

typedef bool wanted_fn(const struct name *name);

static bool is_python(const struct name *name)
{
    return name->kind == NAME_PYTHON;
}

static bool is_shown_python(const struct name *name)
{
    return is_python(name) && !known_plumbing(name->function, name->file);
}

static bool is_native(const struct name *name)
{
    return name->kind == NAME_NATIVE && !name->is_allocator;
}

static bool is_backward(const struct name *name)
{
    return name->is_backward;
}

static bool is_any(const struct name *name)
{
    return name;
}

static bool is_in_torch(const struct profile *p, uint64_t frame)
{
    static const char prefix[] = "libtorch";
    uint64_t module_at = frame >> HEAP_FRAME_MODULE_SHIFT & HEAP_FRAME_MODULE_MASK;
    if (frame & HEAP_FRAME_PYTHON || module_at == 0 || module_at > p->n_modules)
        return false;
    size_t len;
    const char *base = base_name(&p->modules[module_at - 1].path, &len);
    return len >= sizeof prefix - 1 && memcmp(base, prefix, sizeof prefix - 1) == 0;
}

/* Selects the frames to resolve: all, only Python frames, or only torch's native frames. Resolving
 * a native frame may read a large file of symbols. */
enum search { SEARCH_ALL, SEARCH_PYTHON, SEARCH_TORCH };

/* Returns the innermost frame of SITE that WANTED accepts. */
static const struct name *innermost(struct names *n, uint32_t site, enum search in,
                                    wanted_fn *wanted)
{
    const struct profile *p = n->profile;
    uint32_t node = site < p->n_sites ? p->site_node[site] : 0;
    for (; node; node = p->nodes[node].parent) {
        const struct name *list;
        bool is_python_frame = p->nodes[node].frame & HEAP_FRAME_PYTHON;
        bool is_skipped = (in == SEARCH_PYTHON && !is_python_frame) ||
                          (in == SEARCH_TORCH && !is_in_torch(p, p->nodes[node].frame));
        /* the user's line is nearer to the allocation than any autograd node among its callers */
        if (in == SEARCH_TORCH && is_python_frame)
            return NULL;
        size_t count = is_skipped ? 0 : names_of_node(n, node, &list);
        for (size_t i = 0; i < count; i++)
            if (wanted(&list[i]))
                return &list[i];
    }
    return NULL;
}

const struct name *names_of_site(struct names *n, uint32_t site)
{
    static const struct {
        enum search in;
        wanted_fn *wanted;
    } order[] = {{SEARCH_PYTHON, is_shown_python},
                 {SEARCH_PYTHON, is_python},
                 {SEARCH_TORCH, is_backward},
                 {SEARCH_ALL, is_native},
                 {SEARCH_ALL, is_any}};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct name *found = innermost(n, site, order[i].in, order[i].wanted);
        if (found)
            return found;
    }
    return &no_stack;
}

/* Adds the frame ONE, which called the last of the COUNT frames in RET. If the last frame is a
 * comprehension in the function ONE, replaces the last frame by ONE. Does not add a recursive call
 * or an outer <module>. Returns false if RET is full. */
static bool add_caller(const struct name *one, size_t max, const struct name **ret, size_t *count)
{
    const struct name *inner = *count ? ret[*count - 1] : NULL;
    bool is_same_file = inner && strcmp(inner->file, one->file) == 0;
    if (is_same_file && strcmp(inner->function, one->function) == 0)
        return true;
    if (is_same_file && known_comprehension(inner->function, one->function)) {
        ret[*count - 1] = one;
        return true;
    }
    if (inner && strcmp(one->function, "<module>") == 0)
        return true;
    if (*count == max)
        return false;
    ret[(*count)++] = one;
    return true;
}

size_t names_program_of_site(struct names *n, uint32_t site, size_t max, const struct name **ret)
{
    const struct profile *p = n->profile;
    uint32_t node = site < p->n_sites ? p->site_node[site] : 0;
    size_t count = 0;
    for (; node; node = p->nodes[node].parent) {
        const struct name *one;
        if (p->nodes[node].frame & HEAP_FRAME_PYTHON && names_of_node(n, node, &one) &&
            one->is_own && !add_caller(one, max, ret, &count))
            break;
    }
    return count;
}

const struct name *names_native_of_site(struct names *n, uint32_t site)
{
    const struct name *node = innermost(n, site, SEARCH_TORCH, is_backward);
    return node ? node : innermost(n, site, SEARCH_ALL, is_native);
}
